//! Instance profiles: what hands a role to an EC2 instance.

use serde_json::{Value, json};

use super::entity::*;
use super::model::{InstanceProfile, Role, name_key};
use super::roles;
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;
use crate::aws::ids;

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = new_name(ask, "InstanceProfileName", 128)?;
    let (path, tags) = (path(ask)?, new_tags(ask)?);
    if ask.state.store.iam.profiles.first(&name_key(&name)).is_some() {
        return exists(format!("Instance Profile {name} already exists."));
    }
    let profile = InstanceProfile {
        unique_id: format!("AIPA{}", ids::upper(17)),
        arn: arn(ask, &format!("instance-profile{path}{name}")),
        name,
        path,
        role: None,
        tags,
        created: ask.now(),
    };
    let answer = json!({"InstanceProfile": shown(ask, &profile)});
    ask.store().iam.profiles.insert(profile);
    Ok(answer)
}

pub fn shown(ask: &Ask, profile: &InstanceProfile) -> Value {
    let role = profile.role.as_ref().and_then(|name| ask.state.store.iam.roles.get(name));
    json!({
        "Path": profile.path,
        "InstanceProfileName": profile.name,
        "InstanceProfileId": profile.unique_id,
        "Arn": profile.arn,
        "CreateDate": date(profile.created),
        "Roles": role.map(|role| roles::shown(role, false)).into_iter().collect::<Vec<_>>(),
        "Tags": shown_tags(&profile.tags),
    })
}

pub fn get_profile(ask: &mut Ask) -> Answer<Value> {
    Ok(json!({"InstanceProfile": shown(ask, find::<InstanceProfile>(ask)?)}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.iam.profiles, "");
    let rows: Vec<&InstanceProfile> = rows.into_iter().filter(|profile| under_path(ask, &profile.path)).collect();
    page(ask, "InstanceProfiles", rows, |profile| profile.name.clone(), |profile| shown(ask, profile))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let profile = find::<InstanceProfile>(ask)?;
    if profile.role.is_some() {
        return conflict("Cannot delete entity, must remove roles from instance profile first.");
    }
    let name = profile.name.clone();
    ask.store().iam.profiles.remove(&name);
    Ok(json!({}))
}

pub fn add_role(ask: &mut Ask) -> Answer<Value> {
    let role = find::<Role>(ask)?;
    let (name, arn) = (role.name.clone(), role.arn.clone());
    if find::<InstanceProfile>(ask)?.role.is_some() {
        return limit("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1");
    }
    crate::aws::authenticate::pass_role(ask, &arn, "ec2.amazonaws.com")?;
    change::<InstanceProfile, _>(ask, |profile| profile.role = Some(name))?;
    Ok(json!({}))
}

pub fn remove_role(ask: &mut Ask) -> Answer<Value> {
    let role = named::<Role>(ask)?;
    if find::<InstanceProfile>(ask)?.role.as_ref() != Some(&role) {
        return Err(no_such_entity(Role::missing(&role)));
    }
    change::<InstanceProfile, _>(ask, |profile| profile.role = None)?;
    Ok(json!({}))
}
