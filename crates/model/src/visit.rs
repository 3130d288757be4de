//! Walks the values of a message by its shape: the one way through fields, lists and maps, to look at them or to change them.

use crate::shape::{Field, Shape};
use crate::validate::Path;
use prost_reflect::{DynamicMessage, MapKey, Value};

/// Which value of a field it is.
enum Step<'m> {
    /// The only one.
    Only,
    Item(usize),
    Entry(&'m MapKey),
}

fn step_into(path: &mut Path, step: &Step<'_>) -> usize {
    match step {
        Step::Only => path.0.len(),
        Step::Item(index) => path.push_index(*index),
        Step::Entry(key) => path.push_key(&crate::json::key_text(key)),
    }
}

/// Fields that hold messages or secrets: nothing else is ever looked for.
fn is_walked(field: &Field) -> bool {
    field.secret || field.shape().is_some()
}

/// Calls `see` with the path and field of each value. Where it answers `true`, the walk goes on into the value.
pub(crate) fn each(
    shape: &Shape,
    message: &DynamicMessage,
    path: &mut Path,
    see: &mut dyn FnMut(&str, &Field, &Value) -> bool,
) {
    for field in shape.fields.iter().filter(|field| is_walked(field) && message.has_field(&field.desc)) {
        let before = path.push(&field.json);
        let held = message.get_field(&field.desc);
        let values: Vec<(Step<'_>, &Value)> = match held.as_ref() {
            Value::List(items) => items.iter().enumerate().map(|(n, item)| (Step::Item(n), item)).collect(),
            Value::Map(entries) => entries.iter().map(|(key, entry)| (Step::Entry(key), entry)).collect(),
            value => vec![(Step::Only, value)],
        };
        for (step, value) in values {
            let inner = step_into(path, &step);
            if see(&path.0, field, value)
                && let (Value::Message(message), Some(shape)) = (value, field.shape())
            {
                each(shape, message, path, see);
            }
            path.pop(inner);
        }
        path.pop(before);
    }
}

/// As [`each`], to change the values.
pub(crate) fn each_mut(
    shape: &Shape,
    message: &mut DynamicMessage,
    path: &mut Path,
    see: &mut dyn FnMut(&str, &Field, &mut Value) -> bool,
) {
    for field in &shape.fields {
        // Asking for a field to change it would set one that is absent.
        if !is_walked(field) || !message.has_field(&field.desc) {
            continue;
        }
        let before = path.push(&field.json);
        let values: Vec<(Step<'_>, &mut Value)> = match message.get_field_mut(&field.desc) {
            Value::List(items) => items.iter_mut().enumerate().map(|(n, item)| (Step::Item(n), item)).collect(),
            Value::Map(entries) => entries.iter_mut().map(|(key, entry)| (Step::Entry(key), entry)).collect(),
            value => vec![(Step::Only, value)],
        };
        for (step, value) in values {
            let inner = step_into(path, &step);
            if see(&path.0, field, value)
                && let (Value::Message(message), Some(shape)) = (value, field.shape())
            {
                each_mut(shape, message, path, see);
            }
            path.pop(inner);
        }
        path.pop(before);
    }
}
