//! Reads properties of units.

use berth_engine::handler::{Outcome, Trouble};
use berth_engine::unit::Props;
use serde_json::Value;

/// A text that lowering always gives.
pub fn text<'a>(props: &'a Props, name: &str) -> Outcome<&'a str> {
    maybe(props, name).ok_or_else(|| Trouble::refused(format!("`{name}` is missing")))
}

/// A text that may be absent, or known only after apply.
pub fn maybe<'a>(props: &'a Props, name: &str) -> Option<&'a str> {
    props.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

pub fn number(props: &Props, name: &str) -> Option<u32> {
    props.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok())
}

pub fn texts(props: &Props, name: &str) -> Vec<String> {
    let items = props.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Adds a property; empty texts are left out.
pub fn put(props: &mut Props, name: &str, value: impl Into<Value>) {
    let value = value.into();
    if value.as_str() != Some("") && !value.is_null() {
        props.insert(name.to_owned(), value);
    }
}
