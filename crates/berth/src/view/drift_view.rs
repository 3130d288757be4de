//! Drift as people and programs see it: what was declared, what was found, what apply would do about it.

use crate::args::repeated_flags;
pub use crate::view::diagnostics::count;
use crate::view::resource_view;
use crate::view::terminal::harmless_line;
use berth_clouds::Clouds;
pub use berth_engine::Finding;
use berth_engine::{Drifted, Known};
use berth_model::ResourceId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Beyond this many drifted resources, the rest is counted; `-o wide` and JSON have them all.
const SHOWN: usize = 100;
/// A long value is cut on the screen.
const VALUE_WIDTH: usize = 60;

pub type Findings = BTreeMap<ResourceId, Vec<Finding>>;

pub async fn findings(clouds: &Clouds, known: &Known, seen: &Drifted) -> Findings {
    let mut all = Findings::new();
    for (id, drift) in &seen.drifted {
        let units = known.units.get(id).map(Vec::as_slice).unwrap_or_default();
        all.insert(id.clone(), berth_engine::findings(clouds, units, drift).await);
    }
    all
}

pub fn text(findings: &Findings, wide: bool) -> String {
    let mut text = String::new();
    let width = findings.keys().map(|id| id.to_string().chars().count()).max().unwrap_or(0).max(34);
    let shown = if wide { findings.len() } else { SHOWN };
    let fields =
        findings.values().take(shown).flatten().map(|finding| finding.field.chars().count()).max().unwrap_or(0);
    for (id, found) in findings.iter().take(shown) {
        let mut name = id.to_string();
        for finding in found {
            let line = match finding.field.is_empty() {
                true => line(finding),
                false => format!("{:<fields$}   {}", finding.field, line(finding)),
            };
            text.push_str(&format!("  {name:<width$}  {}\n", harmless_line(&line)));
            text.push_str(&format!("  {:<width$}    {}\n", "", harmless_line(&finding.apply)));
            name.clear();
        }
    }
    if findings.len() > shown {
        text.push_str(&format!("  … and {} more; -o wide shows all\n", findings.len() - shown));
    }
    if !findings.is_empty() {
        text.push('\n');
    }
    text
}

fn line(finding: &Finding) -> String {
    if !finding.stray.is_empty() {
        let kind = finding.unit_type.rsplit('.').next().unwrap_or_default();
        return format!("made twice: {kind} {} is there too, and not used", finding.stray);
    }
    if finding.gone {
        let what = if finding.besides { format!("{} ", finding.unit) } else { String::new() };
        return format!("{what}gone: deleted outside");
    }
    if let (Value::Array(declared), Value::Array(found)) = (&finding.declared, &finding.found) {
        let added = found.iter().filter(|value| !declared.contains(value)).collect::<Vec<_>>();
        let removed = declared.iter().filter(|value| !found.contains(value)).collect::<Vec<_>>();
        let list = |what: &str, values: Vec<&Value>| {
            let texts: Vec<String> = values.iter().map(|value| resource_view::value_text(value)).collect();
            (!texts.is_empty()).then(|| format!("{what} outside: {}", cut(&texts.join(", "))))
        };
        return [list("added", added), list("removed", removed)].into_iter().flatten().collect::<Vec<_>>().join("; ");
    }
    format!("{} declared, {} found (changed outside)", value(&finding.declared), value(&finding.found))
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::String(text) if text.is_empty() => "nothing".into(),
        other => cut(&resource_view::value_text(other)),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= VALUE_WIDTH {
        return text.to_owned();
    }
    text.chars().take(VALUE_WIDTH - 1).chain(['…']).collect()
}

/// For one cell of a table.
pub fn short(found: &[Finding]) -> String {
    let Some(first) = found.first() else { return String::new() };
    let line = match first.field.is_empty() {
        true => line(first),
        false => match (&first.declared, &first.found) {
            (Value::Array(_), _) | (_, Value::Array(_)) => format!("{} changed", first.field),
            (declared, found) => format!("{} {} → {}", first.field, value(declared), value(found)),
        },
    };
    if found.len() > 1 { format!("{line}, +{}", found.len() - 1) } else { line }
}

/// What to type about it.
pub fn commands(findings: &Findings) -> String {
    let mut text = String::new();
    let changed = findings.iter().find(|(_, found)| found.iter().any(|finding| !finding.field.is_empty()));
    let gone = findings.iter().find(|(_, found)| found.iter().any(|finding| finding.gone));
    // A command that apply would refuse is not suggested.
    let back = changed.filter(|(_, found)| !found.iter().any(|finding| finding.refused));
    if let Some((id, _)) = back.or(gone.filter(|_| changed.is_none())) {
        text.push_str(&format!("  put back what is declared:   {}\n", repeated_flags::command("apply", id)));
    }
    if let Some((id, _)) = changed {
        text.push_str(&format!("  keep what was found:         {}\n", repeated_flags::command("drift --accept", id)));
    }
    if let Some((id, _)) = gone {
        if changed.is_some() {
            text.push_str(&format!("  make what is gone again:     {}\n", repeated_flags::command("apply", id)));
        }
        text.push_str(&format!("  or forget it:                {}\n", repeated_flags::command("delete", id)));
    }
    text
}

pub fn as_json(findings: &Findings, seen: &Drifted, calls: u64, seconds: f64) -> Value {
    let drifted: Vec<Value> = findings.iter().map(|(id, found)| json!({"resource": id, "findings": found})).collect();
    let troubles: Vec<Value> = seen
        .troubles
        .iter()
        .map(|(id, trouble)| json!({"resource": id, "message": trouble.to_string(), "help": trouble.help_lines()}))
        .collect();
    json!({
        "drifted": drifted,
        "checked": seen.checked,
        "calls": calls,
        "seconds": seconds,
        "troubles": troubles,
        "muchGone": seen.much_gone(),
    })
}
