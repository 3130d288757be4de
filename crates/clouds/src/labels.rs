//! The labels that Berth writes where a cloud has labels or tags.

use berth_engine::handler::LowerInput;
use std::collections::BTreeMap;

/// What says whose an object is. The user's own labels are merged over these.
pub fn own_labels(input: &LowerInput<'_>) -> BTreeMap<String, String> {
    let prefix = input.label_prefix;
    let mut labels = BTreeMap::from([
        (format!("{prefix}-resource"), "true".to_owned()),
        (format!("{prefix}-resource-name"), input.id.name.clone()),
        (format!("{prefix}-resource-kind"), input.id.kind.clone()),
    ]);
    let metadata = input.metadata;
    for (name, value) in
        [("organization", &metadata.org), ("environment", &metadata.env), ("resource-id", &metadata.id)]
    {
        if !value.is_empty() {
            labels.insert(format!("{prefix}-{name}"), value.clone());
        }
    }
    labels
}
