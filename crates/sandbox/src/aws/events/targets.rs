//! Targets of rules, and events that find them. Queues get them; other targets are only kept.

use serde_json::{Value, json};

use super::rules::listed;
use super::{EventRule, bus, find, invalid, pattern};
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::{Answer, fail};
use crate::aws::sqs;

const MAX_TARGETS: usize = 5;

pub fn put(ask: &mut Ask) -> Answer<Value> {
    let rule = find(ask, ask.input.required("Rule")?)?;
    let (id, mut targets) = (rule.id.clone(), rule.targets.clone());
    let given = ask.input.list("Targets");
    if given.is_empty() {
        return invalid(
            "1 validation error detected: Value at 'targets' failed to satisfy constraint: Member must have length greater than or equal to 1",
        );
    }
    for Input(target) in given {
        let text = |name: &str| target.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        if text("Id").is_empty() || !text("Arn").starts_with("arn:") {
            return invalid(format!(
                "Parameter {} is not valid. Reason: Provided Arn is not in correct format.",
                text("Arn")
            ));
        }
        targets.retain(|old| old["Id"] != target["Id"]);
        targets.push(target);
    }
    if targets.len() > MAX_TARGETS {
        return fail("LimitExceededException", "The requested resource exceeds the maximum number allowed.");
    }
    ask.store().events.rules.update(&id, |rule| rule.targets = targets);
    Ok(json!({"FailedEntryCount": 0, "FailedEntries": []}))
}

pub fn remove(ask: &mut Ask) -> Answer<Value> {
    let id = find(ask, ask.input.required("Rule")?)?.id.clone();
    let ids: Vec<String> = ask.input.texts("Ids").into_iter().map(str::to_owned).collect();
    ask.store().events.rules.update(&id, |rule| {
        rule.targets.retain(|target| !ids.iter().any(|id| target["Id"] == id.as_str()));
    });
    Ok(json!({"FailedEntryCount": 0, "FailedEntries": []}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let targets = find(ask, ask.input.required("Rule")?)?.targets.clone();
    listed(ask, "Targets", targets, |target| target["Id"].as_str().unwrap_or_default().to_owned(), Clone::clone)
}

pub fn rule_names(ask: &mut Ask) -> Answer<Value> {
    let (bus, arn) = (bus(ask)?, ask.input.required("TargetArn")?);
    let rows = ask.rows(|store| &store.events.rules, &format!("bus:{}/{bus}", ask.region));
    let points = |rule: &&EventRule| rule.targets.iter().any(|target| target["Arn"] == arn);
    let names: Vec<String> = rows.into_iter().filter(points).map(|rule| rule.name.clone()).collect();
    listed(ask, "RuleNames", names, Clone::clone, |name| name.clone().into())
}

/// An entry as the event that rules see.
fn event(ask: &Ask, entry: &Input, id: &str) -> Option<Value> {
    let detail: Value = serde_json::from_str(entry.text("Detail")?).ok().filter(Value::is_object)?;
    Some(json!({
        "version": "0",
        "id": id,
        "detail-type": entry.text("DetailType")?,
        "source": entry.text("Source")?,
        "account": ask.account,
        "time": ask.state.now.rfc3339(),
        "region": ask.region,
        "resources": entry.texts("Resources"),
        "detail": detail,
    }))
}

pub fn put_events(ask: &mut Ask) -> Answer<Value> {
    let entries = ask.input.list("Entries");
    if entries.is_empty() || entries.len() > 10 {
        return invalid(
            "1 validation error detected: Value at 'entries' failed to satisfy constraint: Member must have length between 1 and 10",
        );
    }
    let (mut rows, mut failed) = (Vec::new(), 0);
    for entry in &entries {
        let id = uuid::Uuid::new_v4().to_string();
        let Some(event) = event(ask, entry, &id) else {
            failed += 1;
            rows.push(json!({"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}));
            continue;
        };
        let bus = entry.text("EventBusName").unwrap_or("default");
        deliver(ask, bus.rsplit("event-bus/").next().unwrap_or(bus), &event);
        rows.push(json!({"EventId": id}));
    }
    Ok(json!({"FailedEntryCount": failed, "Entries": rows}))
}

fn deliver(ask: &mut Ask, bus: &str, event: &Value) {
    let rules = ask.state.store.events.rules.find(&format!("bus:{}/{bus}", ask.region));
    let fits = |rule: &&EventRule| {
        let wanted = rule.pattern.as_ref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        rule.state.starts_with("ENABLED") && wanted.is_some_and(|wanted| pattern::matches(&wanted, event))
    };
    let targets: Vec<Value> = rules.filter(fits).flat_map(|rule| rule.targets.clone()).collect();
    for target in targets {
        let body = match target.get("Input").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => event.to_string(),
        };
        let group = target.pointer("/SqsParameters/MessageGroupId").and_then(Value::as_str).map(str::to_owned);
        sqs::deliver(ask, target["Arn"].as_str().unwrap_or_default(), body, group);
    }
}
