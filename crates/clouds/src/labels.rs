//! The labels that Berth writes where a cloud has labels or tags.

use berth_engine::handler::{LowerInput, Outcome, Trouble};
use std::collections::BTreeMap;

/// What the labels and tags that Berth writes begin with, unless [`PREFIX_VARIABLE`] is set.
pub const DEFAULT_LABEL_PREFIX: &str = "planton";
const PREFIX_VARIABLE: &str = "BERTH_LABEL_PREFIX";
const MAX_PREFIX: usize = 32;
/// Longest value of a Kubernetes label.
const MAX_LABEL_VALUE: usize = 63;

/// The prefix of labels that the environment chooses, or the default. `var` reads a variable.
pub fn label_prefix(var: impl Fn(&str) -> Option<String>) -> Outcome<String> {
    let prefix = var(PREFIX_VARIABLE).unwrap_or_default();
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match prefix.as_str() {
        "" => Ok(DEFAULT_LABEL_PREFIX.into()),
        text if text.len() <= MAX_PREFIX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(good) =>
        {
            Ok(prefix)
        }
        _ => Err(Trouble::refused(format!("{PREFIX_VARIABLE} cannot begin a label"))
            .help(format!("use at most {MAX_PREFIX} lower-case letters, digits and hyphens, starting with a letter"))),
    }
}

/// Labels that name the resource an object belongs to. The user's labels override them. Values are made into valid Kubernetes
/// labels, since metadata may have any text.
pub fn own_labels(input: &LowerInput<'_>) -> BTreeMap<String, String> {
    let prefix = input.label_prefix;
    let metadata = input.metadata;
    let values = [
        ("resource", "true"),
        ("resource-name", &input.id.name),
        ("resource-kind", &input.id.kind),
        ("organization", &metadata.org),
        ("environment", &metadata.env),
        ("resource-id", &metadata.id),
    ];
    let labels = values.into_iter().map(|(name, value)| (format!("{prefix}-{name}"), label_value(value)));
    labels.filter(|(_, value)| !value.is_empty()).collect()
}

/// The nearest valid value of a label: letters, digits and `- _ .`, the first and the last a letter or digit.
fn label_value(text: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let cleaned: String = text.chars().map(clean).collect();
    let cut: String = cleaned.trim_start_matches(['-', '_', '.']).chars().take(MAX_LABEL_VALUE).collect();
    cut.trim_end_matches(['-', '_', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_valid_labels() {
        assert_eq!(label_value("--Acme & Söhne-"), "Acme---S-hne");
        assert_eq!(label_value("a.b_c-1"), "a.b_c-1");
        assert_eq!(label_value(&"x".repeat(128)).len(), 63);
        assert_eq!(label_value(&format!("{}-{}", "x".repeat(62), "y")), "x".repeat(62));
        assert_eq!(label_value(" & "), "");
    }
}
