//! Secrets in a manifest, found by the `(berth.secret)` option.

use crate::manifest::Manifest;
use crate::shape::Shape;
use crate::validate::Path;
use prost_reflect::{DynamicMessage, Value};

/// What stands in place of a secret that is shown.
pub const REDACTED: &str = "(secret)";

impl Manifest {
    /// Replaces every secret that is set, given its path (`spec.civo.token.value`) and value.
    pub fn map_secrets(&mut self, mut replace: impl FnMut(&str, &str) -> String) {
        let mut path = Path("spec".to_owned());
        walk(self.kind.spec_shape(), &mut self.spec, &mut path, &mut replace);
    }

    /// A copy to show: secrets are replaced by a word.
    pub fn redacted(&self) -> Self {
        let mut copy = self.clone();
        copy.map_secrets(|_, _| REDACTED.to_owned());
        copy
    }
}

fn walk(shape: &Shape, message: &mut DynamicMessage, path: &mut Path, replace: &mut dyn FnMut(&str, &str) -> String) {
    for field in &shape.fields {
        if !message.has_field(&field.desc) || !(field.secret || field.shape().is_some()) {
            continue;
        }
        let before = path.push(&field.json);
        let mut one = |value: &mut Value, path: &mut Path| match value {
            Value::String(text) if field.secret => *text = replace(&path.0, text),
            Value::Message(inner) => {
                if let Some(shape) = field.shape() {
                    walk(shape, inner, path, replace);
                }
            }
            _ => {}
        };
        match message.get_field_mut(&field.desc) {
            Value::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let inner = path.push_index(index);
                    one(item, path);
                    path.pop(inner);
                }
            }
            Value::Map(entries) => {
                for (key, item) in entries.iter_mut() {
                    let inner = path.push_key(&crate::json::key_text(key));
                    one(item, path);
                    path.pop(inner);
                }
            }
            value => one(value, path),
        }
        path.pop(before);
    }
}
