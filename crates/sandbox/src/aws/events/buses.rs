//! Buses, and tags of them and of rules.

use serde_json::{Value, json};

use super::rules::{listed, tags};
use super::{EventBus, EventTags, bus, bus_arn, invalid, not_found};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, fail};
use crate::aws::tagging::TaggedService;

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.required("Name")?.to_owned();
    let fine = |c: char| c.is_ascii_alphanumeric() || "/.-_".contains(c);
    if name.len() > 256 || !name.chars().all(fine) {
        return invalid(
            "1 validation error detected: Value at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: [/\\.\\-_A-Za-z0-9]+",
        );
    }
    let id = bus_arn(ask, &name);
    if name == "default" || ask.state.store.events.buses.get(&id).is_some() {
        return fail("ResourceAlreadyExistsException", format!("Event bus {name} already exists."));
    }
    let description = ask.input.text("Description").map(str::to_owned);
    let (region, tags, created) = (ask.region.to_owned(), tags(ask), ask.now());
    let mut answer = json!({"EventBusArn": id});
    if let Some(description) = &description {
        answer["Description"] = description.clone().into();
    }
    ask.store().events.buses.insert(EventBus { id, name, region, description, tags, created });
    Ok(answer)
}

fn shown(ask: &Ask, name: &str) -> Value {
    json!({"Name": name, "Arn": bus_arn(ask, name)})
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let given = ask.input.text("Name").unwrap_or("default");
    let name = given.rsplit("event-bus/").next().unwrap_or(given);
    let found = ask.state.store.events.buses.get(&bus_arn(ask, name));
    if found.is_none() && name != "default" {
        return Err(not_found(format!("Event bus {name} does not exist.")));
    }
    let mut answer = shown(ask, name);
    if let Some(found) = found {
        if let Some(description) = &found.description {
            answer["Description"] = description.clone().into();
        }
        answer["CreationTime"] = json!(found.created.0 as f64 / 1000.0);
    }
    Ok(answer)
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let prefix = ask.input.text("NamePrefix").unwrap_or_default();
    let rows = ask.rows(|store| &store.events.buses, &format!("region:{}", ask.region));
    let mut names: Vec<String> = rows.iter().map(|bus| bus.name.clone()).collect();
    names.push("default".into());
    names.retain(|name| name.starts_with(prefix));
    listed(ask, "EventBuses", names, Clone::clone, |name| shown(ask, name))
}

/// Deleting one that is not there is no error.
pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.required("Name")?.to_owned();
    if name == "default" {
        return invalid("Cannot delete event bus default.");
    }
    if ask.state.store.events.rules.count(&format!("bus:{}/{name}", ask.region)) > 0 {
        return invalid(format!("Cannot delete event bus {name} since it has rules."));
    }
    let id = bus_arn(ask, &name);
    ask.store().events.buses.remove(&id);
    Ok(json!({}))
}

fn change(ask: &mut Ask, work: &dyn Fn(&mut Tags)) -> Answer<Value> {
    bus(ask)?;
    let arn = ask.input.required("ResourceARN")?.to_owned();
    match EventTags.change(ask.store(), &arn, work) {
        true => Ok(json!({})),
        false => Err(missing(&arn)),
    }
}

fn missing(arn: &str) -> Box<crate::aws::errors::AwsError> {
    let name = arn.rsplit('/').next().unwrap_or_default();
    not_found(format!("Rule {name} does not exist on EventBus default."))
}

pub fn tag(ask: &mut Ask) -> Answer<Value> {
    let tags = tags(ask);
    change(ask, &|all| all.extend(tags.clone()))
}

pub fn untag(ask: &mut Ask) -> Answer<Value> {
    let keys: Vec<String> = ask.input.texts("TagKeys").into_iter().map(str::to_owned).collect();
    change(ask, &|all| all.retain(|key, _| !keys.contains(key)))
}

pub fn list_tags(ask: &mut Ask) -> Answer<Value> {
    let arn = ask.input.required("ResourceARN")?;
    let all = EventTags.list(ask.state.store, ask.region, ask.account);
    let Some((_, tags)) = all.into_iter().find(|(own, _)| own == arn) else {
        return if arn.ends_with("event-bus/default") { Ok(json!({"Tags": []})) } else { Err(missing(arn)) };
    };
    let shown: Vec<Value> = tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
    Ok(json!({"Tags": shown}))
}
