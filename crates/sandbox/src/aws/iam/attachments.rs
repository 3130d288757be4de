//! Policies of roles, users and groups: attached, inline, and as boundaries.

use serde_json::{Value, json};

use super::document::{Attached, check};
use super::entity::*;
use super::model::Role;
use super::{encoded, managed, service_linked};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;

const MAX_ATTACHED: usize = 10;

/// Service-linked roles are the service's to change.
fn changeable<E: Grantee>(ask: &Ask) -> Answer<()> {
    let entity = find::<E>(ask)?;
    match entity.path().starts_with("/aws-service-role/") {
        true => service_linked::unmodifiable(entity.id()),
        false => Ok(()),
    }
}

pub fn attach<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    changeable::<E>(ask)?;
    let arn = policy_arn(ask)?;
    super::policies::must_exist(ask, &arn)?;
    if managed::get(&arn).is_some_and(|policy| policy.path == "/aws-service-role/") {
        return crate::aws::errors::fail(
            "PolicyNotAttachable",
            format!("Cannot attach a Service Role Policy to a Customer {}.", E::NOUN),
        );
    }
    let attached = &find::<E>(ask)?.grants().attached;
    if attached.contains(&arn) {
        return Ok(json!({}));
    }
    if attached.len() >= MAX_ATTACHED {
        return limit(format!("Cannot exceed quota for PoliciesPer{}: {MAX_ATTACHED}", E::NOUN));
    }
    change::<E, _>(ask, |entity| entity.grants_mut().attached.push(arn))?;
    Ok(json!({}))
}

fn policy_arn(ask: &Ask) -> Answer<String> {
    match ask.input.text("PolicyArn") {
        Some(arn) if arn.starts_with("arn:") && arn.len() >= 20 => Ok(arn.to_owned()),
        arn => invalid(format!("ARN {} is not valid.", arn.unwrap_or_default())),
    }
}

pub fn detach<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    changeable::<E>(ask)?;
    let arn = policy_arn(ask)?;
    if !find::<E>(ask)?.grants().attached.contains(&arn) {
        return Err(no_such_entity(format!("Policy {arn} was not found.")));
    }
    change::<E, _>(ask, |entity| entity.grants_mut().attached.retain(|one| *one != arn))?;
    Ok(json!({}))
}

pub fn list_attached<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    let id = named::<E>(ask)?;
    // A list that is behind may not show the entity yet; whether there is one is always known.
    get::<E>(ask, &id)?;
    let rows = E::table(&ask.state.store.iam).behind(&super::model::name_key(&id), ask.effects().lag);
    let attached: Vec<&String> =
        rows.first().map(|entity| entity.grants().attached.iter().collect()).unwrap_or_default();
    let shown = |arn: &&String| {
        let name = arn.rsplit('/').next();
        json!({"PolicyName": name, "PolicyArn": arn})
    };
    let in_path =
        |arn: &&String| ask.input.text("PathPrefix").is_none_or(|prefix| arn.contains(&format!(":policy{prefix}")));
    let attached = attached.into_iter().filter(in_path).collect();
    page(ask, "AttachedPolicies", attached, |arn| (*arn).clone(), shown)
}

pub fn put_inline<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    changeable::<E>(ask)?;
    let name = new_name(ask, "PolicyName", 128)?;
    let document = ask.input.text("PolicyDocument").unwrap_or_default().to_owned();
    check(&document, Attached::Identity)?;
    let entity = find::<E>(ask)?;
    let others = entity.grants().inline.iter().filter(|(other, _)| **other != name).map(|(_, text)| text.as_str());
    let size = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
    if others.map(size).sum::<usize>() + size(&document) > E::MAX_INLINE_BYTES {
        let (max, noun, id) = (E::MAX_INLINE_BYTES, E::NOUN.to_lowercase(), entity.id());
        return limit(format!("Maximum policy size of {max} bytes exceeded for {noun} {id}"));
    }
    change::<E, _>(ask, |entity| entity.grants_mut().inline.insert(name, document))?;
    Ok(json!({}))
}

fn no_inline<E: Grantee>(name: &str) -> Box<crate::aws::errors::AwsError> {
    no_such_entity(format!("The {} policy with name {name} cannot be found.", E::NOUN.to_lowercase()))
}

pub fn get_inline<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    let entity = find::<E>(ask)?;
    let name = ask.input.text("PolicyName").unwrap_or_default();
    let document = entity.grants().inline.get(name).ok_or_else(|| no_inline::<E>(name))?;
    Ok(json!({E::MEMBER: entity.id(), "PolicyName": name, "PolicyDocument": encoded(document)}))
}

pub fn delete_inline<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    changeable::<E>(ask)?;
    let name = ask.input.text("PolicyName").unwrap_or_default().to_owned();
    if !find::<E>(ask)?.grants().inline.contains_key(&name) {
        return Err(no_inline::<E>(&name));
    }
    change::<E, _>(ask, |entity| entity.grants_mut().inline.remove(&name))?;
    Ok(json!({}))
}

pub fn list_inline<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    let names: Vec<String> = find::<E>(ask)?.grants().inline.keys().cloned().collect();
    page(ask, "PolicyNames", names, Clone::clone, |name| name.clone().into())
}

pub fn put_boundary<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    changeable::<E>(ask)?;
    let boundary = boundary(ask)?;
    change::<E, _>(ask, |entity| entity.grants_mut().boundary = boundary)?;
    Ok(json!({}))
}

pub fn delete_boundary<E: Grantee>(ask: &mut Ask) -> Answer<Value> {
    changeable::<E>(ask)?;
    let had = change::<E, _>(ask, |entity| entity.grants_mut().boundary.take())?;
    match had {
        Some(_) => Ok(json!({})),
        None => {
            let (noun, id) = (E::NOUN.to_lowercase(), named::<E>(ask)?);
            Err(no_such_entity(format!("The permissions boundary of {noun} {id} cannot be found.")))
        }
    }
}

pub fn list_instance_profiles(ask: &mut Ask) -> Answer<Value> {
    let role = find::<Role>(ask)?.name.clone();
    let profiles = ask.rows(|store| &store.iam.profiles, &format!("role:{role}"));
    page(
        ask,
        "InstanceProfiles",
        profiles,
        |profile| profile.name.clone(),
        |profile| super::profiles::shown(ask, profile),
    )
}
