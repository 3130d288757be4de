//! Paths of fields: `spec.defaultNodePool.nodeCount`, `spec.additionalNodePools[gpu].size`, `metadata.labels["a/b"]`.

use crate::case;
use crate::yaml::{Entry, Node};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field, or a key of a map.
    Name(String),
    /// An entry of a list, by its `name` or position, or a key of a map.
    Pick(String),
}

/// `None` when it is not a path.
pub(crate) fn steps(path: &str) -> Option<Vec<Step>> {
    let mut out = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (pick, after) = match inside.strip_prefix('"') {
                Some(quoted) => quoted.split_once("\"]")?,
                None => inside.split_once(']')?,
            };
            out.push(Step::Pick(pick.to_owned()));
            rest = after;
        } else {
            let name = rest.strip_prefix('.').filter(|_| !out.is_empty()).unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            out.push(Step::Name(name[..end].to_owned()));
            rest = &name[end..];
        }
    }
    (!out.is_empty()).then_some(out)
}

/// What a path leads to in a tree.
pub(crate) enum Found<'n, 'a> {
    Entry(&'n Entry<'a>),
    Item(&'n Node<'a>),
}

impl<'n, 'a> Found<'n, 'a> {
    pub fn node(&self) -> &'n Node<'a> {
        match self {
            Found::Entry(entry) => &entry.node,
            Found::Item(node) => node,
        }
    }
}

/// One step into a node; names are taken in either spelling.
pub(crate) fn step<'n, 'a>(node: &'n Node<'a>, step: &Step) -> Option<Found<'n, 'a>> {
    match step {
        Step::Name(name) => {
            let entry = node.entry(name, name);
            entry.or_else(|| node.entry(&case::camel_case(name), &case::snake_case(name))).map(Found::Entry)
        }
        Step::Pick(pick) => {
            if let Some(entry) = node.entry(pick, pick) {
                return Some(Found::Entry(entry));
            }
            let named = |item: &&Node<'a>| item.entry("name", "name").and_then(|entry| entry.node.text()) == Some(pick);
            let items = node.items();
            items.iter().find(named).or_else(|| items.get(pick.parse::<usize>().ok()?)).map(Found::Item)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let name = |text: &str| Step::Name(text.to_owned());
        let pick = |text: &str| Step::Pick(text.to_owned());
        assert_eq!(
            steps("spec.additional_node_pools[gpu].size"),
            Some(vec![name("spec"), name("additional_node_pools"), pick("gpu"), name("size")])
        );
        assert_eq!(steps("metadata.labels[\"a.b/c\"]"), Some(vec![name("metadata"), name("labels"), pick("a.b/c")]));
        for bad in ["", ".", "spec..x", "a[b", "spec."] {
            assert_eq!(steps(bad), None, "{bad}");
        }
    }
}
