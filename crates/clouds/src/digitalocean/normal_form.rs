//! Normal forms: desired and observed properties are written the same way, so that order, case and what DigitalOcean or
//! Berth add by themselves is never taken for a difference.

use super::wire::{Firewall, MaintenancePolicy, Taint};
use crate::props::{text_map, texts, texts_of};
use berth_engine::unit::Props;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Marks the pool that a cluster was made with; names can change, and an import finds pools of any name.
pub const DEFAULT_POOL_TAG: &str = "berth:default-node-pool";
/// The same mark of DigitalOcean's Terraform provider.
pub const TERRAFORM_DEFAULT_POOL_TAG: &str = "terraform:default-node-pool";

/// What was made with a token carries it in a tag that begins with this. DigitalOcean's Terraform provider leaves out tags of the
/// prefix `terraform:`, so that an object of Berth's can be imported there and its plan is empty.
const TOKEN_TAG: &str = "terraform:berth-token:";

/// Berth's own tags and labels stand in properties of their own, which are sent but not compared: an imported object does
/// not have them, and that is no drift.
pub const OWN_TAGS: &str = "own_tags";
pub const OWN_LABELS: &str = "own_labels";
/// Tags of a pool that its cluster has too: whether they are the pool's own cannot be seen, so they are sent and not compared.
pub const INHERITED_TAGS: &str = "inherited_tags";

/// Longest tag.
const MAX_TAG: usize = 255;

const OWN_KEYS: [&str; 6] =
    ["resource", "resource-name", "resource-kind", "organization", "environment", "resource-id"];

/// An id of DigitalOcean's, as opposed to a name.
pub fn is_id(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}

/// Tags that DigitalOcean puts on by itself, and puts back when they are left out.
pub fn is_cloud_tag(tag: &str) -> bool {
    tag == "k8s" || tag.starts_with("k8s:")
}

/// Tags that stand for something else than a user's wish.
fn is_foreign_tag(tag: &str) -> bool {
    is_cloud_tag(tag) || tag.starts_with("terraform:") || tag == DEFAULT_POOL_TAG
}

/// Marks what a create makes, so that it is found exactly when the answer was lost.
pub fn token_tag(token: &str) -> String {
    format!("{TOKEN_TAG}{token}")
}

/// Ignores case: DigitalOcean keeps the spelling of a tag's first use.
pub fn has_tag(tags: &[String], wanted: &str) -> bool {
    tags.iter().any(|tag| tag.eq_ignore_ascii_case(wanted))
}

/// Whether it was made by a version that sends tokens.
pub fn has_token(tags: &[String]) -> bool {
    tags.iter().any(|tag| tag.starts_with(TOKEN_TAG))
}

/// All tags of a new object.
pub fn tags_to_create(desired: &Props, token: &str) -> Vec<String> {
    let mut tags = tags_to_send(desired, &[]);
    tags.push(token_tag(token));
    tags
}

/// A pool shows its cluster's tags beside its own.
pub fn without_inherited(tags: &[String], cluster: &[String]) -> Vec<String> {
    tags.iter().filter(|tag| !cluster.iter().any(|other| other.eq_ignore_ascii_case(tag))).cloned().collect()
}

/// What the user's tags are: without DigitalOcean's, without Berth's, sorted.
pub fn observed_tags(tags: &[String]) -> Value {
    let pairs = tags.iter().filter_map(|tag| tag.split_once(':'));
    let prefix = own_prefix(|key| pairs.clone().any(|(k, _)| k == key), pairs.clone().map(|(k, _)| k));
    let is_own = |tag: &str| {
        prefix.as_deref().is_some_and(|prefix| tag.split_once(':').is_some_and(|(key, _)| is_own_key(prefix, key)))
    };
    sorted(tags.iter().filter(|tag| !is_foreign_tag(tag) && !is_own(tag)))
}

/// What the user's labels are: without Berth's.
pub fn observed_labels(labels: &BTreeMap<String, String>) -> Value {
    let prefix = own_prefix(|key| labels.contains_key(key), labels.keys().map(String::as_str));
    let kept = labels.iter().filter(|(key, _)| prefix.as_deref().is_none_or(|prefix| !is_own_key(prefix, key)));
    Value::Object(kept.map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect())
}

/// The prefix is a setting, so it is read off what is there: Berth always writes these three together.
fn own_prefix<'a>(has: impl Fn(&str) -> bool, keys: impl Iterator<Item = &'a str>) -> Option<String> {
    keys.filter_map(|key| key.strip_suffix("-resource-kind"))
        .find(|prefix| has(&format!("{prefix}-resource")) && has(&format!("{prefix}-resource-name")))
        .map(str::to_owned)
}

fn is_own_key(prefix: &str, key: &str) -> bool {
    key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')).is_some_and(|rest| OWN_KEYS.contains(&rest))
}

/// Splits tags into the user's and Berth's. A user's tag with a key of Berth's takes its place.
pub fn desired_tags(own: &BTreeMap<String, String>, given: &[String]) -> (Value, Value) {
    let mut own = own.clone();
    let mut rest = Vec::new();
    for tag in given {
        match tag.split_once(':') {
            Some((key, value)) if own.contains_key(key) => {
                own.insert(key.to_owned(), value.to_owned());
            }
            _ => rest.push(tag),
        }
    }
    let own: Vec<String> = own.iter().map(|(key, value)| tag(key, value)).collect();
    (sorted(rest.into_iter()), sorted(own.iter()))
}

/// Splits labels into the user's and Berth's. A user's label with a key of Berth's takes its place.
pub fn desired_labels(own: &BTreeMap<String, String>, given: &BTreeMap<String, String>) -> (Value, Value) {
    let (taken, rest): (Vec<_>, Vec<_>) = given.iter().partition(|(key, _)| own.contains_key(*key));
    let mut own = own.clone();
    own.extend(taken.into_iter().map(|(key, value)| (key.clone(), value.clone())));
    (json!(rest.into_iter().collect::<BTreeMap<_, _>>()), json!(own))
}

/// DigitalOcean's tags have letters, digits and `: _ -`; labels may have dots too.
fn tag(key: &str, value: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || ":_-".contains(c) { c } else { '-' };
    format!("{key}:{value}").chars().map(clean).take(MAX_TAG).collect()
}

/// All tags to send: the user's, Berth's, and those of others that are on it already.
pub fn tags_to_send(desired: &Props, present: &[String]) -> Vec<String> {
    let kept = present.iter().filter(|tag| is_foreign_tag(tag) && !is_cloud_tag(tag)).cloned();
    let names = ["tags", OWN_TAGS, INHERITED_TAGS];
    let all: BTreeSet<String> = names.iter().flat_map(|name| texts(desired, name)).chain(kept).collect();
    all.into_iter().collect()
}

/// All labels to send.
pub fn labels_to_send(desired: &Props) -> BTreeMap<String, String> {
    let mut labels = text_map(desired, OWN_LABELS);
    labels.extend(text_map(desired, "labels"));
    labels
}

/// Ignores case: DigitalOcean keeps the spelling of a tag's first use.
pub fn same_tags(desired: &Value, observed: &Value) -> bool {
    let lower =
        |value: &Value| -> BTreeSet<String> { texts_of(value).iter().map(|tag| tag.to_ascii_lowercase()).collect() };
    lower(desired) == lower(observed)
}

pub fn taints<'a>(taints: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Value {
    let sorted: BTreeSet<_> = taints.collect();
    let objects = sorted.into_iter().map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}));
    Value::Array(objects.collect())
}

pub fn taints_to_send(desired: &Props) -> Vec<Taint> {
    let items = desired.get("taints").and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}

/// `sunday=2:00`, `Sunday=02:00` and `sunday=02:00` are one window.
pub fn window(day: &str, start: &str) -> String {
    let (hour, minute) = start.trim().split_once(':').unwrap_or((start.trim(), "00"));
    format!("{}={hour:0>2}:{minute:0>2}", day.trim().to_ascii_lowercase())
}

pub fn window_of_text(text: &str) -> String {
    let (day, start) = text.split_once('=').unwrap_or((text, "00:00"));
    window(day, start)
}

pub fn policy(window: &str) -> Option<MaintenancePolicy> {
    let (day, start) = window.split_once('=')?;
    Some(MaintenancePolicy { start_time: start.to_owned(), day: day.to_owned() })
}

/// An address and the network that has only this address are the same.
pub fn addresses<'a>(given: impl Iterator<Item = &'a String>) -> Value {
    let short = |text: &str| -> String {
        let text = text.trim().to_ascii_lowercase();
        let single = if text.contains(':') { "/128" } else { "/32" };
        text.strip_suffix(single).map(str::to_owned).unwrap_or(text)
    };
    let all: BTreeSet<String> = given.map(|text| short(text)).collect();
    json!(all)
}

pub fn observed_addresses(firewall: Option<&Firewall>) -> Value {
    addresses(firewall.filter(|f| f.enabled).into_iter().flat_map(|f| &f.allowed_addresses))
}

fn sorted<'a>(items: impl Iterator<Item = &'a String>) -> Value {
    json!(items.collect::<BTreeSet<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    fn own() -> BTreeMap<String, String> {
        let pairs =
            [("p-resource", "true"), ("p-resource-name", "blog"), ("p-resource-kind", "K"), ("p-environment", "a.b")];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn tags_of_the_cloud_and_of_berth_are_not_the_users() {
        let (tags, mine) = desired_tags(&own(), &strings(&["web", "team:a", "p-environment:prod"]));
        assert_eq!(tags, json!(["team:a", "web"]));
        assert_eq!(mine, json!(["p-environment:prod", "p-resource-kind:K", "p-resource-name:blog", "p-resource:true"]));
        let token = token_tag("0190aaaabbbbccccddddeeee12345678");
        let mut seen = strings(&["k8s", "k8s:123", "terraform:default-node-pool", &token, "web", "team:a"]);
        seen.extend(mine.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()));
        assert_eq!(observed_tags(&seen), tags);
        // What is not the user's to change stays when the tags change.
        let props: Props = serde_json::from_value(json!({"tags": ["other"]})).unwrap();
        assert_eq!(tags_to_send(&props, &seen), ["other", &token, "terraform:default-node-pool"]);
        assert!(has_tag(&seen, &token) && has_token(&seen) && !has_token(&strings(&["terraform:default-node-pool"])));
        // Without all three of Berth's, a key that looks alike is the user's.
        assert_eq!(observed_tags(&strings(&["shop-environment:x"])), json!(["shop-environment:x"]));
        assert!(same_tags(&json!(["Web", "a"]), &json!(["a", "web"])));
        assert!(!same_tags(&json!(["web"]), &json!(["a", "web"])));
    }

    #[test]
    fn labels_are_merged_and_the_users_win() {
        let given = BTreeMap::from([("p-resource-name".to_owned(), "mine".to_owned()), ("tier".into(), "db".into())]);
        let (labels, mine) = desired_labels(&own(), &given);
        assert_eq!(labels, json!({"tier": "db"}));
        assert_eq!(mine["p-resource-name"], "mine");
        assert_eq!(mine["p-environment"], "a.b");
        let props: Props = serde_json::from_value(json!({"labels": labels, OWN_LABELS: mine})).unwrap();
        let sent = labels_to_send(&props);
        assert_eq!(sent.len(), 5);
        assert_eq!(observed_labels(&sent), json!({"tier": "db"}));
    }

    #[test]
    fn values_become_valid_tags() {
        assert_eq!(tag("p-organization", "acme.co"), "p-organization:acme-co");
    }

    #[test]
    fn windows_addresses_and_taints_have_one_form() {
        assert_eq!(window_of_text("Sunday=2:00"), "sunday=02:00");
        assert_eq!(window("any", "00:00"), "any=00:00");
        assert_eq!(policy("any=00:00").unwrap().day, "any");
        let given = strings(&["203.0.113.9/32", "10.0.0.0/8", "2001:DB8::1/128"]);
        assert_eq!(addresses(given.iter()), json!(["10.0.0.0/8", "2001:db8::1", "203.0.113.9"]));
        let off = Firewall { enabled: false, allowed_addresses: given.clone() };
        assert_eq!(observed_addresses(Some(&off)), json!([]));
        assert_eq!(
            taints([("b", "", "NoExecute"), ("a", "x", "NoSchedule")].into_iter()),
            json!([{"key": "a", "value": "x", "effect": "NoSchedule"}, {"key": "b", "value": "", "effect": "NoExecute"}])
        );
    }
}
