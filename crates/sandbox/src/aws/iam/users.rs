//! Users, their keys, and groups of them.

use serde_json::{Value, json};

use super::entity::*;
use super::model::{AccessKey, Grants, Group, User, name_key};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::aws::ids;
use crate::aws::principal::Identity;

const MAX_KEYS: usize = 2;
const MAX_GROUPS: usize = 10;

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = new_name(ask, "UserName", 64)?;
    let (path, tags, boundary) = (path(ask)?, new_tags(ask)?, boundary(ask)?);
    if ask.state.store.iam.users.first(&name_key(&name)).is_some() {
        return exists(format!("User with name {name} already exists."));
    }
    let user = User {
        unique_id: format!("AIDA{}", ids::upper(17)),
        arn: arn(ask, &format!("user{path}{name}")),
        name,
        path,
        grants: Grants { boundary, ..Grants::default() },
        groups: Vec::new(),
        tags,
        created: ask.now(),
        login_profile: None,
    };
    let answer = json!({"User": shown(&user, true)});
    ask.store().iam.users.insert(user);
    Ok(answer)
}

pub fn shown(user: &User, whole: bool) -> Value {
    let mut shown = json!({
        "Path": user.path,
        "UserName": user.name,
        "UserId": user.unique_id,
        "Arn": user.arn,
        "CreateDate": date(user.created),
    });
    if whole {
        shown["PermissionsBoundary"] = shown_boundary(&user.grants);
        shown["Tags"] = if user.tags.is_empty() { Value::Null } else { shown_tags(&user.tags) };
    }
    shown
}

/// The user that the input names, or the one who calls.
fn meant(ask: &Ask) -> Answer<String> {
    match (ask.input.text("UserName"), &ask.principal.identity) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, Identity::User(name)) => Ok(name.clone()),
        (None, Identity::Administrator(name)) => Ok(name.clone()),
        (None, _) => invalid("Must specify userName when calling with non-User credentials"),
    }
}

pub fn get_user(ask: &mut Ask) -> Answer<Value> {
    let name = meant(ask)?;
    if let (None, Identity::Administrator(_), None) =
        (ask.input.text("UserName"), &ask.principal.identity, ask.state.store.iam.users.get(&name))
    {
        let principal = ask.principal;
        return Ok(json!({"User": {
            "Path": "/", "UserName": name, "UserId": principal.user_id, "Arn": principal.arn, "CreateDate": "2020-01-01T00:00:00Z",
        }}));
    }
    Ok(json!({"User": shown(get::<User>(ask, &name)?, true)}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.iam.users, "");
    let rows: Vec<&User> = rows.into_iter().filter(|user| under_path(ask, &user.path)).collect();
    page(ask, "Users", rows, |user| user.name.clone(), |user| shown(user, false))
}

pub fn update(ask: &mut Ask) -> Answer<Value> {
    let old = find::<User>(ask)?.name.clone();
    let path = ask.input.text("NewPath").map(str::to_owned);
    let name = ask.input.text("NewUserName").map(str::to_owned);
    if let Some(name) = &name
        && name_key(name) != name_key(&old)
        && ask.state.store.iam.users.first(&name_key(name)).is_some()
    {
        return exists(format!("User with name {name} already exists."));
    }
    // The id of a row is its name: a renamed user is a new row.
    let Some(mut user) = ask.store().iam.users.remove(&old) else { return Err(no_such_entity(User::missing(&old))) };
    user.path = path.unwrap_or(user.path);
    user.name = name.unwrap_or(user.name);
    user.arn = arn(ask, &format!("user{}{}", user.path, user.name));
    let keys: Vec<String> = ask.state.store.iam.keys.find(&format!("user:{old}")).map(|key| key.id.clone()).collect();
    for key in keys {
        ask.store().iam.keys.update(&key, |key| key.user.clone_from(&user.name));
    }
    ask.store().iam.users.insert(user);
    Ok(json!({}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let user = find::<User>(ask)?;
    let name = user.name.clone();
    if !user.groups.is_empty() {
        return conflict("Cannot delete entity, must remove users from group first.");
    }
    if !user.grants.attached.is_empty() {
        return conflict("Cannot delete entity, must detach all policies first.");
    }
    if !user.grants.inline.is_empty() {
        return conflict("Cannot delete entity, must delete policies first.");
    }
    if user.login_profile.is_some() {
        return conflict("Cannot delete entity, must delete login profile first.");
    }
    if ask.state.store.iam.keys.first(&format!("user:{name}")).is_some() {
        return conflict("Cannot delete entity, must delete access keys first.");
    }
    ask.store().iam.users.remove(&name);
    Ok(json!({}))
}

pub fn create_key(ask: &mut Ask) -> Answer<Value> {
    let name = meant(ask)?;
    get::<User>(ask, &name)?;
    if ask.state.store.iam.keys.count(&format!("user:{name}")) >= MAX_KEYS {
        return limit(format!("Cannot exceed quota for AccessKeysPerUser: {MAX_KEYS}"));
    }
    let key = AccessKey {
        id: format!("AKIA{}", ids::upper(16)),
        secret: ids::secret(),
        user: name,
        active: true,
        created: ask.now(),
    };
    let mut shown = shown_key(&key);
    shown["SecretAccessKey"] = key.secret.clone().into();
    ask.store().iam.keys.insert(key);
    Ok(json!({"AccessKey": shown}))
}

fn shown_key(key: &AccessKey) -> Value {
    let status = if key.active { "Active" } else { "Inactive" };
    json!({"UserName": key.user, "AccessKeyId": key.id, "Status": status, "CreateDate": date(key.created)})
}

pub fn list_keys(ask: &mut Ask) -> Answer<Value> {
    let name = meant(ask)?;
    if ask.input.text("UserName").is_some() {
        get::<User>(ask, &name)?;
    }
    let keys = ask.rows(|store| &store.iam.keys, &format!("user:{name}"));
    page(ask, "AccessKeyMetadata", keys, |key| key.id.clone(), |key| shown_key(key))
}

/// The key that the input names, of the user that it means.
fn own_key(ask: &Ask) -> Answer<String> {
    let (user, id) = (meant(ask)?, ask.input.text("AccessKeyId").unwrap_or_default());
    match ask.state.store.iam.keys.get(id).filter(|key| key.user == user) {
        Some(_) => Ok(id.to_owned()),
        None => Err(no_such_entity(format!("The Access Key with id {id} cannot be found."))),
    }
}

pub fn update_key(ask: &mut Ask) -> Answer<Value> {
    let id = own_key(ask)?;
    let active = match ask.input.text("Status") {
        Some("Active") => true,
        Some("Inactive") => false,
        _ => {
            return invalid(
                "1 validation error detected: Value at 'status' failed to satisfy constraint: Member must satisfy enum value set: [Active, Inactive, Expired]",
            );
        }
    };
    ask.store().iam.keys.update(&id, |key| key.active = active);
    Ok(json!({}))
}

pub fn delete_key(ask: &mut Ask) -> Answer<Value> {
    let id = own_key(ask)?;
    ask.store().iam.keys.remove(&id);
    Ok(json!({}))
}

pub fn key_last_used(ask: &mut Ask) -> Answer<Value> {
    let id = ask.input.text("AccessKeyId").unwrap_or_default();
    let Some(key) = ask.state.store.iam.keys.get(id) else {
        return Err(no_such_entity(format!("The Access Key with id {id} cannot be found.")));
    };
    // AWS fills this in hours after a use.
    Ok(json!({"UserName": key.user, "AccessKeyLastUsed": {"Region": "N/A", "ServiceName": "N/A"}}))
}

pub fn create_group(ask: &mut Ask) -> Answer<Value> {
    let name = new_name(ask, "GroupName", 128)?;
    let path = path(ask)?;
    if ask.state.store.iam.groups.first(&name_key(&name)).is_some() {
        return exists(format!("Group with name {name} already exists."));
    }
    let group = Group {
        unique_id: format!("AGPA{}", ids::upper(17)),
        arn: arn(ask, &format!("group{path}{name}")),
        name,
        path,
        grants: Grants::default(),
        created: ask.now(),
    };
    let answer = json!({"Group": shown_group(&group)});
    ask.store().iam.groups.insert(group);
    Ok(answer)
}

pub fn shown_group(group: &Group) -> Value {
    json!({
        "Path": group.path,
        "GroupName": group.name,
        "GroupId": group.unique_id,
        "Arn": group.arn,
        "CreateDate": date(group.created),
    })
}

pub fn get_group(ask: &mut Ask) -> Answer<Value> {
    let group = find::<Group>(ask)?;
    let members: Vec<&User> = ask.state.store.iam.users.find(&format!("group:{}", group.name)).collect();
    let mut answer = page(ask, "Users", members, |user| user.name.clone(), |user| shown(user, false))?;
    answer["Group"] = shown_group(group);
    Ok(answer)
}

pub fn list_groups(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.iam.groups, "");
    let rows: Vec<&Group> = rows.into_iter().filter(|group| under_path(ask, &group.path)).collect();
    page(ask, "Groups", rows, |group| group.name.clone(), |group| shown_group(group))
}

pub fn groups_of_user(ask: &mut Ask) -> Answer<Value> {
    let names = &find::<User>(ask)?.groups;
    let rows: Vec<&Group> = names.iter().filter_map(|name| ask.state.store.iam.groups.get(name)).collect();
    page(ask, "Groups", rows, |group| group.name.clone(), |group| shown_group(group))
}

pub fn delete_group(ask: &mut Ask) -> Answer<Value> {
    let group = find::<Group>(ask)?;
    let name = group.name.clone();
    if !group.grants.attached.is_empty() {
        return conflict("Cannot delete entity, must detach all policies first.");
    }
    if !group.grants.inline.is_empty() {
        return conflict("Cannot delete entity, must delete policies first.");
    }
    if ask.state.store.iam.users.first(&format!("group:{name}")).is_some() {
        return conflict("Cannot delete entity, must remove users from group first.");
    }
    ask.store().iam.groups.remove(&name);
    Ok(json!({}))
}

pub fn add_to_group(ask: &mut Ask) -> Answer<Value> {
    let group = find::<Group>(ask)?.name.clone();
    let groups = &find::<User>(ask)?.groups;
    if groups.contains(&group) {
        return Ok(json!({}));
    }
    if groups.len() >= MAX_GROUPS {
        return limit(format!("Cannot exceed quota for GroupsPerUser: {MAX_GROUPS}"));
    }
    change::<User, _>(ask, |user| user.groups.push(group))?;
    Ok(json!({}))
}

pub fn remove_from_group(ask: &mut Ask) -> Answer<Value> {
    let group = find::<Group>(ask)?.name.clone();
    change::<User, _>(ask, |user| user.groups.retain(|one| *one != group))?;
    Ok(json!({}))
}

pub fn create_login(ask: &mut Ask) -> Answer<Value> {
    let user = find::<User>(ask)?;
    let (name, had, now) = (user.name.clone(), user.login_profile.is_some(), ask.now());
    if had {
        return exists(format!("Login Profile for user {name} already exists."));
    }
    if ask.input.text("Password").is_none_or(|password| password.len() < 8) {
        return fail("PasswordPolicyViolation", "Password should have a minimum length of 8");
    }
    let reset = ask.input.flag("PasswordResetRequired").unwrap_or(false);
    change::<User, _>(ask, |user| user.login_profile = Some((now, reset)))?;
    Ok(json!({"LoginProfile": {"UserName": name, "CreateDate": date(now), "PasswordResetRequired": reset}}))
}

pub fn get_login(ask: &mut Ask) -> Answer<Value> {
    let user = find::<User>(ask)?;
    let Some((created, reset)) = user.login_profile else { return Err(no_login(&user.name)) };
    Ok(json!({"LoginProfile": {"UserName": user.name, "CreateDate": date(created), "PasswordResetRequired": reset}}))
}

fn no_login(name: &str) -> Box<crate::aws::errors::AwsError> {
    no_such_entity(format!("Login Profile for User {name} cannot be found."))
}

pub fn delete_login(ask: &mut Ask) -> Answer<Value> {
    let name = find::<User>(ask)?.name.clone();
    match change::<User, _>(ask, |user| user.login_profile.take())? {
        Some(_) => Ok(json!({})),
        None => Err(no_login(&name)),
    }
}

/// Users of the sandbox have no second factors and no certificates.
pub fn no_mfa_devices(ask: &mut Ask) -> Answer<Value> {
    if ask.input.text("UserName").is_some() {
        find::<User>(ask)?;
    }
    Ok(json!({"MFADevices": [], "IsTruncated": false}))
}

pub fn no_signing_certificates(ask: &mut Ask) -> Answer<Value> {
    meant(ask)?;
    Ok(json!({"Certificates": [], "IsTruncated": false}))
}

pub fn no_ssh_keys(_: &mut Ask) -> Answer<Value> {
    Ok(json!({"SSHPublicKeys": [], "IsTruncated": false}))
}

pub fn no_service_credentials(_: &mut Ask) -> Answer<Value> {
    Ok(json!({"ServiceSpecificCredentials": []}))
}
