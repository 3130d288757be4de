//! Keys: made, described, rotated, disabled, and deleted after days.

use serde_json::{Value, json};

use super::{Alias, Found, Key, asked, change, check_policy, default_policy, find, missing, not_leaving, own};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::{ids, paging};
use crate::clock::SimTime;

const DAY_MS: i64 = 24 * 3_600_000;
const MAX_DESCRIPTION: usize = 8192;

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let spec = ask.input.text("KeySpec").or(ask.input.text("CustomerMasterKeySpec")).unwrap_or("SYMMETRIC_DEFAULT");
    let usage = ask.input.text("KeyUsage").unwrap_or("ENCRYPT_DECRYPT");
    if spec != "SYMMETRIC_DEFAULT" || usage != "ENCRYPT_DECRYPT" {
        return fail("UnsupportedOperationException", format!("The sandbox has no keys of spec {spec} for {usage}"));
    }
    if ask.input.text("Origin").is_some_and(|origin| origin != "AWS_KMS") {
        return fail("UnsupportedOperationException", "The sandbox has no keys of that origin");
    }
    let policy = check_policy(ask)?.unwrap_or_else(|| default_policy(ask.account));
    let tags = ask.input.pairs("Tags", "TagKey", "TagValue");
    check_tags(&tags)?;
    let multi_region = ask.input.flag("MultiRegion").unwrap_or(false);
    let id = match multi_region {
        true => format!("mrk-{}", ids::hex(32)),
        false => uuid::Uuid::new_v4().to_string(),
    };
    let key = Key {
        arn: ask.arn("kms", &format!("key/{id}")),
        id,
        region: ask.region.to_owned(),
        description: description(ask)?,
        policy,
        enabled: true,
        multi_region,
        rotation_days: None,
        created: ask.now(),
        deletion: None,
        material: super::hex(&ids::random::<32>()),
        tags,
    };
    let shown = shown(ask, &key, false);
    ask.store().kms.keys.insert(key);
    Ok(json!({"KeyMetadata": shown}))
}

fn description(ask: &Ask) -> Answer<String> {
    let text = ask.input.text("Description").unwrap_or_default();
    match text.len() > MAX_DESCRIPTION {
        true => fail(
            "ValidationException",
            "1 validation error detected: Value at 'description' failed to satisfy constraint: Member must have length less than or equal to 8192",
        ),
        false => Ok(text.to_owned()),
    }
}

/// Seconds since 1970, as JSON services write times.
pub fn seconds(time: SimTime) -> Value {
    json!(time.0 as f64 / 1000.0)
}

fn shown(ask: &Ask, key: &Key, by_aws: bool) -> Value {
    let mut shown = json!({
        "AWSAccountId": ask.account,
        "KeyId": key.id,
        "Arn": key.arn,
        "CreationDate": seconds(key.created),
        "Enabled": key.state() == "Enabled",
        "Description": key.description,
        "KeyUsage": "ENCRYPT_DECRYPT",
        "KeyState": key.state(),
        "Origin": "AWS_KMS",
        "KeyManager": if by_aws { "AWS" } else { "CUSTOMER" },
        "CustomerMasterKeySpec": "SYMMETRIC_DEFAULT",
        "KeySpec": "SYMMETRIC_DEFAULT",
        "EncryptionAlgorithms": ["SYMMETRIC_DEFAULT"],
        "MultiRegion": key.multi_region,
    });
    if let Some((at, _)) = key.deletion {
        shown["DeletionDate"] = seconds(at);
    }
    if key.multi_region {
        shown["MultiRegionConfiguration"] = json!({
            "MultiRegionKeyType": "PRIMARY",
            "PrimaryKey": {"Arn": key.arn, "Region": key.region},
            "ReplicaKeys": [],
        });
    }
    shown
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let Found { key, by_aws } = asked(ask)?;
    Ok(json!({"KeyMetadata": shown(ask, &key, by_aws)}))
}

/// `Limit` and `Marker`, as KMS has them.
pub fn page<T>(
    ask: &Ask,
    name: &str,
    rows: Vec<T>,
    key: fn(&T) -> String,
    show: impl Fn(&T) -> Value,
) -> Answer<Value> {
    let max = match ask.input.int("Limit").unwrap_or(100) {
        max @ 1..=1000 => max as usize,
        _ => {
            return fail(
                "ValidationException",
                "1 validation error detected: Value at 'limit' failed to satisfy constraint: Member must have value between 1 and 1000",
            );
        }
    };
    let bad = || AwsError::new(400, "InvalidMarkerException", "The marker is not valid.");
    let (rows, next) = paging::slice(rows, key, ask.input.text("Marker"), max, bad)?;
    let mut answer = json!({name: rows.iter().map(show).collect::<Vec<_>>(), "Truncated": next.is_some()});
    if let Some(next) = next {
        answer["NextMarker"] = next.into();
    }
    Ok(answer)
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.kms.keys, &format!("region:{}", ask.region));
    page(ask, "Keys", rows, |key| key.id.clone(), |key| json!({"KeyId": key.id, "KeyArn": key.arn}))
}

fn policy_name(ask: &Ask) -> Answer<()> {
    match ask.input.text("PolicyName") {
        None | Some("default") => Ok(()),
        Some(_) => fail("NotFoundException", "No such policy exists"),
    }
}

pub fn get_policy(ask: &mut Ask) -> Answer<Value> {
    policy_name(ask)?;
    Ok(json!({"Policy": asked(ask)?.key.policy, "PolicyName": "default"}))
}

pub fn put_policy(ask: &mut Ask) -> Answer<Value> {
    policy_name(ask)?;
    let Some(policy) = check_policy(ask)? else { return Err(missing("policy")) };
    change(ask, |key| key.policy = policy)?;
    Ok(json!({}))
}

pub fn list_policies(ask: &mut Ask) -> Answer<Value> {
    asked(ask)?;
    Ok(json!({"PolicyNames": ["default"], "Truncated": false}))
}

pub fn rotation_status(ask: &mut Ask) -> Answer<Value> {
    let key = asked(ask)?.key;
    let mut answer = json!({"KeyId": key.arn, "KeyRotationEnabled": key.rotation_days.is_some()});
    if let Some(days) = key.rotation_days {
        answer["RotationPeriodInDays"] = days.into();
        let rotations = (ask.now().0 - key.created.0) / (days * DAY_MS) + 1;
        answer["NextRotationDate"] = seconds(key.created.plus_ms(rotations * days * DAY_MS));
    }
    Ok(answer)
}

pub fn enable_rotation(ask: &mut Ask) -> Answer<Value> {
    not_leaving(&asked(ask)?.key)?;
    let days = ask.input.int("RotationPeriodInDays").unwrap_or(365);
    if !(90..=2560).contains(&days) {
        return fail(
            "ValidationException",
            "1 validation error detected: Value at 'rotationPeriodInDays' failed to satisfy constraint: Member must have value between 90 and 2560",
        );
    }
    change(ask, |key| key.rotation_days = Some(days))?;
    Ok(json!({}))
}

pub fn disable_rotation(ask: &mut Ask) -> Answer<Value> {
    not_leaving(&asked(ask)?.key)?;
    change(ask, |key| key.rotation_days = None)?;
    Ok(json!({}))
}

pub fn update_description(ask: &mut Ask) -> Answer<Value> {
    not_leaving(&asked(ask)?.key)?;
    let text = description(ask)?;
    change(ask, |key| key.description = text)?;
    Ok(json!({}))
}

pub fn enable(ask: &mut Ask) -> Answer<Value> {
    not_leaving(&asked(ask)?.key)?;
    change(ask, |key| key.enabled = true)?;
    Ok(json!({}))
}

pub fn disable(ask: &mut Ask) -> Answer<Value> {
    not_leaving(&asked(ask)?.key)?;
    change(ask, |key| key.enabled = false)?;
    Ok(json!({}))
}

/// Days of the simulated clock.
pub fn schedule_deletion(ask: &mut Ask) -> Answer<Value> {
    let days = ask.input.int("PendingWindowInDays").unwrap_or(30);
    if !(7..=30).contains(&days) {
        return fail(
            "ValidationException",
            "1 validation error detected: Value at 'pendingWindowInDays' failed to satisfy constraint: Member must have value between 7 and 30",
        );
    }
    let Found { key, by_aws } = asked(ask)?;
    own(&key, by_aws)?;
    not_leaving(&key)?;
    let at = ask.now().plus_ms(days * DAY_MS);
    change(ask, |key| key.deletion = Some((at, days)))?;
    Ok(json!({
        "KeyId": key.arn,
        "DeletionDate": seconds(at),
        "KeyState": "PendingDeletion",
        "PendingWindowInDays": days,
    }))
}

pub fn cancel_deletion(ask: &mut Ask) -> Answer<Value> {
    let key = asked(ask)?.key;
    if key.deletion.is_none() {
        return fail("KMSInvalidStateException", format!("{} is not pending deletion.", key.arn));
    }
    change(ask, |key| {
        key.deletion = None;
        key.enabled = false;
    })?;
    Ok(json!({"KeyId": key.arn}))
}

fn check_tags(tags: &Tags) -> Answer<()> {
    if tags.keys().any(|key| key.is_empty() || key.len() > 128 || key.starts_with("aws:")) {
        return fail("TagException", "Tag keys must have 1 to 128 characters, and not begin with aws:");
    }
    match tags.len() > 50 {
        true => fail("LimitExceededException", "Too many tags"),
        false => Ok(()),
    }
}

pub fn tag(ask: &mut Ask) -> Answer<Value> {
    let key = asked(ask)?.key;
    not_leaving(&key)?;
    let mut tags = key.tags;
    tags.extend(ask.input.pairs("Tags", "TagKey", "TagValue"));
    check_tags(&tags)?;
    change(ask, |key| key.tags = tags)?;
    Ok(json!({}))
}

pub fn untag(ask: &mut Ask) -> Answer<Value> {
    not_leaving(&asked(ask)?.key)?;
    let keys: Vec<String> = ask.input.texts("TagKeys").into_iter().map(str::to_owned).collect();
    change(ask, |key| key.tags.retain(|name, _| !keys.contains(name)))?;
    Ok(json!({}))
}

pub fn list_tags(ask: &mut Ask) -> Answer<Value> {
    let tags: Vec<(String, String)> = asked(ask)?.key.tags.into_iter().collect();
    page(ask, "Tags", tags, |(key, _)| key.clone(), |(key, value)| json!({"TagKey": key, "TagValue": value}))
}

/// The aliases of a region, those of AWS among them.
pub fn aliases(ask: &Ask) -> Vec<Value> {
    let rows = ask.rows(|store| &store.kms.aliases, &format!("region:{}", ask.region));
    let shown = |alias: &Alias| {
        json!({
            "AliasName": alias.name,
            "AliasArn": alias.id,
            "TargetKeyId": alias.key,
            "CreationDate": seconds(alias.created),
            "LastUpdatedDate": seconds(alias.updated),
        })
    };
    // An alias ends with its key.
    let live = rows.into_iter().filter(|alias| ask.state.store.kms.keys.get(&alias.key).is_some());
    let mut all: Vec<Value> = live.map(shown).collect();
    for name in super::AWS_ALIASES {
        if let Ok(found) = find(ask, name) {
            all.push(json!({"AliasName": name, "AliasArn": ask.arn("kms", name), "TargetKeyId": found.key.id}));
        }
    }
    all
}
