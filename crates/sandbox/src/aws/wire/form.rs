//! Forms as trees: `Filter.1.Value.1=x` is `{"Filter": [{"Value": ["x"]}]}`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// How deep a name may go; AWS's own go to seven.
const MAX_DEPTH: usize = 16;

#[derive(Default)]
struct Node {
    text: Option<String>,
    under: BTreeMap<String, Node>,
}

/// `members`: lists are written `Tags.member.1.Key`.
pub fn tree(pairs: &[(String, String)], members: bool) -> Value {
    let mut root = Node::default();
    for (name, value) in pairs {
        let parts = name.split('.').filter(|part| !(members && (*part == "member" || *part == "entry")));
        let mut node = &mut root;
        for part in parts.take(MAX_DEPTH) {
            node = node.under.entry(part.to_owned()).or_default();
        }
        node.text = Some(value.clone());
    }
    value(root)
}

fn value(node: Node) -> Value {
    if node.under.is_empty() {
        return node.text.map_or(Value::Object(Map::new()), Value::String);
    }
    let number = |name: &String| name.parse::<usize>().ok();
    if node.under.keys().all(|name| number(name).is_some()) {
        let mut items: Vec<(usize, Node)> =
            node.under.into_iter().filter_map(|(k, v)| Some((number(&k)?, v))).collect();
        items.sort_by_key(|(at, _)| *at);
        return Value::Array(items.into_iter().map(|(_, node)| value(node)).collect());
    }
    Value::Object(node.under.into_iter().map(|(name, node)| (name, value(node))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_query;
    use serde_json::json;

    #[test]
    fn numbered_names_are_lists_in_their_order() {
        let pairs = parse_query(
            "Filter.1.Name=vpc-id&Filter.1.Value.2=b&Filter.1.Value.1=a&Filter.10.Name=z&Filter.2.Name=y&X.Value=true",
        );
        let seen = tree(&pairs, false);
        let expected = json!({"Filter": [{"Name": "vpc-id", "Value": ["a", "b"]}, {"Name": "y"}, {"Name": "z"}], "X": {"Value": "true"}});
        assert_eq!(seen, expected);
        let pairs = parse_query("Tags.member.1.Key=a&Tags.member.1.Value=b&Name=x");
        assert_eq!(tree(&pairs, true), json!({"Name": "x", "Tags": [{"Key": "a", "Value": "b"}]}));
    }
}
