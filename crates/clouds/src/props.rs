//! Reads and writes properties of units.

use berth_engine::handler::{Outcome, Trouble};
use berth_engine::unit::Props;
use serde_json::Value;
use std::collections::BTreeMap;

/// A text, empty where it is absent or known only after apply.
pub fn text<'a>(props: &'a Props, name: &str) -> &'a str {
    props.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A text that is neither absent nor empty.
pub fn optional_text<'a>(props: &'a Props, name: &str) -> Option<&'a str> {
    Some(text(props, name)).filter(|text| !text.is_empty())
}

/// A text that lowering always gives.
pub fn required_text<'a>(props: &'a Props, name: &str) -> Outcome<&'a str> {
    optional_text(props, name).ok_or_else(|| Trouble::refused(format!("`{name}` is missing")))
}

pub fn flag(props: &Props, name: &str) -> bool {
    props.get(name).and_then(Value::as_bool).unwrap_or_default()
}

pub fn number(props: &Props, name: &str) -> Option<u32> {
    props.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok())
}

pub fn texts(props: &Props, name: &str) -> Vec<String> {
    props.get(name).map(texts_of).unwrap_or_default()
}

/// The texts of a list.
pub fn texts_of(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An object whose values are texts, such as labels.
pub fn text_map(props: &Props, name: &str) -> BTreeMap<String, String> {
    let items = props.get(name).and_then(Value::as_object).into_iter().flatten();
    items.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Adds a property; empty texts are left out.
pub fn put(props: &mut Props, name: &str, value: impl Into<Value>) {
    let value = value.into();
    if value.as_str() != Some("") && !value.is_null() {
        props.insert(name.to_owned(), value);
    }
}
