//! A picture: layers from left to right, what needs nothing on the left. A line that passes a layer has a place of its own
//! in it, so that it runs between boxes; places are ordered so that lines cross little.

use super::Graph;
use crate::view::terminal::harmless_line;
use berth_model::ResourceId;
use std::collections::BTreeMap;
use std::fmt::Write;

const BOX_HEIGHT: f64 = 44.0;
/// Height that a passing line takes.
const WAY_HEIGHT: f64 = 14.0;
const GAP_X: f64 = 110.0;
const GAP_Y: f64 = 18.0;
const MARGIN: f64 = 20.0;
/// Average width of a character of the fonts below, a little generous.
const CHAR_WIDTH: f64 = 7.6;
const SWEEPS: usize = 6;
/// Lines that get places of their own; beyond that a picture is a cloud of lines anyway.
const MOST_PLACES: usize = 20_000;

/// A place in a layer: a resource's box, or a line on its way.
struct Slot<'a> {
    id: Option<&'a ResourceId>,
    column: usize,
    near: Vec<usize>,
    rank: f64,
    x: f64,
    y: f64,
    width: f64,
}

impl Slot<'_> {
    fn height(&self) -> f64 {
        if self.id.is_some() { BOX_HEIGHT } else { WAY_HEIGHT }
    }

    fn middle(&self) -> f64 {
        self.y + self.height() / 2.0
    }
}

/// A reference, as the places that its line goes through.
struct Line<'a> {
    field: &'a str,
    through: Vec<usize>,
}

pub fn draw(graph: &Graph) -> String {
    let (mut places, lines, mut columns) = lay_out(graph);
    order(&mut places, &mut columns);
    let (width, height) = position(&mut places, &columns);

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
         .field,.halo{font-size:10px;fill:#57606a;text-anchor:middle}.halo{fill:#fff;stroke:#fff;stroke-width:4px}\
         svg{background:#fff}\
         </style>\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"#8c959f\"/></marker></defs>\n",
    );
    for line in &lines {
        draw_line(&places, line, &mut out);
    }
    for place in &places {
        draw_box(place, &mut out);
    }
    out.push_str("</svg>\n");
    out
}

/// Boxes in their layers, and places for lines in the layers between.
fn lay_out(graph: &Graph) -> (Vec<Slot<'_>>, Vec<Line<'_>>, Vec<Vec<usize>>) {
    let layers = graph.layers();
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); layers.values().max().map_or(0, |deepest| deepest + 1)];
    let mut places: Vec<Slot<'_>> = Vec::new();
    let mut numbers: BTreeMap<&ResourceId, usize> = BTreeMap::new();
    for (id, layer) in &layers {
        let number = add(Some(*id), *layer, &mut places, &mut columns);
        numbers.insert(id, number);
    }
    let mut lines = Vec::new();
    for edge in &graph.edges {
        let (Some(&from), Some(&to)) = (numbers.get(&edge.from), numbers.get(&edge.to)) else { continue };
        // The arrow goes from what is needed to what needs it, as work does.
        let mut through = vec![to];
        if places.len() < MOST_PLACES {
            for column in places[to].column + 1..places[from].column {
                through.push(add(None, column, &mut places, &mut columns));
            }
        }
        through.push(from);
        for pair in through.windows(2) {
            places[pair[0]].near.push(pair[1]);
            places[pair[1]].near.push(pair[0]);
        }
        lines.push(Line { field: &edge.field, through });
    }
    (places, lines, columns)
}

/// Puts a place at the end of a column, and answers its number.
fn add<'a>(id: Option<&'a ResourceId>, column: usize, places: &mut Vec<Slot<'a>>, columns: &mut [Vec<usize>]) -> usize {
    let number = places.len();
    let rank = columns[column].len() as f64;
    columns[column].push(number);
    places.push(Slot { id, column, near: Vec::new(), rank, x: 0.0, y: 0.0, width: 0.0 });
    number
}

/// Sorts each layer by the middle of its neighbours, forth and back a few times.
fn order(places: &mut [Slot<'_>], columns: &mut [Vec<usize>]) {
    for sweep in 0..SWEEPS {
        let forth = sweep % 2 == 0;
        let count = columns.len();
        for step in 0..count {
            let index = if forth { step } else { count - 1 - step };
            let middle = |number: usize| {
                let place: &Slot<'_> = &places[number];
                let near = place.near.iter().map(|other| &places[*other]);
                let near: Vec<f64> =
                    near.filter(|other| (other.column < index) == forth).map(|other| other.rank).collect();
                if near.is_empty() { place.rank } else { near.iter().sum::<f64>() / near.len() as f64 }
            };
            let mut sorted: Vec<(f64, usize)> =
                columns[index].iter().map(|number| (middle(*number), *number)).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (row, (_, number)) in sorted.iter().enumerate() {
                places[*number].rank = row as f64;
            }
            columns[index] = sorted.into_iter().map(|(_, number)| number).collect();
        }
    }
}

/// Gives every place its coordinates, each layer centred, and answers the size of it all.
fn position(places: &mut [Slot<'_>], columns: &[Vec<usize>]) -> (f64, f64) {
    let tall = |column: &Vec<usize>, places: &[Slot<'_>]| {
        column.iter().map(|number| places[*number].height() + GAP_Y).sum::<f64>() - GAP_Y
    };
    let height = columns.iter().map(|column| tall(column, places)).fold(0.0, f64::max) + 2.0 * MARGIN;
    let mut x = MARGIN;
    for column in columns {
        let width = column.iter().filter_map(|number| places[*number].id).map(box_width).fold(120.0, f64::max);
        let mut y = (height - tall(column, places)) / 2.0;
        for number in column {
            let place = &mut places[*number];
            (place.x, place.y, place.width) = (x, y, width);
            y += place.height() + GAP_Y;
        }
        x += width + GAP_X;
    }
    ((x - GAP_X + MARGIN).max(2.0 * MARGIN), height)
}

fn draw_line(places: &[Slot<'_>], line: &Line<'_>, out: &mut String) {
    let first = &places[line.through[0]];
    let (mut x, mut y) = (first.x + first.width, first.middle());
    let mut path = format!("M{x:.1} {y:.1}");
    let mut label = (x, y);
    for number in &line.through[1..] {
        let next = &places[*number];
        let (to_x, to_y) = (next.x, next.middle());
        let bend = ((to_x - x).abs() / 2.0).max(30.0);
        _ = write!(path, "C{:.1} {y:.1} {:.1} {to_y:.1} {to_x:.1} {to_y:.1}", x + bend, to_x - bend);
        // In the middle of the last gap: lines from one box have parted there, and those to one have not met yet.
        label = ((x + to_x) / 2.0, (y + to_y) / 2.0 + 3.0);
        (x, y) = (to_x, to_y);
        if next.id.is_none() {
            x = next.x + next.width;
            _ = write!(path, "H{x:.1}");
        }
    }
    _ = writeln!(out, "<path class=\"line\" marker-end=\"url(#arrow)\" d=\"{path}\"/>");
    // The halo is a text of its own, since not every viewer knows how to paint a stroke below its text.
    for class in ["halo", "field"] {
        let (x, y) = label;
        _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(line.field));
    }
}

fn draw_box(place: &Slot<'_>, out: &mut String) {
    let (Some(id), Slot { x, y, width, .. }) = (place.id, place) else { return };
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

fn box_width(id: &ResourceId) -> f64 {
    let kind = id.kind.chars().count() + if id.env.is_empty() { 0 } else { id.env.chars().count() + 3 };
    id.name.chars().count().max(kind) as f64 * CHAR_WIDTH + 24.0
}

fn escaped(text: &str) -> String {
    harmless_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
