//! Data as YAML, and back from small files.

use berth_model::yaml::{Node, Plain, resolve};
use serde_json::{Value, json};

pub use berth_model::yaml::to_yaml;

/// A parsed node as plain data.
pub fn plain(node: &Node<'_>) -> Value {
    let scalar = |text: &str| match resolve(text) {
        Plain::Null => Value::Null,
        Plain::Bool(value) => Value::Bool(value),
        // Only what is written back the same way; anything else stays text.
        _ => match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => json!(number),
            _ => Value::from(text),
        },
    };
    node.to_json(&scalar, &str::to_owned)
}
