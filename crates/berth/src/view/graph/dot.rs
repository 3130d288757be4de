//! For Graphviz.

use super::{Graph, label};
use crate::view::terminal::harmless_line;

pub fn draw(graph: &Graph) -> String {
    let mut out = String::from("digraph berth {\n  rankdir = LR;\n  node [shape = box, fontname = \"sans-serif\"];\n");
    for id in &graph.nodes {
        out.push_str(&format!("  {};\n", quoted(&label(id))));
    }
    for edge in &graph.edges {
        let field = quoted(&edge.field);
        out.push_str(&format!("  {} -> {} [label = {field}];\n", quoted(&label(&edge.from)), quoted(&label(&edge.to))));
    }
    out.push_str("}\n");
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", harmless_line(text).replace('\\', "\\\\").replace('"', "\\\""))
}
