//! The OpenAPI document, made from the descriptors.

use serde_json::{Value, json};

pub fn document() -> Value {
    json!({"openapi": "3.1.0", "info": {"title": "Berth", "version": env!("CARGO_PKG_VERSION")}, "paths": {}})
}
