//! Draws the model. Pure: the same model, size and time give the same picture.

use super::model::{Model, Pane, Row, rank};
use crate::args::repeated_flags;
use crate::commands::{events, tasks, workers};
use crate::remote::messages;
use crate::view::resource_view::{self, age};
use crate::view::terminal::harmless_line;
use berth_engine::ResourceState;
use berth_model::ResourceId;
use berth_server::pb;
use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as TableRow, Table, TableState, Wrap};

/// Narrower or lower than this, one pane at a time is shown.
const SIDE_BY_SIDE: u16 = 100;
const STACKED: u16 = 20;
/// Smaller than this, nothing can be read.
const SMALLEST: (u16, u16) = (20, 5);

pub struct Look {
    pub now: Timestamp,
    pub color: bool,
}

pub fn draw(frame: &mut Frame<'_>, model: &Model, look: &Look) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        frame.render_widget(Paragraph::new("too small"), area);
        return;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    frame.render_widget(Paragraph::new(heading(model, look)), head);
    frame.render_widget(Paragraph::new(footing(model)), foot);
    if area.height < STACKED {
        pane(frame, model, look, model.pane, body);
    } else if area.width < SIDE_BY_SIDE {
        let [first, second] = Layout::vertical([Constraint::Fill(2), Constraint::Fill(1)]).areas(body);
        let other = if model.pane == Pane::Events { Pane::Tasks } else { Pane::Events };
        pane(frame, model, look, model.pane, first);
        pane(frame, model, look, other, second);
    } else {
        let [top, bottom] = Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(body);
        let [fleet, running] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(3)]).areas(top);
        let [happened, who] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(bottom);
        pane(frame, model, look, Pane::Fleet, fleet);
        pane(frame, model, look, Pane::Tasks, running);
        pane(frame, model, look, Pane::Events, happened);
        pane(frame, model, look, Pane::Workers, who);
    }
    if let Some(scrolled) = model.open {
        details(frame, model, look, scrolled, area);
    }
}

fn tint(look: &Look, state: &str) -> Style {
    let style = Style::new();
    if !look.color {
        return if rank(state) < 3 { style.add_modifier(Modifier::BOLD) } else { style };
    }
    if let Some(state) = ResourceState::parse(state) {
        return style.fg(match state {
            ResourceState::Failed | ResourceState::Blocked => Color::Red,
            ResourceState::AwaitingApproval | ResourceState::Pending | ResourceState::Deleting => Color::Yellow,
            ResourceState::Ready => Color::Green,
        });
    }
    match state {
        "failed" => style.fg(Color::Red),
        "queued" | "cancelling" | "cancelled" => style.fg(Color::Yellow),
        "done" => style.fg(Color::Green),
        "running" => style.fg(Color::Cyan),
        _ => style,
    }
}

fn heading<'a>(model: &'a Model, look: &Look) -> Line<'a> {
    let mut spans = vec![Span::styled(" berth ", Style::new().add_modifier(Modifier::BOLD))];
    let mut counts: Vec<(&str, usize)> = model.counts().into_iter().collect();
    counts.sort_by_key(|(state, _)| std::cmp::Reverse(rank(state)));
    for (state, count) in counts {
        spans.push(Span::styled(format!(" {count} {} ", word(state)), tint(look, state)));
    }
    if model.fleet.is_empty() {
        spans.push(Span::raw(if model.loaded { " nothing is applied " } else { " reading … " }));
    } else if model.more {
        spans.push(Span::raw(" and more "));
    }
    let running = model.tasks.iter().filter(|task| task.state == "running").count();
    let queued = model.tasks.iter().filter(|task| task.state == "queued").count();
    spans.push(Span::raw(format!(" {running} running, {queued} queued  {}", harmless_line(&model.place))));
    Line::from(spans)
}

fn word(state: &str) -> String {
    match ResourceState::parse(state) {
        Some(ResourceState::AwaitingApproval) => "awaiting approval".into(),
        _ => state.to_lowercase(),
    }
}

fn footing(model: &Model) -> Line<'_> {
    if model.typing {
        return Line::from(format!(" /{}▏", harmless_line(&model.filter)));
    }
    let keys = match model.open {
        Some(_) => " j k scroll   esc close",
        None => " tab pane   j k move   enter details   / filter   q quit",
    };
    let mut line = String::from(keys);
    if !model.filter.is_empty() {
        line = format!(" /{}   esc clears {line}", harmless_line(&model.filter));
    }
    if let Some(trouble) = &model.trouble {
        line = format!(" {}; trying again   q quit", harmless_line(trouble));
    }
    Line::from(line)
}

fn pane(frame: &mut Frame<'_>, model: &Model, look: &Look, pane: Pane, area: Rect) {
    let focused = model.pane == pane;
    let (header, widths, rows) = rows(model, look, pane, area.width);
    let border =
        if focused { Style::new().add_modifier(Modifier::BOLD) } else { Style::new().add_modifier(Modifier::DIM) };
    let mark = if focused { "▸ " } else { " " };
    let title = format!("{mark}{} ({}) ", pane.title(), rows.len());
    let block = Block::bordered().title(title).border_style(border);
    let table = Table::new(rows, widths)
        .header(TableRow::new(header).style(Style::new().add_modifier(Modifier::DIM)))
        .column_spacing(1)
        .row_highlight_style(if focused { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() })
        .block(block);
    let mut state = TableState::default().with_selected(model.chosen(pane));
    frame.render_stateful_widget(table, area, &mut state);
}

type Rows = (Vec<&'static str>, Vec<Constraint>, Vec<TableRow<'static>>);

fn cell(text: &str) -> Cell<'static> {
    Cell::from(harmless_line(text.lines().next().unwrap_or_default()).into_owned())
}

/// As wide as the longest name, and at most half of the pane: the names are what people look for.
fn names_width<'a>(names: impl Iterator<Item = &'a String>, width: u16) -> Constraint {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    Constraint::Length(u16::try_from(longest).unwrap_or(u16::MAX).clamp(8, (width / 2).max(8)))
}

fn rows(model: &Model, look: &Look, pane: Pane, width: u16) -> Rows {
    match pane {
        Pane::Fleet => fleet_rows(model, look, width),
        Pane::Tasks => task_rows(model, look, width),
        Pane::Events => event_rows(model, look, width),
        Pane::Workers => worker_rows(model, look),
    }
}

fn fleet_rows(model: &Model, look: &Look, width: u16) -> Rows {
    let called = |id: &ResourceId| match id.env.as_str() {
        "" => id.to_string(),
        env => format!("{id} ({env})"),
    };
    let names: Vec<String> = model.shown_fleet().iter().map(|(id, _)| called(id)).collect();
    let row = |(id, row): (&ResourceId, &Row)| {
        let state = cell(&word(&row.state)).style(tint(look, &row.state));
        TableRow::new([state, cell(&called(id)), cell(&fleet_note(row))])
    };
    let rows = model.shown_fleet().into_iter().map(row).collect();
    let widths = vec![Constraint::Length(9), names_width(names.iter(), width), Constraint::Fill(1)];
    (vec!["STATE", "RESOURCE", "NOTE"], widths, rows)
}

/// Version and nodes of a resource that is ready; else what keeps it from being so.
fn fleet_note(row: &Row) -> String {
    match (ResourceState::parse(&row.state), row.drifted) {
        (Some(ResourceState::Ready), true) => "drifted".to_owned(),
        (Some(ResourceState::Ready), false) => {
            let nodes = match row.nodes.as_str() {
                "" => String::new(),
                "1" => "1 node".to_owned(),
                nodes => format!("{nodes} nodes"),
            };
            [row.version.as_str(), &nodes].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ")
        }
        _ => row.message.clone(),
    }
}

fn task_rows(model: &Model, look: &Look, width: u16) -> Rows {
    let names: Vec<String> = model.shown_tasks().into_iter().map(tasks::about).collect();
    let row = |task: &pb::Task| {
        let state = tasks::state(task).to_owned();
        let clock = match task.state.as_str() {
            "queued" => age(messages::time(&task.created_at), look.now),
            _ => tasks::took(task, look.now),
        };
        TableRow::new([
            cell(&state).style(tint(look, &state)),
            cell(&task.op),
            cell(&tasks::about(task)),
            cell(&clock),
            cell(&task.message),
        ])
    };
    let rows = model.shown_tasks().into_iter().map(row).collect();
    let widths = vec![
        Constraint::Length(10),
        Constraint::Length(6),
        names_width(names.iter(), width),
        Constraint::Length(6),
        Constraint::Fill(1),
    ];
    (vec!["STATE", "OP", "ABOUT", "AGE", "DOING"], widths, rows)
}

fn event_rows(model: &Model, look: &Look, width: u16) -> Rows {
    let about = |event: &pb::Event| messages::id_of(event.resource.as_ref()).to_string();
    let names: Vec<String> = model.shown_events().into_iter().map(about).collect();
    let row = |event: &pb::Event| {
        let at = messages::time(&event.at);
        TableRow::new([cell(&age(at, look.now)), cell(&about(event)), cell(&events::what(event))])
    };
    let rows = model.shown_events().into_iter().map(row).collect();
    let widths = vec![Constraint::Length(5), names_width(names.iter(), width), Constraint::Fill(1)];
    (vec!["AGE", "RESOURCE", "WHAT"], widths, rows)
}

fn worker_rows(model: &Model, look: &Look) -> Rows {
    let row = |worker: &pb::Worker| {
        TableRow::new([
            cell(&worker.name),
            cell(&workers::busy(worker)),
            cell(&workers::seen(worker, look.now)),
            cell(workers::state(worker, look.now)),
        ])
    };
    let rows = model.shown_workers().into_iter().map(row).collect();
    let widths = vec![Constraint::Fill(1), Constraint::Length(7), Constraint::Length(8), Constraint::Length(8)];
    (vec!["NAME", "BUSY", "SEEN", "STATE"], widths, rows)
}

/// Everything about what is chosen, name by name.
fn chosen_details(model: &Model, look: &Look) -> Vec<(String, String)> {
    let Some(at) = model.chosen(model.pane) else { return Vec::new() };
    let own = |(name, value): (&'static str, String)| (name.to_owned(), value);
    match model.pane {
        Pane::Fleet => match model.shown_fleet().get(at) {
            Some((id, row)) => vec![
                own(("resource", id.to_string())),
                own(("org", resource_view::or_dash(&id.org))),
                own(("env", resource_view::or_dash(&id.env))),
                own(("state", row.state.clone())),
                own(("message", resource_view::or_dash(&row.message))),
                own(("version", resource_view::or_dash(&row.version))),
                own(("nodes", resource_view::or_dash(&row.nodes))),
                own(("drift", if row.drifted { "yes".into() } else { "-".into() })),
                own(("more", repeated_flags::command("describe", id))),
            ],
            None => Vec::new(),
        },
        Pane::Tasks => {
            let shown = model.shown_tasks();
            let Some(task) = shown.get(at) else { return Vec::new() };
            let mut rows: Vec<_> = tasks::details(task, look.now).into_iter().map(own).collect();
            rows.push(("log".into(), format!("berth tasks logs {}", task.id)));
            rows
        }
        Pane::Events => match model.shown_events().get(at) {
            Some(event) => vec![
                own(("event", event.id.to_string())),
                own(("at", event.at.clone())),
                own(("resource", messages::id_of(event.resource.as_ref()).to_string())),
                own(("what", event.what.clone())),
                own(("detail", resource_view::or_dash(&event.detail))),
                own(("task", resource_view::or_dash(&event.task))),
            ],
            None => Vec::new(),
        },
        Pane::Workers => match model.shown_workers().get(at) {
            Some(worker) => vec![
                own(("worker", worker.name.clone())),
                own(("busy", workers::busy(worker))),
                own(("seen", workers::seen(worker, look.now))),
                own(("state", workers::state(worker, look.now).into())),
                own(("version", resource_view::or_dash(&worker.version))),
                own(("services", workers::services(worker))),
            ],
            None => Vec::new(),
        },
    }
}

fn details(frame: &mut Frame<'_>, model: &Model, look: &Look, scrolled: u16, area: Rect) {
    let rows = chosen_details(model, look);
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines: Vec<Line<'_>> =
        rows.iter().map(|(name, value)| Line::from(format!("{name:<width$}  {}", harmless_line(value)))).collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let inner = area.inner(ratatui::layout::Margin::new(2.min(area.width / 8), 1));
    let place = Rect { height: height.max(inner.height.min(5)).min(inner.height), ..inner };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(format!(" {} ", model.pane.title()));
    let text = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((scrolled, 0)).block(block);
    frame.render_widget(text, place);
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
