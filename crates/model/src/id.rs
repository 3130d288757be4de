//! Who a resource is.

use crate::phrasing::shell_word;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identity of a resource: a name is unique for a kind in its org and env.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceId {
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub org: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub env: String,
}

impl ResourceId {
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), name: name.into(), org: String::new(), env: String::new() }
    }

    /// The flags that tell it from others of its name, as a shell takes them: ` --org shop --env prod`.
    pub fn flags(&self) -> String {
        let given = [("--org", &self.org), ("--env", &self.env)].into_iter().filter(|(_, value)| !value.is_empty());
        given.map(|(flag, value)| format!(" {flag} {}", shell_word(value))).collect()
    }
}

/// What a new resource's org and env look like: a DNS label, as in the rules of `metadata`, or nothing. Code that looks things up does not
/// ask this: what is stored under another name stays reachable.
pub fn is_scope_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63 && text.chars().all(|c| inner(c) || c == '-') && !text.starts_with('-') && !text.ends_with('-')
}

/// `Kind/name`, as users type it; org and env are shown in columns of their own.
impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}
