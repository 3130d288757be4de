//! Data as YAML, and back from small files.

use berth_model::yaml::{Node, Plain, Style, Value as Yaml, resolve};
use serde_json::{Value, json};

pub use berth_model::yaml::to_yaml;

/// A parsed node as plain data.
pub fn plain(node: &Node<'_>) -> Value {
    match &node.value {
        Yaml::Null => Value::Null,
        Yaml::Scalar { text, style: Style::Plain } => match resolve(text) {
            Plain::Null => Value::Null,
            Plain::Bool(value) => Value::Bool(value),
            // Only what is written back the same way; anything else stays text.
            _ => match text.parse::<i64>() {
                Ok(number) if number.to_string() == **text => json!(number),
                _ => Value::String(text.to_string()),
            },
        },
        Yaml::Scalar { text, .. } => Value::String(text.to_string()),
        Yaml::Seq { items, .. } => Value::Array(items.iter().map(plain).collect()),
        Yaml::Map { entries, .. } => {
            Value::Object(entries.iter().map(|entry| (entry.key.to_string(), plain(&entry.node))).collect())
        }
    }
}
