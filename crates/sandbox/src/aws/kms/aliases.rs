//! Names for keys.

use serde_json::{Value, json};

use super::keys::{self, page};
use super::{Alias, Found, find, missing, not_leaving, own};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};

fn name(ask: &Ask) -> Answer<String> {
    let name = ask.input.text("AliasName").ok_or_else(|| missing("aliasName"))?;
    if !name.starts_with("alias/") {
        return fail(
            "ValidationException",
            "Alias must start with the prefix \"alias/\". Please see https://docs.aws.amazon.com/kms/latest/developerguide/programming-aliases.html",
        );
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || "/_-".contains(c);
    if name.len() == "alias/".len() || name.len() > 256 || !name.chars().all(fine) {
        return fail("InvalidAliasNameException", format!("{name} contains invalid characters for an alias"));
    }
    if name.starts_with("alias/aws/") {
        return fail("NotAuthorizedException", "");
    }
    Ok(name.to_owned())
}

fn target(ask: &Ask) -> Answer<String> {
    let id = ask.input.text("TargetKeyId").ok_or_else(|| missing("targetKeyId"))?;
    if id.contains("alias/") {
        return fail("ValidationException", "Aliases must refer to keys. Not aliases");
    }
    let Found { key, by_aws } = find(ask, id)?;
    own(&key, by_aws)?;
    not_leaving(&key)?;
    Ok(key.id)
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let (name, key) = (name(ask)?, target(ask)?);
    let id = ask.arn("kms", &name);
    if ask.state.store.kms.aliases.get(&id).is_some() {
        return fail("AlreadyExistsException", format!("An alias with the name {id} already exists"));
    }
    let (region, now) = (ask.region.to_owned(), ask.now());
    ask.store().kms.aliases.insert(Alias { id, name, region, key, created: now, updated: now });
    Ok(json!({}))
}

/// The ARN of an alias that there is.
fn existing(ask: &Ask) -> Answer<String> {
    let arn = ask.arn("kms", &name(ask)?);
    match ask.state.store.kms.aliases.get(&arn) {
        Some(_) => Ok(arn),
        None => fail("NotFoundException", format!("Alias {arn} is not found.")),
    }
}

pub fn update(ask: &mut Ask) -> Answer<Value> {
    let (arn, key, now) = (existing(ask)?, target(ask)?, ask.now());
    ask.store().kms.aliases.update(&arn, |alias| {
        alias.key = key;
        alias.updated = now;
    });
    Ok(json!({}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let arn = existing(ask)?;
    ask.store().kms.aliases.remove(&arn);
    Ok(json!({}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let mut rows = keys::aliases(ask);
    if let Some(id) = ask.input.text("KeyId") {
        let key = find(ask, id)?.key.id;
        rows.retain(|alias| alias["TargetKeyId"] == key);
    }
    page(ask, "Aliases", rows, |alias| alias["AliasName"].as_str().unwrap_or_default().to_owned(), Clone::clone)
}
