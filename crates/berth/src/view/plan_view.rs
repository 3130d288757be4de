//! A plan as people and programs see it.

use crate::args::address::Names;
use crate::view::confirm::loses;
use crate::view::terminal::{PIPE_WIDTH, harmless_line, stdout_width};
use anstyle::{AnsiColor, Style};
use berth_engine::unit::{Op, Stray};
use berth_engine::{
    Action, ChangeEffect, FieldChange, GoneCount, KNOWN_AFTER_APPLY, Plan, PlanReason, ResourcePlan, UnitPlan,
    is_unknown,
};
use serde_json::Value;

const ADD: Style = AnsiColor::Green.on_default();
const CHANGE: Style = AnsiColor::Yellow.on_default();
const REMOVE: Style = AnsiColor::Red.on_default();
/// Beyond this many changed resources, fields are shown by `-o wide` only.
const DETAILED: usize = 40;
/// A long value is cut to the line's end; `-o wide` and JSON have it whole.
const VALUE_AT: usize = 40;
const NARROWEST_VALUE: usize = 20;

/// The plan and its summary line, which says what has to be allowed that is not.
pub fn text(plan: &Plan, wide: bool, allowed: bool) -> String {
    let changed = plan.resources.iter().filter(|r| r.action != Action::Unchanged).count();
    let detailed = wide || changed <= DETAILED;
    let names = Names::of(plan.resources.iter().map(|r| &r.id));
    let width = names.width().max(28);
    let line = stdout_width().unwrap_or(PIPE_WIDTH);
    let room = if wide { usize::MAX } else { line.saturating_sub(VALUE_AT).max(NARROWEST_VALUE) };
    let mut text = much_gone(&plan.much_gone);
    let mut hidden = 0;
    for resource in &plan.resources {
        // In a large fleet what stays the same is only counted.
        let calm = resource.action == Action::Unchanged && resource.strays.is_empty();
        if calm && !wide && plan.resources.len() > DETAILED {
            hidden += 1;
            continue;
        }
        let style = style(resource.action);
        text.push_str(&format!("  {:<width$}  {style}{}{style:#}\n", names.name(&resource.id), headline(resource)));
        if detailed {
            for unit in &resource.units {
                unit_lines(&mut text, resource, unit, room);
            }
        }
        for stray in &resource.strays {
            text.push_str(&format!("    {REMOVE}!{REMOVE:#} {}\n", stray_text(stray)));
            if resource.action == Action::Delete {
                text.push_str("      it is deleted too\n");
            } else {
                text.push_str(&format!("      to delete it:   {}\n", harmless_line(&stray.remove)));
            }
        }
    }
    if hidden > 0 {
        text.push_str(&format!("  … and {hidden} unchanged\n"));
    }
    text.push('\n');
    text.push_str(&summary(plan, allowed));
    text.push('\n');
    text
}

/// Said first, since everything after it follows from it.
pub fn much_gone(accounts: &[GoneCount]) -> String {
    let line = |much: &GoneCount| {
        let line =
            format!("{much} at once: a wrong token, address or region, or an outage of the cloud, looks like this");
        format!("  {REMOVE}{}{REMOVE:#}\n\n", harmless_line(&line))
    };
    accounts.iter().map(line).collect()
}

/// An object that a create made besides the one that is used.
pub fn stray_text(stray: &Stray) -> String {
    let kind = stray.unit_type.rsplit('.').next().unwrap_or_default();
    harmless_line(&format!("made twice: {kind} {} is there too, and not used", stray.id)).into_owned()
}

fn style(action: Action) -> Style {
    match action {
        Action::Unchanged => Style::new(),
        Action::Create | Action::Resume => ADD,
        Action::Update => CHANGE,
        Action::Replace | Action::Delete => REMOVE,
    }
}

fn headline(resource: &ResourcePlan) -> String {
    let mut line = match resource.action {
        Action::Unchanged => "unchanged".to_owned(),
        Action::Create => "create".to_owned(),
        Action::Resume => "go on with what an earlier run began".to_owned(),
        Action::Delete => "delete".to_owned(),
        Action::Update => match rules_changed(resource) {
            Some((added, removed)) => format!("update   {}", rules_text(added, removed)),
            None if resource.units.iter().any(rolls) => "update, with new nodes for old ones".to_owned(),
            None if loses(resource) => "update, with something taken away".to_owned(),
            None => "update in place".to_owned(),
        },
        Action::Replace => {
            let forcing = resource.units.iter().flat_map(|u| &u.changes).find(|c| c.effect == ChangeEffect::Replace);
            match forcing {
                Some(change) => format!("replace: {} cannot change in place", change.field),
                None => "replace".to_owned(),
            }
        }
    };
    if let Some(reason) = resource.units.iter().filter_map(|u| u.reason).find(|r| *r == PlanReason::DeletedOutside) {
        line.push_str(&format!(" ({reason})"));
    }
    if let Some(seconds) = resource.typical_seconds.filter(|_| resource.action != Action::Unchanged) {
        line.push_str(&format!(", about {}", about(seconds)));
    }
    line
}

fn about(seconds: u64) -> String {
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

/// How many rules come and go, when a firewall's rules are all that changes.
fn rules_changed(resource: &ResourcePlan) -> Option<(usize, usize)> {
    let mut changes = resource.units.iter().flat_map(|u| &u.changes);
    let change = changes.next().filter(|c| c.field == "rules")?;
    if changes.next().is_some() {
        return None;
    }
    let (added, removed) = elements(change)?;
    Some((added.len(), removed.len()))
}

fn rules_text(added: usize, removed: usize) -> String {
    let count = |n: usize, what: &str| format!("{n} rule{} {what}", if n == 1 { "" } else { "s" });
    match (added, removed) {
        (added, 0) => count(added, "added"),
        (0, removed) => count(removed, "removed"),
        (added, removed) => format!("{}, {removed} removed", count(added, "added")),
    }
}

fn unit_lines(text: &mut String, resource: &ResourcePlan, unit: &UnitPlan, room: usize) {
    let Some(op) = unit.op else { return };
    let whole = resource.action == Action::Create || resource.action == Action::Delete;
    if op == Op::Delete {
        if !whole {
            let why = unit.reason.map(|reason| format!("  ({reason})")).unwrap_or_default();
            text.push_str(&format!("    {REMOVE}-{REMOVE:#} {}{why}\n", unit.key));
        }
        return;
    }
    let prefix = if unit.at.is_empty() { String::new() } else { format!("{}.", unit.at) };
    if op == Op::Create && !whole {
        text.push_str(&format!("    {ADD}+{ADD:#} {}\n", unit.key));
    }
    for change in &unit.changes {
        change_lines(text, &prefix, change, op, room);
    }
    if op == Op::Replace && unit.key.starts_with("pool") && !unit.delete_first || rolls(unit) {
        text.push_str("      new pool first, old nodes drained after\n");
    } else if op == Op::Replace && unit.loses_data {
        text.push_str("      the old one is deleted first, with everything in it\n");
    }
}

/// Whether its nodes are replaced by others.
fn rolls(unit: &UnitPlan) -> bool {
    unit.changes.iter().any(|c| c.effect == ChangeEffect::Roll)
}

fn change_lines(text: &mut String, prefix: &str, change: &FieldChange, op: Op, room: usize) {
    let field = format!("{prefix}{}", change.field);
    if op == Op::Create {
        text.push_str(&format!("    {ADD}+{ADD:#} {field:<32}  {}\n", cut(value_text(&change.to), room)));
        return;
    }
    if let Some((added, removed)) = elements(change) {
        if change.field != "rules" {
            text.push_str(&format!("    {CHANGE}~{CHANGE:#} {field}\n"));
        }
        for element in added {
            text.push_str(&format!("    {ADD}+{ADD:#} {}\n", element_text(element)));
        }
        for element in removed {
            text.push_str(&format!("    {REMOVE}-{REMOVE:#} {}\n", element_text(element)));
        }
        return;
    }
    // Both sides of a change have to be seen.
    let half = (room / 2).max(NARROWEST_VALUE);
    let (from, to) = (cut(value_text(&change.from), half), cut(value_text(&change.to), half));
    text.push_str(&format!("    {CHANGE}~{CHANGE:#} {field:<32}  {from} -> {to}\n"));
}

/// What comes and what goes, for a field that is a list.
fn elements(change: &FieldChange) -> Option<(Vec<&Value>, Vec<&Value>)> {
    let (Value::Array(from), Value::Array(to)) = (&change.from, &change.to) else { return None };
    if is_unknown(&change.to) {
        return None;
    }
    let added = to.iter().filter(|v| !from.contains(v)).collect();
    let removed = from.iter().filter(|v| !to.contains(v)).collect();
    Some((added, removed))
}

/// A firewall rule reads as a sentence, a taint as kubectl writes it; anything else as it is.
fn element_text(value: &Value) -> String {
    if let (Some(key), Some(effect)) = (value["key"].as_str(), value["effect"].as_str()) {
        return harmless_line(&format!("{key}={}:{effect}", value["value"].as_str().unwrap_or_default())).into_owned();
    }
    let Some(rule) = value.as_object().filter(|o| o.contains_key("protocol")) else { return value_text(value) };
    let part = |name: &str| rule.get(name).and_then(Value::as_str).filter(|s| !s.is_empty());
    let mut words = Vec::new();
    words.extend(part("action").filter(|a| *a != "allow"));
    words.extend(part("protocol"));
    words.extend(part("ports").or_else(|| part("port_range")));
    let mut line = words.join(" ");
    let cidrs: Vec<&str> =
        rule.get("cidrs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let outward = part("direction").is_some_and(|d| d != "ingress" && d != "inbound");
    if !cidrs.is_empty() {
        line.push_str(&format!(" {} {}", if outward { "to" } else { "from" }, cidrs.join(", ")));
    }
    if let Some(label) = part("label") {
        line.push_str(&format!("  ({label})"));
    }
    harmless_line(&line).into_owned()
}

fn value_text(value: &Value) -> String {
    if is_unknown(value) {
        return KNOWN_AFTER_APPLY.into();
    }
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(element_text).collect::<Vec<_>>().join(", "),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            })
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    };
    harmless_line(&text).into_owned()
}

fn cut(text: String, room: usize) -> String {
    if text.chars().count() <= room {
        return text;
    }
    text.chars().take(room - 1).chain(['…']).collect()
}

pub fn summary(plan: &Plan, allowed: bool) -> String {
    let mut parts = Vec::new();
    for (action, what) in [
        (Action::Unchanged, "unchanged"),
        (Action::Create, "to create"),
        (Action::Resume, "to go on with"),
        (Action::Update, "to update"),
        (Action::Replace, "to replace"),
        (Action::Delete, "to delete"),
    ] {
        let count = plan.count(action);
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let mut line = if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") };
    line.push('.');
    if allowed {
        return line;
    }
    let losing = |of: fn(Action) -> bool| plan.resources.iter().any(|r| of(r.action) && loses(r));
    if losing(|action| action == Action::Replace) {
        line.push_str(" Replacing needs --allow-replace.");
    } else if losing(|action| !matches!(action, Action::Replace | Action::Delete)) {
        line.push_str(" What is taken away needs --allow-replace.");
    }
    if losing(|action| action == Action::Delete) {
        line.push_str(" Deleting needs --allow-delete.");
    }
    if !plan.much_gone.is_empty() {
        line.push_str(" Making again what seems gone needs --allow-recreate.");
    }
    line
}
