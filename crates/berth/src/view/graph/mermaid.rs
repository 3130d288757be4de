//! For Markdown.

use super::{Graph, label};
use crate::view::terminal::harmless_line;
use std::collections::BTreeMap;

pub fn draw(graph: &Graph) -> String {
    let mut out = String::from("flowchart LR\n");
    let numbers: BTreeMap<_, _> = graph.nodes.iter().enumerate().map(|(number, id)| (id, number)).collect();
    for (id, number) in &numbers {
        out.push_str(&format!("  n{number}[\"{}\"]\n", escaped(&label(id))));
    }
    for edge in &graph.edges {
        if let (Some(from), Some(to)) = (numbers.get(&edge.from), numbers.get(&edge.to)) {
            out.push_str(&format!("  n{from} -->|\"{}\"| n{to}\n", escaped(&edge.field)));
        }
    }
    out
}

/// Mermaid takes characters by name in labels; everything that it could read as markup is written so.
fn escaped(text: &str) -> String {
    harmless_line(text)
        .chars()
        .map(|c| match c {
            '"' => "#quot;".to_owned(),
            '#' => "#35;".to_owned(),
            '<' | '>' | '&' | '\\' | '`' => format!("#{};", c as u32),
            c => c.to_string(),
        })
        .collect()
}
