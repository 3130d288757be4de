//! Jobs: pods that end, as many and as often as it takes.

use serde_json::{Value, json};

use super::{
    Change, Scene, by_controller, delete, is_leaving, is_true, kind, set_status, tell, template, time_of, warn,
};
use crate::clock::SimTime;
use crate::kube::objects::{Stored, meta};

const WHO: &str = "job-controller";
const FIRST_BACK_OFF_MS: i64 = 10_000;

pub fn run(scene: &Scene) -> Vec<Change> {
    let pods = by_controller(scene.objects, "", "pods");
    let mut changes = Vec::new();
    for row in scene.objects.rows_of("batch", "jobs").filter(|row| !is_leaving(&row.object)) {
        let own: Vec<&Value> =
            pods.get(meta(&row.object, "uid")).into_iter().flatten().map(|row| &row.object).collect();
        reconcile(scene, row, &own, &mut changes);
    }
    changes
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// Jobs and what they got through.
struct Tally<'a> {
    active: Vec<&'a Value>,
    ready: usize,
    succeeded: usize,
    failed: usize,
}

fn reconcile(scene: &Scene, row: &Stored, own: &[&Value], changes: &mut Vec<Change>) {
    let (jobs, job, now) = (kind("batch", "jobs"), &row.object, scene.now);
    if is_true(job, "Complete") || is_true(job, "Failed") {
        return expire(scene, row, changes);
    }
    let active: Vec<&Value> =
        own.iter().copied().filter(|pod| !is_leaving(pod) && !matches!(phase(pod), "Succeeded" | "Failed")).collect();
    let count = |wanted: &str| own.iter().filter(|pod| phase(pod) == wanted).count();
    let tally = Tally {
        ready: active.iter().filter(|pod| is_true(pod, "Ready")).count(),
        succeeded: count("Succeeded"),
        failed: count("Failed"),
        active,
    };
    let spec = &job["spec"];
    let completions = spec["completions"].as_u64().map(|count| count as usize);
    let parallel = spec["parallelism"].as_u64().unwrap_or(1) as usize;
    let limit = spec["backoffLimit"].as_u64().unwrap_or(6) as usize;
    let started = time_of(&job["status"]["startTime"]);
    let deadline = spec["activeDeadlineSeconds"].as_i64().zip(started).map(|(seconds, at)| at.plus_ms(seconds * 1000));
    let restarts: usize = tally
        .active
        .iter()
        .map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0) as usize)
        .sum();
    if spec["suspend"] == true {
        changes.extend(tally.active.iter().map(|pod| delete(kind("", "pods"), pod)));
        let status = json!({"conditions": [super::condition(&job["status"], "Suspended", "True", "JobSuspended", "Job suspended", now)]});
        changes.extend(set_status(jobs, row, status, None));
        return;
    }
    let verdict = if deadline.is_some_and(|at| at <= now) {
        Some(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline".to_owned()))
    } else if tally.failed > limit || (restarts > limit && spec["template"]["spec"]["restartPolicy"] == "OnFailure") {
        Some(("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit".to_owned()))
    } else if completions.map_or(tally.succeeded > 0 && tally.active.is_empty(), |wanted| tally.succeeded >= wanted) {
        Some(("Complete", "CompletionsReached", "Reached expected number of succeeded pods".to_owned()))
    } else {
        None
    };
    if let Some((kind_of, reason, message)) = verdict {
        return finish(scene, row, &tally, (kind_of, reason, &message), changes);
    }
    // After a failure the next try waits, twice as long each time.
    let last_failure = own.iter().filter(|pod| phase(pod) == "Failed").filter_map(|pod| finished_at(pod)).max();
    let wait = FIRST_BACK_OFF_MS.saturating_mul(1 << tally.failed.saturating_sub(1).min(6)).min(360_000);
    let next_try = last_failure.map(|at| scene.pace.after(at, wait)).filter(|at| *at > now);
    let left = completions.map_or(parallel, |wanted| wanted.saturating_sub(tally.succeeded));
    let wanted = if next_try.is_some() { 0 } else { parallel.min(left) };
    make_pods(job, own, &tally, wanted, changes);
    changes.extend(tally.active.iter().skip(parallel.min(left).max(wanted)).map(|pod| delete(kind("", "pods"), pod)));
    let due = [deadline, next_try].into_iter().flatten().min();
    let mut status = counts(&tally, own);
    status["startTime"] = json!(started.unwrap_or(now).rfc3339());
    changes.extend(set_status(jobs, row, status, due));
}

fn finished_at(pod: &Value) -> Option<SimTime> {
    time_of(&pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
}

fn make_pods(job: &Value, own: &[&Value], tally: &Tally, wanted: usize, changes: &mut Vec<Change>) {
    let indexed = job["spec"]["completionMode"] == "Indexed";
    let mut index = 0;
    for _ in tally.active.len()..wanted {
        let mut pod = template::pod(kind("batch", "jobs"), job, &job["spec"]["template"], None);
        if indexed {
            let taken = |number: usize| {
                own.iter().any(|pod| {
                    phase(pod) != "Failed"
                        && pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
                            .as_str()
                            .and_then(|index| index.parse().ok())
                            == Some(number)
                })
            };
            while taken(index) {
                index += 1;
            }
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(index.to_string());
            pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = json!(index.to_string());
            pod["metadata"]["generateName"] = json!(format!("{}-{index}-", meta(job, "name")));
            index += 1;
        }
        changes.push(template::create(job, pod));
    }
}

fn counts(tally: &Tally, own: &[&Value]) -> Value {
    let leaving = own.iter().filter(|pod| is_leaving(pod) && !matches!(phase(pod), "Succeeded" | "Failed")).count();
    let mut status = json!({"ready": tally.ready, "terminating": leaving, "uncountedTerminatedPods": {}});
    for (field, number) in [("active", tally.active.len()), ("succeeded", tally.succeeded), ("failed", tally.failed)] {
        if number > 0 {
            status[field] = json!(number);
        }
    }
    status
}

fn finish(
    scene: &Scene,
    row: &Stored,
    tally: &Tally,
    (kind_of, reason, message): (&str, &'static str, &str),
    changes: &mut Vec<Change>,
) {
    let (job, now) = (&row.object, scene.now);
    changes.extend(tally.active.iter().map(|pod| delete(kind("", "pods"), pod)));
    let at = now.rfc3339();
    let mut status = json!({"ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
                            "startTime": job["status"].get("startTime").cloned().unwrap_or_else(|| json!(at))});
    for (field, number) in [("succeeded", tally.succeeded), ("failed", tally.failed)] {
        if number > 0 {
            status[field] = json!(number);
        }
    }
    let one = |kind: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": at, "lastTransitionTime": at});
    if kind_of == "Complete" {
        status["completionTime"] = json!(at);
        status["conditions"] = json!([one("SuccessCriteriaMet"), one("Complete")]);
        changes.push(tell(job, WHO, "Completed", "Job completed".into()));
    } else {
        status["conditions"] = json!([one("FailureTarget"), one("Failed")]);
        changes.push(warn(job, WHO, reason, message.to_owned()));
    }
    let due = job["spec"]["ttlSecondsAfterFinished"].as_i64().map(|seconds| now.plus_ms(seconds * 1000));
    changes.extend(set_status(kind("batch", "jobs"), row, status, due));
}

/// A finished job goes when its time to live is over.
fn expire(scene: &Scene, row: &Stored, changes: &mut Vec<Change>) {
    let Some(seconds) = row.object["spec"]["ttlSecondsAfterFinished"].as_i64() else { return };
    let ended = row.object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| time_of(&one["lastTransitionTime"]))
        .max();
    let at = ended.unwrap_or(scene.now).plus_ms(seconds * 1000);
    if at <= scene.now {
        changes.push(delete(kind("batch", "jobs"), &row.object));
    } else if row.due != Some(at) {
        changes.push(super::due_change(kind("batch", "jobs"), &row.object, Some(at)));
    }
}
