//! A picture: layers from left to right, what needs nothing on the left. Boxes are ordered so that lines cross little.

use super::Graph;
use crate::terminal::harmless_line;
use berth_model::ResourceId;
use std::collections::BTreeMap;
use std::fmt::Write;

const BOX_HEIGHT: f64 = 44.0;
const GAP_X: f64 = 110.0;
const GAP_Y: f64 = 18.0;
const MARGIN: f64 = 20.0;
/// Average width of a character of the fonts below, a little generous.
const CHAR_WIDTH: f64 = 7.6;
const SWEEPS: usize = 4;

struct Placed {
    x: f64,
    y: f64,
    width: f64,
}

pub fn draw(graph: &Graph) -> String {
    let columns = ordered_columns(graph);
    let mut placed: BTreeMap<&ResourceId, Placed> = BTreeMap::new();
    let tallest = columns.iter().map(Vec::len).max().unwrap_or(0);
    let height = tallest as f64 * (BOX_HEIGHT + GAP_Y) - if tallest > 0 { GAP_Y } else { 0.0 } + 2.0 * MARGIN;
    let mut x = MARGIN;
    for column in &columns {
        let width = column.iter().map(|id| box_width(id)).fold(120.0, f64::max);
        let tall = column.len() as f64 * (BOX_HEIGHT + GAP_Y) - GAP_Y;
        let top = (height - tall) / 2.0;
        for (row, id) in column.iter().enumerate() {
            placed.insert(id, Placed { x, y: top + row as f64 * (BOX_HEIGHT + GAP_Y), width });
        }
        x += width + GAP_X;
    }
    let width = (x - GAP_X + MARGIN).max(2.0 * MARGIN);

    let mut out = String::new();
    _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui, sans-serif\">"
    );
    out.push_str(
        "<title>Resources and their references</title>\n\
         <style>\
         .box{fill:#f6f8fa;stroke:#57606a}.name{font-size:13px;font-weight:600;fill:#1f2328}\
         .kind{font-size:11px;fill:#57606a}.line{fill:none;stroke:#8c959f;stroke-width:1.4}\
         .field{font-size:10px;fill:#57606a;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:3px}\
         svg{background:#fff}\
         </style>\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto-start-reverse\"><path d=\"M0 0 8 4 0 8z\" fill=\"#8c959f\"/></marker></defs>\n",
    );
    for edge in &graph.edges {
        let (Some(from), Some(to)) = (placed.get(&edge.from), placed.get(&edge.to)) else { continue };
        // The arrow goes from what is needed to what needs it, as work does.
        let (x1, y1) = (to.x + to.width, to.y + BOX_HEIGHT / 2.0);
        let (x2, y2) = (from.x, from.y + BOX_HEIGHT / 2.0);
        let bend = ((x2 - x1).abs() / 2.0).max(30.0);
        _ = writeln!(
            out,
            "<path class=\"line\" marker-end=\"url(#arrow)\" d=\"M{x1:.1} {y1:.1}C{:.1} {y1:.1} {:.1} {y2:.1} {x2:.1} {y2:.1}\"/>",
            x1 + bend,
            x2 - bend
        );
        // Three quarters of the way, where lines to the same box have not yet met and those from it have parted.
        _ = writeln!(
            out,
            "<text class=\"field\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x1 + (x2 - x1) * 0.6,
            y1 + (y2 - y1) * 0.65 - 4.0,
            escaped(&edge.field)
        );
    }
    for id in &graph.nodes {
        let Some(Placed { x, y, width }) = placed.get(id) else { continue };
        let kind = if id.env.is_empty() { id.kind.clone() } else { format!("{} · {}", id.kind, id.env) };
        _ = writeln!(
            out,
            "<g><rect class=\"box\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>\
             <text class=\"name\" x=\"{tx:.1}\" y=\"{:.1}\">{}</text><text class=\"kind\" x=\"{tx:.1}\" y=\"{:.1}\">{}</text></g>",
            y + 19.0,
            escaped(&id.name),
            y + 35.0,
            escaped(&kind),
            tx = x + 12.0,
        );
    }
    out.push_str("</svg>\n");
    out
}

fn box_width(id: &ResourceId) -> f64 {
    let kind = id.kind.chars().count() + if id.env.is_empty() { 0 } else { id.env.chars().count() + 3 };
    id.name.chars().count().max(kind) as f64 * CHAR_WIDTH + 24.0
}

/// Layers, each sorted by the middle of its neighbours, swept forth and back a few times.
fn ordered_columns(graph: &Graph) -> Vec<Vec<&ResourceId>> {
    let layers = graph.layers();
    let deepest = layers.values().copied().max().map_or(0, |deepest| deepest + 1);
    let mut columns: Vec<Vec<&ResourceId>> = vec![Vec::new(); deepest];
    for (id, layer) in &layers {
        columns[*layer].push(id);
    }
    let mut neighbours: BTreeMap<&ResourceId, Vec<&ResourceId>> = BTreeMap::new();
    for edge in &graph.edges {
        neighbours.entry(&edge.from).or_default().push(&edge.to);
        neighbours.entry(&edge.to).or_default().push(&edge.from);
    }
    let mut rank: BTreeMap<&ResourceId, f64> = BTreeMap::new();
    for column in &columns {
        rank.extend(column.iter().enumerate().map(|(row, id)| (*id, row as f64)));
    }
    for sweep in 0..SWEEPS {
        let order: Vec<usize> =
            if sweep % 2 == 0 { (0..columns.len()).collect() } else { (0..columns.len()).rev().collect() };
        for index in order {
            let middle = |id: &ResourceId| {
                let near = neighbours.get(id).map(Vec::as_slice).unwrap_or_default();
                let sum: f64 = near.iter().filter_map(|other| rank.get(other)).sum();
                if near.is_empty() { rank.get(id).copied().unwrap_or(0.0) } else { sum / near.len() as f64 }
            };
            columns[index].sort_by(|a, b| middle(a).total_cmp(&middle(b)).then_with(|| a.cmp(b)));
            rank.extend(columns[index].iter().enumerate().map(|(row, id)| (*id, row as f64)));
        }
    }
    columns
}

fn escaped(text: &str) -> String {
    harmless_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
