//! CronJobs: a Job at each time of a schedule.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::{
    Change, Scene, by_controller, delete, is_leaving, is_true, kind, owner_reference, set_status, tell, time_of, warn,
};
use crate::clock::SimTime;
use crate::kube::objects::{Stored, meta};

const WHO: &str = "cronjob-controller";

pub fn run(scene: &Scene) -> Vec<Change> {
    let jobs = by_controller(scene.objects, "batch", "jobs");
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("batch", "cronjobs").filter(|row| !is_leaving(&row.object)) {
        let own: Vec<&Stored> = jobs.get(meta(&row.object, "uid")).into_iter().flatten().copied().collect();
        reconcile(scene, row, &own, &mut changes);
    }
    changes
}

fn reconcile(scene: &Scene, row: &Stored, own: &[&Stored], changes: &mut Vec<Change>) {
    let (cron, now) = (&row.object, scene.now);
    let spec = &cron["spec"];
    let is_over = |job: &&&Stored| is_true(&job.object, "Complete") || is_true(&job.object, "Failed");
    let active: Vec<&&Stored> = own.iter().filter(|job| !is_over(job)).collect();
    for (kind_of, limit, usual) in
        [("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1)]
    {
        let keep = spec[limit].as_u64().unwrap_or(usual) as usize;
        let mut over: Vec<&&Stored> = own.iter().filter(|job| is_true(&job.object, kind_of)).collect();
        over.sort_by_key(|job| job.touched);
        let surplus = over.len().saturating_sub(keep);
        changes.extend(over.into_iter().take(surplus).map(|job| delete(kind("batch", "jobs"), &job.object)));
    }
    let Some(schedule) = Schedule::parse(spec["schedule"].as_str().unwrap_or_default()) else { return };
    let zone = spec["timeZone"].as_str().and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC);
    let last = time_of(&cron["status"]["lastScheduleTime"]);
    let from = last.into_iter().chain([row.touched]).max().unwrap_or(now);
    let due = schedule.after(from, &zone);
    let mut status = cron["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    let mut next = due;
    if let Some(at) = due.filter(|at| *at <= now && spec["suspend"] != true) {
        let latest = schedule.latest(at, now, &zone);
        let late = spec["startingDeadlineSeconds"].as_i64().is_some_and(|seconds| latest.plus_ms(seconds * 1000) < now);
        let policy = spec["concurrencyPolicy"].as_str().unwrap_or("Allow");
        if late {
            changes.push(warn(
                cron,
                WHO,
                "MissSchedule",
                format!("Missed scheduled time to start a job: {}", latest.rfc3339()),
            ));
        } else if policy == "Forbid" && !active.is_empty() {
            changes.push(tell(
                cron,
                WHO,
                "JobAlreadyActive",
                "Not starting job because prior execution is running and concurrency policy is Forbid".into(),
            ));
        } else {
            if policy == "Replace" {
                changes.extend(active.iter().map(|job| delete(kind("batch", "jobs"), &job.object)));
            }
            let name = format!("{}-{}", meta(cron, "name"), latest.0 / 60_000);
            changes.push(job(cron, &name, latest));
            changes.push(tell(cron, WHO, "SuccessfulCreate", format!("Created job {name}")));
        }
        status["lastScheduleTime"] = json!(latest.rfc3339());
        next = schedule.after(latest, &zone);
    }
    show_active(&mut status, &active);
    let success = own
        .iter()
        .filter(|job| is_true(&job.object, "Complete"))
        .filter_map(|job| job.object["status"]["completionTime"].as_str())
        .max();
    if let Some(at) = success {
        status["lastSuccessfulTime"] = json!(at);
    }
    let due = if spec["suspend"] == true { None } else { next };
    changes.extend(set_status(kind("batch", "cronjobs"), row, status, due));
}

/// The jobs that run, in the status.
fn show_active(status: &mut Value, active: &[&&Stored]) {
    let references: Vec<Value> = active
        .iter()
        .map(|job| {
            let meta = &job.object["metadata"];
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "namespace": meta["namespace"],
                   "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]})
        })
        .collect();
    // Versions of jobs change all the time; the list matters, not them.
    let known =
        |list: &Value| -> Vec<Value> { list.as_array().into_iter().flatten().map(|one| one["uid"].clone()).collect() };
    if known(status.get("active").unwrap_or(&Value::Null)) != known(&json!(references)) {
        if references.is_empty() {
            status.as_object_mut().map(|map| map.remove("active"));
        } else {
            status["active"] = json!(references);
        }
    }
}

fn job(cron: &Value, name: &str, at: SimTime) -> Change {
    let template = &cron["spec"]["jobTemplate"];
    let mut metadata = json!({"name": name, "ownerReferences": owner_reference(kind("batch", "cronjobs"), cron),
        "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": at.rfc3339()}});
    for field in ["labels", "annotations"] {
        for (key, value) in template["metadata"][field].as_object().into_iter().flatten() {
            metadata[field][key.as_str()] = value.clone();
        }
    }
    let body = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]});
    Change::Create { resource: kind("batch", "jobs"), namespace: meta(cron, "namespace").to_owned(), body }
}

/// Minutes, hours, days, months and weekdays at which something happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    fields: [Vec<i8>; 5],
    /// With both given, either day will do.
    any_day: bool,
}

const RANGES: [(i8, i8); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// A schedule that does not come within this many days never comes.
const MAX_DAYS: i64 = 366 * 5;

impl Schedule {
    pub fn parse(text: &str) -> Option<Schedule> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let parts: Vec<&str> = text.split_whitespace().collect();
        let parts: [&str; 5] = parts.try_into().ok()?;
        let mut fields: [Vec<i8>; 5] = Default::default();
        for (at, part) in parts.iter().enumerate() {
            fields[at] = field(part, at)?;
        }
        let free = |part: &str| part.starts_with(['*', '?']);
        Some(Schedule { fields, any_day: !free(parts[2]) && !free(parts[4]) })
    }

    fn has_day(&self, at: DateTime) -> bool {
        let weekday = at.weekday().to_sunday_zero_offset();
        let (by_date, by_weekday) = (self.fields[2].contains(&at.day()), self.fields[4].contains(&weekday));
        self.fields[3].contains(&at.month()) && if self.any_day { by_date || by_weekday } else { by_date && by_weekday }
    }

    /// The first time after that moment.
    pub fn after(&self, from: SimTime, zone: &TimeZone) -> Option<SimTime> {
        let start = Timestamp::from_second(from.0.div_euclid(60_000) * 60 + 60).ok()?.to_zoned(zone.clone()).datetime();
        let mut day = start.date();
        for at in 0..MAX_DAYS {
            if self.has_day(day.at(0, 0, 0, 0)) {
                for hour in &self.fields[1] {
                    for minute in &self.fields[0] {
                        let time = day.at(*hour, *minute, 0, 0);
                        if at > 0 || time >= start {
                            let zoned = zone.clone().to_zoned(time).ok()?;
                            return Some(SimTime(zoned.timestamp().as_millisecond()));
                        }
                    }
                }
            }
            day = day.checked_add(1.day()).ok()?;
        }
        None
    }

    /// The last time that is not after `now`, from one that is not.
    fn latest(&self, from: SimTime, now: SimTime, zone: &TimeZone) -> SimTime {
        // Missed times are not made up for; with many of them it does not matter which one is taken for the last.
        let near = if now.0 - from.0 > 86_400_000 { SimTime(now.0 - 86_400_000) } else { from };
        let mut last = if near == from { from } else { self.after(near, zone).filter(|at| *at <= now).unwrap_or(from) };
        while let Some(next) = self.after(last, zone).filter(|next| *next <= now) {
            last = next;
        }
        last
    }
}

fn field(text: &str, at: usize) -> Option<Vec<i8>> {
    let (least, most) = RANGES[at];
    let number = |text: &str| -> Option<i8> {
        let lower = text.to_lowercase();
        let named = match at {
            3 => MONTHS.iter().position(|name| *name == lower).map(|month| month as i8 + 1),
            4 => DAYS.iter().position(|name| *name == lower).map(|day| day as i8),
            _ => None,
        };
        named
            .or_else(|| lower.parse().ok())
            .map(|n| if at == 4 && n == 7 { 0 } else { n })
            .filter(|n| (least..=most).contains(n))
    };
    let mut values = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (from, to) = match range {
            "*" | "?" => (least, most),
            range => match range.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                None => (number(range)?, if step.is_some() { most } else { number(range)? }),
            },
        };
        let step: usize = step.map_or(Some(1), |step| step.parse().ok().filter(|step| *step > 0))?;
        if from > to {
            return None;
        }
        values.extend((from..=to).step_by(step));
    }
    values.sort_unstable();
    values.dedup();
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, from: &str) -> String {
        let from: Timestamp = from.parse().unwrap();
        Schedule::parse(schedule).unwrap().after(SimTime(from.as_millisecond()), &TimeZone::UTC).unwrap().rfc3339()
    }

    #[test]
    fn schedules_are_read_and_their_times_found() {
        assert_eq!(next("*/5 * * * *", "2026-01-01T10:02:30Z"), "2026-01-01T10:05:00Z");
        assert_eq!(next("*/5 * * * *", "2026-01-01T10:05:00Z"), "2026-01-01T10:10:00Z");
        assert_eq!(next("0 3 * * mon-fri", "2026-01-02T04:00:00Z"), "2026-01-05T03:00:00Z");
        assert_eq!(next("30 2 29 2 *", "2026-01-01T00:00:00Z"), "2028-02-29T02:30:00Z");
        assert_eq!(next("0 0 13 * 5", "2026-01-01T00:00:00Z"), "2026-01-02T00:00:00Z", "either day will do");
        assert_eq!(next("@hourly", "2026-01-01T00:00:00Z"), "2026-01-01T01:00:00Z");
        for bad in ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"] {
            assert_eq!(Schedule::parse(bad), None, "{bad}");
        }
        assert!(Schedule::parse("0 0 30 2 *").unwrap().after(SimTime(0), &TimeZone::UTC).is_none());
    }
}
