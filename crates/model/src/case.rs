//! The two spellings of a field: `nodeCount` in manifests, `node_count` in protobuf.

/// `node_count` → `nodeCount`. What is camelCase already stays as it is.
pub fn camel_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        if c == '_' {
            upper = true;
        } else if upper {
            out.extend(c.to_uppercase());
            upper = false;
        } else {
            out.push(c);
        }
    }
    out
}

/// `nodeCount` → `node_count`. What is snake_case already stays as it is.
pub fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            if !out.is_empty() && !out.ends_with(['_', '.']) {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_gives_the_other() {
        assert_eq!(camel_case("default_node_pool"), "defaultNodePool");
        assert_eq!(camel_case("createdAt"), "createdAt");
        assert_eq!(snake_case("defaultNodePool"), "default_node_pool");
        assert_eq!(snake_case("status.outputs.networkId"), "status.outputs.network_id");
    }
}
