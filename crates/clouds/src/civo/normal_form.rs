//! Normal forms: desired and observed properties are written the same way, so that order and what Berth adds by itself is
//! never taken for a difference.

use super::wire::{Cluster, Taint};
use berth_engine::unit::Props;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Marks a cluster with the token that it was made with, so that a create whose answer was lost is found exactly.
pub fn token_tag(token: &str) -> String {
    format!("berth-token:{token}")
}

pub fn is_token_tag(tag: &str) -> bool {
    tag.starts_with("berth-token:")
}

/// Tags that are the user's or Berth's labels, sorted.
pub fn shown_tags(cluster: &Cluster) -> Vec<String> {
    let tags: BTreeSet<&String> = cluster.tags.iter().filter(|tag| !is_token_tag(tag)).collect();
    tags.into_iter().cloned().collect()
}

/// Whether tags or labels are as desired. Those that Berth itself writes count only where they say that the object is this
/// very resource's: an imported object has none of them, or another's.
pub fn same_words(desired: Vec<String>, observed: Vec<String>, own: &[String]) -> bool {
    if let [_, name, kind, ..] = own {
        let mut marks = desired.iter().filter(|item| item.starts_with(name) || item.starts_with(kind));
        let mut written = desired.iter().filter(|item| own.iter().any(|beginning| item.starts_with(beginning)));
        if marks.all(|item| observed.contains(item)) && !written.all(|item| observed.contains(item)) {
            return false;
        }
    }
    without_own(desired, own) == without_own(observed, own)
}

fn without_own(items: impl IntoIterator<Item = String>, own: &[String]) -> BTreeSet<String> {
    items.into_iter().filter(|item| !own.iter().any(|prefix| item.starts_with(prefix))).collect()
}

/// The beginnings of Berth's own labels, found by the one that is always among them.
pub fn own_beginnings<'a>(items: impl IntoIterator<Item = &'a str>, separator: &str) -> Vec<String> {
    let marker = format!("-resource{separator}true");
    let Some(prefix) = items.into_iter().find_map(|item| item.strip_suffix(&marker)) else { return Vec::new() };
    // Name and kind stand where `same_words` looks for them.
    ["resource", "resource-name", "resource-kind", "resource-id", "organization", "environment"]
        .iter()
        .map(|name| format!("{prefix}-{name}{separator}"))
        .collect()
}

/// Taints in the form that is compared.
pub fn taints_value(taints: &[Taint]) -> Value {
    let mut taints = taints.to_vec();
    taints.sort();
    taints.dedup();
    json!(taints)
}

pub fn taints_of(props: &Props) -> Vec<Taint> {
    props.get("taints").and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

pub fn labels_of(props: &Props, name: &str) -> BTreeMap<String, String> {
    props.get(name).and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_tags_count_where_they_are_this_resources() {
        let words = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        let own = ["p-resource:true", "p-resource-name:shop", "p-resource-kind:K", "p-resource-id:2"];
        let desired = words(&[&own[..], &["web"]].concat());
        let beginnings = own_beginnings(desired.iter().map(String::as_str), ":");
        let same = |observed: &[&str]| same_words(desired.clone(), words(observed), &beginnings);
        assert!(same(&[&own[..], &["web"]].concat()));
        assert!(same(&["web"]), "imported, without any");
        assert!(same(&["web", "p-resource:true", "p-resource-name:other", "p-resource-kind:K"]), "another resource's");
        assert!(!same(&["web", "p-resource:true", "p-resource-name:shop", "p-resource-kind:K", "p-resource-id:1"]));
        assert!(!same(&["web", "p-resource:true", "p-resource-name:shop", "p-resource-kind:K"]));
        assert!(!same(&own), "the user's own always count");
    }
}
