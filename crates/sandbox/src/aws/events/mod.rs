//! EventBridge: rules, their targets, and events that are matched and delivered to queues.

mod buses;
mod pattern;
mod rules;
mod targets;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Store;
use super::ask::{Ask, Tags};
use super::errors::{Answer, AwsError, fail};
use super::tables::object;
use super::tagging::TaggedService;
use super::wire::{Action, Protocol, Service};
use crate::clock::SimTime;

pub static SERVICE: Service = Service {
    scope: "events",
    protocol: Protocol::Json { target: "AWSEvents", content_type: "application/x-amz-json-1.1" },
    actions: &[
        Action::change("PutRule", rules::put),
        Action::read("DescribeRule", rules::describe),
        Action::read("ListRules", rules::list),
        Action::change("DeleteRule", rules::delete),
        Action::change("EnableRule", rules::enable),
        Action::change("DisableRule", rules::disable),
        Action::change("PutTargets", targets::put),
        Action::change("RemoveTargets", targets::remove),
        Action::read("ListTargetsByRule", targets::list),
        Action::read("ListRuleNamesByTarget", targets::rule_names),
        Action::change("TagResource", buses::tag),
        Action::change("UntagResource", buses::untag),
        Action::read("ListTagsForResource", buses::list_tags),
        Action::change("CreateEventBus", buses::create),
        Action::read("DescribeEventBus", buses::describe),
        Action::read("ListEventBuses", buses::list),
        Action::change("DeleteEventBus", buses::delete),
        Action::change("PutEvents", targets::put_events),
        Action::read("TestEventPattern", rules::test_pattern),
    ],
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventRule {
    /// ARN.
    id: String,
    name: String,
    bus: String,
    region: String,
    pattern: Option<String>,
    schedule: Option<String>,
    state: String,
    description: Option<String>,
    role: Option<String>,
    /// As they were put, by their ids.
    targets: Vec<Value>,
    tags: Tags,
}

object!(
    EventRule,
    "aws.event_rule",
    id,
    |this| vec![format!("region:{}", this.region), format!("bus:{}/{}", this.region, this.bus)],
    json!({"name": this.name, "region": this.region, "targets": this.targets.len()})
);

/// A bus besides the default one, which every region has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventBus {
    /// ARN.
    id: String,
    name: String,
    region: String,
    description: Option<String>,
    tags: Tags,
    created: SimTime,
}

object!(
    EventBus,
    "aws.event_bus",
    id,
    |this| vec![format!("region:{}", this.region)],
    json!({"name": this.name, "region": this.region})
);

super::tables::tables! { rules: EventRule, buses: EventBus }

fn not_found(message: impl Into<String>) -> Box<AwsError> {
    AwsError::new(400, "ResourceNotFoundException", message)
}

fn invalid<T>(message: impl Into<String>) -> Answer<T> {
    fail("ValidationException", message)
}

/// The bus that the input names, by name or ARN; it must be there.
fn bus(ask: &Ask) -> Answer<String> {
    let given = ask.input.text("EventBusName").unwrap_or("default");
    let name = given.rsplit("event-bus/").next().unwrap_or(given);
    match name == "default" || ask.state.store.events.buses.get(&bus_arn(ask, name)).is_some() {
        true => Ok(name.to_owned()),
        false => Err(not_found(format!("Event bus {name} does not exist."))),
    }
}

fn bus_arn(ask: &Ask, name: &str) -> String {
    ask.arn("events", &format!("event-bus/{name}"))
}

fn rule_arn(ask: &Ask, bus: &str, name: &str) -> String {
    match bus {
        "default" => ask.arn("events", &format!("rule/{name}")),
        bus => ask.arn("events", &format!("rule/{bus}/{name}")),
    }
}

/// The rule with a name on the input's bus.
fn find<'t>(ask: &'t Ask<'_, '_>, name: &str) -> Answer<&'t EventRule> {
    let bus = bus(ask)?;
    let missing = || not_found(format!("Rule {name} does not exist on EventBus {bus}."));
    ask.state.store.events.rules.get(&rule_arn(ask, &bus, name)).ok_or_else(missing)
}

pub struct EventTags;

impl TaggedService for EventTags {
    fn list(&self, store: &Store, region: &str, _: &str) -> Vec<(String, Tags)> {
        let key = format!("region:{region}");
        let rules = store.events.rules.find(&key).map(|rule| (rule.id.clone(), rule.tags.clone()));
        rules.chain(store.events.buses.find(&key).map(|bus| (bus.id.clone(), bus.tags.clone()))).collect()
    }

    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool {
        store.events.rules.update(arn, |rule| change(&mut rule.tags)).is_some()
            || store.events.buses.update(arn, |bus| change(&mut bus.tags)).is_some()
    }
}
