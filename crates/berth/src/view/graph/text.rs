//! The tree: below each resource, those that refer to it.

use super::{Edge, Graph, label};
use crate::view::terminal::harmless_line;
use berth_model::ResourceId;
use std::collections::{BTreeMap, BTreeSet};

struct Line {
    tree: String,
    note: String,
}

pub fn draw(graph: &Graph) -> String {
    let mut below: BTreeMap<&ResourceId, BTreeMap<&ResourceId, Vec<&str>>> = BTreeMap::new();
    let mut with_needs = BTreeSet::new();
    for Edge { from, to, field } in &graph.edges {
        below.entry(to).or_default().entry(from).or_default().push(field);
        with_needs.insert(from);
    }
    let mut tree = Tree { below, shown: BTreeSet::new(), lines: Vec::new() };
    // Whatever only a cycle reaches comes last, so that nothing is left out.
    let (free, bound): (Vec<_>, Vec<_>) = graph.nodes.iter().partition(|id| !with_needs.contains(id));
    for root in free.into_iter().chain(bound) {
        if !tree.shown.contains(root) {
            tree.root(root);
        }
    }
    let width =
        tree.lines.iter().filter(|line| !line.note.is_empty()).map(|line| line.tree.chars().count()).max().unwrap_or(0);
    tree.lines
        .iter()
        .map(|line| match line.note.as_str() {
            "" => format!("{}\n", line.tree),
            note => format!("{:width$}   {note}\n", line.tree),
        })
        .collect()
}

struct Tree<'a> {
    below: BTreeMap<&'a ResourceId, BTreeMap<&'a ResourceId, Vec<&'a str>>>,
    shown: BTreeSet<&'a ResourceId>,
    lines: Vec<Line>,
}

/// One resource still to be written: its tree lines so far, whether it is its parent's last, and the fields that refer.
struct Todo<'a> {
    id: &'a ResourceId,
    stem: String,
    last: bool,
    fields: Vec<&'a str>,
    root: bool,
}

impl<'a> Tree<'a> {
    /// With a stack of its own, since a chain of references can be deeper than the thread's.
    fn root(&mut self, id: &'a ResourceId) {
        let mut todo = vec![Todo { id, stem: String::new(), last: true, fields: Vec::new(), root: true }];
        while let Some(Todo { id, stem, last, fields, root }) = todo.pop() {
            let branch = match (root, last) {
                (true, _) => "",
                (_, true) => "└─ ",
                (_, false) => "├─ ",
            };
            let name = label(id);
            let again = !self.shown.insert(id);
            let below = self.below.get(id);
            let mut note = fields.join(", ");
            if again && below.is_some() {
                note.push_str(if note.is_empty() { "shown above" } else { ", shown above" });
            }
            self.lines.push(Line { tree: format!("{stem}{branch}{}", harmless_line(&name)), note });
            if again {
                continue;
            }
            let stem = match (root, last) {
                (true, _) => String::new(),
                (_, true) => format!("{stem}   "),
                (_, false) => format!("{stem}│  "),
            };
            let children = below.into_iter().flatten().enumerate();
            let count = below.map_or(0, BTreeMap::len);
            let mut next: Vec<Todo<'a>> = children
                .map(|(index, (child, fields))| Todo {
                    id: child,
                    stem: stem.clone(),
                    last: index + 1 == count,
                    fields: fields.clone(),
                    root: false,
                })
                .collect();
            next.reverse();
            todo.append(&mut next);
        }
    }
}
