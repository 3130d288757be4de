//! What roles, users, groups, policies, profiles and providers have in common: found by one member of the input, tagged,
//! given policies.

use serde_json::{Value, json};

use super::Tables;
use super::model::{Grants, Group, InstanceProfile, ManagedPolicy, OidcProvider, Role, User};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail, fail_with};
use crate::clock::SimTime;
use crate::table::{Object, Table};

const MAX_TAGS: usize = 50;

pub trait Entity: Object {
    /// The member of an input that names one.
    const MEMBER: &'static str;
    fn table(tables: &Tables) -> &Table<Self>;
    fn table_mut(tables: &mut Tables) -> &mut Table<Self>;
    /// What is said of one that is not there.
    fn missing(id: &str) -> String;
}

pub trait Tagged: Entity {
    fn tags(&self) -> &Tags;
    fn tags_mut(&mut self) -> &mut Tags;
}

pub trait Grantee: Entity {
    /// `Role`, as in `AttachRolePolicy` and `PoliciesPerRole`.
    const NOUN: &'static str;
    /// How many bytes its inline policies may have together.
    const MAX_INLINE_BYTES: usize;
    fn grants(&self) -> &Grants;
    fn grants_mut(&mut self) -> &mut Grants;
    fn path(&self) -> &str;
    fn unique_id(&self) -> &str;
}

macro_rules! entity {
    ($type:ty, $field:ident, $member:literal, |$id:ident| $missing:expr) => {
        impl Entity for $type {
            const MEMBER: &'static str = $member;

            fn table(tables: &Tables) -> &Table<Self> {
                &tables.$field
            }

            fn table_mut(tables: &mut Tables) -> &mut Table<Self> {
                &mut tables.$field
            }

            fn missing($id: &str) -> String {
                $missing
            }
        }
    };
}

macro_rules! tagged {
    ($($type:ty),+) => {
        $(impl Tagged for $type {
            fn tags(&self) -> &Tags {
                &self.tags
            }

            fn tags_mut(&mut self) -> &mut Tags {
                &mut self.tags
            }
        })+
    };
}

macro_rules! grantee {
    ($($type:ty, $noun:literal, $bytes:literal);+) => {
        $(impl Grantee for $type {
            const NOUN: &'static str = $noun;
            const MAX_INLINE_BYTES: usize = $bytes;

            fn grants(&self) -> &Grants {
                &self.grants
            }

            fn grants_mut(&mut self) -> &mut Grants {
                &mut self.grants
            }

            fn path(&self) -> &str {
                &self.path
            }

            fn unique_id(&self) -> &str {
                &self.unique_id
            }
        })+
    };
}

entity!(Role, roles, "RoleName", |id| format!("The role with name {id} cannot be found."));
entity!(User, users, "UserName", |id| format!("The user with name {id} cannot be found."));
entity!(Group, groups, "GroupName", |id| format!("The group with name {id} cannot be found."));
entity!(ManagedPolicy, policies, "PolicyArn", |id| format!("Policy {id} was not found."));
entity!(InstanceProfile, profiles, "InstanceProfileName", |id| format!("Instance Profile {id} cannot be found."));
entity!(OidcProvider, oidc, "OpenIDConnectProviderArn", |id| format!("OpenIDConnect Provider not found for arn {id}"));
tagged!(Role, User, ManagedPolicy, InstanceProfile, OidcProvider);
grantee!(Role, "Role", 10_240; User, "User", 2_048; Group, "Group", 5_120);

pub fn no_such_entity(message: impl Into<String>) -> Box<AwsError> {
    AwsError::new(404, "NoSuchEntity", message)
}

pub fn exists<T>(message: impl Into<String>) -> Answer<T> {
    fail_with(409, "EntityAlreadyExists", message)
}

pub fn conflict<T>(message: impl Into<String>) -> Answer<T> {
    fail_with(409, "DeleteConflict", message)
}

pub fn limit<T>(message: impl Into<String>) -> Answer<T> {
    fail_with(409, "LimitExceeded", message)
}

pub fn invalid<T>(message: impl Into<String>) -> Answer<T> {
    fail("ValidationError", message)
}

/// The id that the input gives.
pub fn named<E: Entity>(ask: &Ask) -> Answer<String> {
    match ask.input.text(E::MEMBER) {
        Some(id) if !id.is_empty() => Ok(id.to_owned()),
        _ => {
            let member = lower_first(E::MEMBER);
            invalid(format!(
                "1 validation error detected: Value at '{member}' failed to satisfy constraint: Member must not be null"
            ))
        }
    }
}

/// The entity that the input names.
pub fn find<'t, E: Entity>(ask: &'t Ask<'_, '_>) -> Answer<&'t E> {
    let id = named::<E>(ask)?;
    get(ask, &id)
}

pub fn get<'t, E: Entity>(ask: &'t Ask<'_, '_>, id: &str) -> Answer<&'t E> {
    E::table(&ask.state.store.iam).get(id).ok_or_else(|| no_such_entity(E::missing(id)))
}

/// Changes the entity that the input names.
pub fn change<E: Entity, R>(ask: &mut Ask, work: impl FnOnce(&mut E) -> R) -> Answer<R> {
    let id = named::<E>(ask)?;
    E::table_mut(&mut ask.state.store.iam).update(&id, work).ok_or_else(|| no_such_entity(E::missing(&id)))
}

pub fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The name of something new, in the letters that IAM takes.
pub fn new_name(ask: &Ask, member: &str, max: usize) -> Answer<String> {
    let shown = lower_first(member);
    let name = ask.input.text(member).unwrap_or_default();
    let fine = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    if name.is_empty() || !name.chars().all(fine) {
        return invalid(format!(
            "The specified value for {shown} is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-"
        ));
    }
    if name.len() > max {
        return invalid(format!(
            "1 validation error detected: Value '{name}' at '{shown}' failed to satisfy constraint: Member must have length less than or equal to {max}"
        ));
    }
    Ok(name.to_owned())
}

/// `/`, or what was given, which must begin and end with one.
pub fn path(ask: &Ask) -> Answer<String> {
    let path = ask.input.text("Path").unwrap_or("/");
    let printable = path.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    if !path.starts_with('/') || !path.ends_with('/') || !printable || path.len() > 512 {
        return invalid(
            "The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.",
        );
    }
    Ok(path.to_owned())
}

pub fn arn(ask: &Ask, resource: &str) -> String {
    format!("arn:aws:iam::{}:{resource}", ask.account)
}

pub fn boundary(ask: &Ask) -> Answer<Option<String>> {
    let Some(arn) = ask.input.text("PermissionsBoundary") else { return Ok(None) };
    super::policies::must_exist(ask, arn)?;
    Ok(Some(arn.to_owned()))
}

pub fn shown_boundary(grants: &Grants) -> Value {
    let shown = |arn: &String| json!({"PermissionsBoundaryType": "Policy", "PermissionsBoundaryArn": arn});
    grants.boundary.as_ref().map(shown).unwrap_or(Value::Null)
}

pub fn shown_tags(tags: &Tags) -> Value {
    tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect()
}

/// The tags of something new.
pub fn new_tags(ask: &Ask) -> Answer<Tags> {
    let tags = ask.input.pairs("Tags", "Key", "Value");
    check_tags(&tags)?;
    Ok(tags)
}

fn check_tags(tags: &Tags) -> Answer<()> {
    if tags.keys().any(|key| key.to_lowercase().starts_with("aws:")) {
        return fail(
            "InvalidInput",
            "User-defined tag keys can't start with \"aws:\" because that prefix is reserved for system tags.",
        );
    }
    if tags.len() > MAX_TAGS {
        return limit(format!("Cannot exceed quota for TagsPerResource: {MAX_TAGS}"));
    }
    match tags.iter().any(|(key, value)| key.is_empty() || key.len() > 128 || value.len() > 256) {
        true => invalid("1 validation error detected: a tag's key or value is longer than allowed"),
        false => Ok(()),
    }
}

pub fn tag<E: Tagged>(ask: &mut Ask) -> Answer<Value> {
    let mut tags = find::<E>(ask)?.tags().clone();
    tags.extend(ask.input.pairs("Tags", "Key", "Value"));
    check_tags(&tags)?;
    change::<E, _>(ask, |entity| *entity.tags_mut() = tags)?;
    Ok(json!({}))
}

pub fn untag<E: Tagged>(ask: &mut Ask) -> Answer<Value> {
    let keys: Vec<String> = ask.input.texts("TagKeys").into_iter().map(str::to_owned).collect();
    change::<E, _>(ask, |entity| entity.tags_mut().retain(|key, _| !keys.contains(key)))?;
    Ok(json!({}))
}

pub fn list_tags<E: Tagged>(ask: &mut Ask) -> Answer<Value> {
    let tags: Vec<(String, String)> = find::<E>(ask)?.tags().clone().into_iter().collect();
    page(ask, "Tags", tags, |(key, _)| key.clone(), |(key, value)| json!({"Key": key, "Value": value}))
}

/// A slice of a list in the order of its keys. The marker is the key of the last that was shown.
pub fn page<T>(
    ask: &Ask,
    name: &str,
    mut rows: Vec<T>,
    key: impl Fn(&T) -> String,
    show: impl Fn(&T) -> Value,
) -> Answer<Value> {
    let max = match ask.input.int("MaxItems") {
        None => 100,
        Some(max @ 1..=1000) => max as usize,
        Some(max) => {
            return invalid(format!(
                "1 validation error detected: Value '{max}' at 'maxItems' failed to satisfy constraint: Member must have value between 1 and 1000"
            ));
        }
    };
    rows.sort_by_cached_key(|row| key(row));
    if let Some(marker) = ask.input.text("Marker") {
        let Some(after) = super::super::paging::unmarked(marker) else { return invalid("Invalid Marker.") };
        rows.retain(|row| key(row) > after);
    }
    let more = rows.len() > max;
    rows.truncate(max);
    let mut answer = json!({"IsTruncated": more, name: rows.iter().map(show).collect::<Vec<_>>()});
    if let (true, Some(last)) = (more, rows.last()) {
        answer["Marker"] = super::super::paging::marked(&key(last)).into();
    }
    Ok(answer)
}

pub fn under_path(ask: &Ask, path: &str) -> bool {
    ask.input.text("PathPrefix").is_none_or(|prefix| path.starts_with(prefix))
}

pub fn date(time: SimTime) -> Value {
    time.rfc3339().into()
}
