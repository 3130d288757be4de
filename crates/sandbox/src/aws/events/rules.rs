//! Rules: a pattern or a schedule.

use serde_json::{Value, json};

use super::{EventRule, bus, find, invalid, pattern, rule_arn};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::paging;

/// A page of a list, as EventBridge has them.
pub fn listed<T>(
    ask: &Ask,
    name: &str,
    rows: Vec<T>,
    key: fn(&T) -> String,
    show: impl Fn(&T) -> Value,
) -> Answer<Value> {
    let max = ask.input.int("Limit").unwrap_or(100).clamp(1, 100) as usize;
    let bad = || AwsError::new(400, "ValidationException", "NextToken is invalid.");
    let (rows, next) = paging::slice(rows, key, ask.input.text("NextToken"), max, bad)?;
    let mut answer = json!({name: rows.iter().map(show).collect::<Vec<_>>()});
    if let Some(next) = next {
        answer["NextToken"] = next.into();
    }
    Ok(answer)
}

pub fn tags(ask: &Ask) -> Tags {
    ask.input.pairs("Tags", "Key", "Value")
}

/// Makes a rule, or changes it: what is not given is empty then, but for its targets and tags.
pub fn put(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.required("Name")?.to_owned();
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if name.len() > 64 || !name.chars().all(fine) {
        return invalid(format!(
            "1 validation error detected: Value '{name}' at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\.\\-_A-Za-z0-9]+"
        ));
    }
    let bus = bus(ask)?;
    let text = |member: &str| ask.input.text(member).filter(|text| !text.is_empty()).map(str::to_owned);
    let (pattern, schedule) = (text("EventPattern"), text("ScheduleExpression"));
    if pattern.is_none() && schedule.is_none() {
        return invalid("Parameter(s) EventPattern or ScheduleExpression must be specified.");
    }
    if let Some(text) = &pattern {
        super::pattern::parse(text)?;
    }
    if let Some(text) = &schedule {
        check_schedule(&bus, text)?;
    }
    let state = text("State").unwrap_or_else(|| "ENABLED".into());
    if !["ENABLED", "DISABLED", "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS"].contains(&state.as_str()) {
        return invalid(format!(
            "1 validation error detected: Value '{state}' at 'state' failed to satisfy constraint"
        ));
    }
    let id = rule_arn(ask, &bus, &name);
    let rule = EventRule {
        id: id.clone(),
        name,
        bus,
        region: ask.region.to_owned(),
        pattern,
        schedule,
        state,
        description: text("Description"),
        role: text("RoleArn"),
        targets: Vec::new(),
        tags: tags(ask),
    };
    if let Some(role) = &rule.role {
        crate::aws::authenticate::pass_role(ask, role, "events.amazonaws.com")?;
    }
    let rules = &mut ask.store().events.rules;
    match rules.get(&id).is_some() {
        true => {
            _ = rules.update(&id, |old| {
                let (targets, tags) = (std::mem::take(&mut old.targets), std::mem::take(&mut old.tags));
                *old = EventRule { targets, tags, ..rule };
            })
        }
        false => rules.insert(rule),
    }
    Ok(json!({"RuleArn": id}))
}

/// `rate(5 minutes)` or `cron(0 12 * * ? *)`, on the default bus.
fn check_schedule(bus: &str, text: &str) -> Answer<()> {
    let inside = |kind: &str| text.strip_prefix(kind).and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'));
    let fine = match (inside("rate"), inside("cron")) {
        (Some(rate), _) => {
            let mut words = rate.split_whitespace();
            let number = words.next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
            let unit = words.next().unwrap_or_default();
            let units: &[&str] = if number == 1 { &["minute", "hour", "day"] } else { &["minutes", "hours", "days"] };
            number > 0 && units.contains(&unit) && words.next().is_none()
        }
        (None, Some(cron)) => cron.split_whitespace().count() == 6,
        (None, None) => false,
    };
    match (fine, bus) {
        (false, _) => invalid("Parameter ScheduleExpression is not valid."),
        (true, "default") => Ok(()),
        (true, _) => invalid("ScheduleExpression is supported only on the default event bus."),
    }
}

pub fn shown(rule: &EventRule) -> Value {
    let mut shown = json!({"Name": rule.name, "Arn": rule.id, "State": rule.state, "EventBusName": rule.bus});
    for (name, value) in [
        ("EventPattern", &rule.pattern),
        ("ScheduleExpression", &rule.schedule),
        ("Description", &rule.description),
        ("RoleArn", &rule.role),
    ] {
        if let Some(value) = value {
            shown[name] = value.clone().into();
        }
    }
    shown
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let mut answer = shown(find(ask, ask.input.required("Name")?)?);
    answer["CreatedBy"] = ask.account.into();
    Ok(answer)
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let (bus, prefix) = (bus(ask)?, ask.input.text("NamePrefix").unwrap_or_default());
    let rows = ask.rows(|store| &store.events.rules, &format!("bus:{}/{bus}", ask.region));
    let rows: Vec<&EventRule> = rows.into_iter().filter(|rule| rule.name.starts_with(prefix)).collect();
    listed(ask, "Rules", rows, |rule| rule.name.clone(), |rule| shown(rule))
}

/// Deleting one that is not there is no error.
pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let id = rule_arn(ask, &bus(ask)?, ask.input.required("Name")?);
    if ask.state.store.events.rules.get(&id).is_some_and(|rule| !rule.targets.is_empty()) {
        return invalid("Rule can't be deleted since it has targets.");
    }
    ask.store().events.rules.remove(&id);
    Ok(json!({}))
}

fn set_state(ask: &mut Ask, state: &str) -> Answer<Value> {
    let id = find(ask, ask.input.required("Name")?)?.id.clone();
    ask.store().events.rules.update(&id, |rule| rule.state = state.to_owned());
    Ok(json!({}))
}

pub fn enable(ask: &mut Ask) -> Answer<Value> {
    set_state(ask, "ENABLED")
}

pub fn disable(ask: &mut Ask) -> Answer<Value> {
    set_state(ask, "DISABLED")
}

pub fn test_pattern(ask: &mut Ask) -> Answer<Value> {
    let wanted = pattern::parse(ask.input.required("EventPattern")?)?;
    match serde_json::from_str::<Value>(ask.input.required("Event")?) {
        Ok(event) => Ok(json!({"Result": pattern::matches(&wanted, &event)})),
        Err(error) => fail("ValidationException", format!("Parameter Event is not valid. Reason: {error}")),
    }
}
