//! Two people change one manifest: fields that only one of them changed are kept from both, and a field that both
//! changed in different ways is a conflict. Pure.

use berth_model::{Manifest, REDACTED};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A field that two people changed at once.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldConflict {
    /// camelCase path, such as `spec.pools[gpu].size`.
    pub path: String,
    /// Null where it was taken away. Secrets are masked.
    pub yours: Value,
    pub stored: Value,
}

/// Merges what was changed from `base` to `yours` into what is stored by now.
pub fn merge(base: &Value, stored: &Value, yours: &Value) -> Result<Value, Vec<FieldConflict>> {
    let mut conflicts = Vec::new();
    let shown = Shown { stored: &masked(stored), yours: &masked(yours) };
    let merged = three(Some(base), Some(stored), Some(yours), shown, "", &mut conflicts);
    match conflicts.is_empty() {
        true => Ok(merged.unwrap_or_default()),
        false => Err(conflicts),
    }
}

/// The same places in what may be shown.
#[derive(Clone, Copy)]
struct Shown<'a> {
    stored: &'a Value,
    yours: &'a Value,
}

impl<'a> Shown<'a> {
    fn step(self, pick: impl Fn(&'a Value) -> Option<&'a Value>) -> Self {
        Self { stored: pick(self.stored).unwrap_or(&Value::Null), yours: pick(self.yours).unwrap_or(&Value::Null) }
    }
}

/// What may be shown of a manifest: all of it but secrets; nothing of what cannot be read as one.
fn masked(manifest: &Value) -> Value {
    match Manifest::from_json(manifest) {
        Ok(manifest) => manifest.redacted().to_json(),
        Err(_) => mask(manifest),
    }
}

fn mask(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.iter().map(|(key, inner)| (key.clone(), mask(inner))).collect()),
        Value::Array(items) => Value::Array(items.iter().map(mask).collect()),
        Value::Null => Value::Null,
        _ => Value::from(REDACTED),
    }
}

fn three(
    base: Option<&Value>,
    stored: Option<&Value>,
    yours: Option<&Value>,
    shown: Shown<'_>,
    path: &str,
    conflicts: &mut Vec<FieldConflict>,
) -> Option<Value> {
    if stored == yours || yours == base {
        return stored.cloned();
    }
    if stored == base {
        return yours.cloned();
    }
    // Both changed it. Maps and named lists are looked into; what is not in the base was added by both.
    match (stored, yours) {
        (Some(Value::Object(theirs)), Some(Value::Object(mine))) => {
            let empty = Map::new();
            let old = base.and_then(Value::as_object).unwrap_or(&empty);
            let keys: BTreeSet<&String> = old.keys().chain(theirs.keys()).chain(mine.keys()).collect();
            let merged = keys.into_iter().filter_map(|key| {
                let shown = shown.step(|value| value.get(key));
                let value = three(old.get(key), theirs.get(key), mine.get(key), shown, &below(path, key), conflicts)?;
                Some((key.clone(), value))
            });
            return Some(Value::Object(merged.collect()));
        }
        (Some(theirs), Some(mine)) => {
            let empty = Value::Array(Vec::new());
            let old = base.unwrap_or(&empty);
            if let (Some(old), Some(theirs), Some(mine)) = (names(old), names(theirs), names(mine)) {
                // In your order; what others added comes after.
                let mut order = mine.clone();
                order.extend(theirs.iter().filter(|name| !mine.contains(name)));
                order.extend(old.iter().filter(|name| !mine.contains(name) && !theirs.contains(name)));
                let merged = order.into_iter().filter_map(|name| {
                    let shown = shown.step(|value| named(Some(value), name));
                    let path = format!("{path}[{name}]");
                    three(named(base, name), named(stored, name), named(yours, name), shown, &path, conflicts)
                });
                return Some(Value::Array(merged.collect()));
            }
        }
        _ => {}
    }
    conflicts.push(FieldConflict { path: path.into(), yours: shown.yours.clone(), stored: shown.stored.clone() });
    stored.cloned()
}

/// `spec.region`, or `metadata.labels["a.b/c"]` where a key would not read as a name.
fn below(path: &str, key: &str) -> String {
    let is_name = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match (path.is_empty(), is_name) {
        (true, _) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (false, false) => format!("{path}[\"{}\"]", key.escape_default()),
    }
}

/// Names of a list's entries, if each has one of its own.
fn names(value: &Value) -> Option<Vec<&str>> {
    let names: Vec<&str> = value.as_array()?.iter().map(|item| item.get("name")?.as_str()).collect::<Option<_>>()?;
    (names.iter().collect::<BTreeSet<_>>().len() == names.len()).then_some(names)
}

fn named<'a>(list: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    list?.as_array()?.iter().find(|item| item.get("name").and_then(Value::as_str) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn cluster(spec: Value) -> Value {
        json!({"apiVersion": "civo.berth.dev/v1", "kind": "CivoKubernetesCluster",
               "metadata": {"name": "shop", "labels": {"team": "a"}}, "spec": spec})
    }

    #[test]
    fn what_only_one_changed_is_kept_from_both() {
        let base =
            cluster(json!({"region": "fra1", "kubernetesVersion": "1.29.0+k3s1", "defaultNodePool": {"nodeCount": 3}}));
        let mut stored = base.clone();
        stored["spec"]["defaultNodePool"]["nodeCount"] = json!(5);
        stored["metadata"]["labels"]["tier"] = json!("gold");
        let mut yours = base.clone();
        yours["spec"]["kubernetesVersion"] = json!("1.30.5+k3s1");
        yours["metadata"]["labels"].as_object_mut().unwrap().remove("team");
        let merged = merge(&base, &stored, &yours).unwrap();
        assert_eq!(merged["spec"]["defaultNodePool"]["nodeCount"], json!(5));
        assert_eq!(merged["spec"]["kubernetesVersion"], json!("1.30.5+k3s1"));
        assert_eq!(merged["metadata"]["labels"], json!({"tier": "gold"}));
    }

    #[test]
    fn what_both_changed_is_a_conflict_with_its_path() {
        let base = cluster(json!({"kubernetesVersion": "1.29.0+k3s1", "tags": ["a"]}));
        let stored = cluster(json!({"kubernetesVersion": "1.30.5+k3s1", "tags": ["a", "b"]}));
        let yours = cluster(json!({"kubernetesVersion": "1.31.0+k3s1", "tags": ["a", "c"]}));
        let conflicts = merge(&base, &stored, &yours).unwrap_err();
        let paths: Vec<&str> = conflicts.iter().map(|c| c.path.as_str()).collect();
        assert_eq!(paths, ["spec.kubernetesVersion", "spec.tags"]);
        assert_eq!((&conflicts[0].yours, &conflicts[0].stored), (&json!("1.31.0+k3s1"), &json!("1.30.5+k3s1")));
        // Both did the same: no conflict.
        assert_eq!(merge(&base, &stored, &stored), Ok(stored.clone()));
        // One took it away, the other changed it.
        let gone = cluster(json!({"tags": ["a"]}));
        let conflicts = merge(&base, &stored, &gone).unwrap_err();
        assert_eq!((conflicts.len(), &conflicts[0].yours), (1, &Value::Null));
    }

    #[test]
    fn lists_of_named_things_merge_by_name() {
        let pool = |name: &str, size: &str| json!({"name": name, "size": size});
        let base = cluster(json!({"additionalNodePools": [pool("gpu", "m"), pool("batch", "m")]}));
        let stored = cluster(json!({"additionalNodePools": [pool("gpu", "m"), pool("batch", "l"), pool("web", "s")]}));
        let yours = cluster(json!({"additionalNodePools": [pool("batch", "m"), pool("new", "s")]}));
        let merged = merge(&base, &stored, &yours).unwrap();
        assert_eq!(
            merged["spec"]["additionalNodePools"],
            json!([pool("batch", "l"), pool("new", "s"), pool("web", "s")])
        );
        let clash = cluster(json!({"additionalNodePools": [pool("gpu", "m"), pool("batch", "xl")]}));
        let conflicts = merge(&base, &stored, &clash).unwrap_err();
        assert_eq!(conflicts[0].path, "spec.additionalNodePools[batch].size");
    }

    #[test]
    fn secrets_are_never_shown() {
        let account = |token: &str| {
            json!({"apiVersion": "byoc.berth.dev/v1", "kind": "Account", "metadata": {"name": "main"},
                   "spec": {"provider": "civo", "civo": {"token": {"value": token}}}})
        };
        let conflicts = merge(&account("base-secret"), &account("stored-secret"), &account("your-secret")).unwrap_err();
        assert_eq!(conflicts[0].path, "spec.civo.token.value");
        assert_eq!((&conflicts[0].yours, &conflicts[0].stored), (&json!(REDACTED), &json!(REDACTED)));
        assert!(!format!("{conflicts:?}").contains("-secret"));
        // A secret against another source of it, and documents that are no manifests.
        let mut env = account("x");
        env["spec"]["civo"]["token"] = json!({"fromEnv": "CIVO_TOKEN"});
        let conflicts = merge(&account("base-secret"), &account("stored-secret"), &env).unwrap_err();
        assert!(!format!("{conflicts:?}").contains("-secret"), "{conflicts:?}");
        let conflicts = merge(&json!({}), &json!({"a": "x-secret"}), &json!({"a": "y-secret"})).unwrap_err();
        assert!(!format!("{conflicts:?}").contains("-secret"), "{conflicts:?}");
        // The right one goes through.
        let merged = merge(&account("old"), &account("old"), &account("new-secret")).unwrap();
        assert_eq!(merged["spec"]["civo"]["token"]["value"], json!("new-secret"));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), any::<bool>().prop_map(Value::from), (0..3i64).prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_change_by_one_is_the_result(base in value(), other in value()) {
            prop_assert_eq!(merge(&base, &other, &base), Ok(other.clone()));
            prop_assert_eq!(merge(&base, &base, &other), Ok(other.clone()));
            prop_assert_eq!(merge(&base, &other, &other), Ok(other));
        }

        #[test]
        fn whose_change_comes_first_does_not_matter(base in value(), a in value(), b in value()) {
            match (merge(&base, &a, &b), merge(&base, &b, &a)) {
                (Ok(one), Ok(two)) => prop_assert_eq!(one, two),
                (Err(one), Err(two)) => {
                    let paths = |all: &[FieldConflict]| all.iter().map(|c| c.path.clone()).collect::<BTreeSet<_>>();
                    prop_assert_eq!(paths(&one), paths(&two));
                }
                (one, two) => prop_assert!(false, "{one:?} and {two:?}"),
            }
        }
    }
}
