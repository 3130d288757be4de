//! The state of all work as lines of text. Pure, so that it can be tested without a terminal or a clock.

use crate::args::address::Names;
use crate::view::terminal::harmless_line;
use berth_engine::progress::{Progress, Skip};
use berth_model::ResourceId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Live lines at most; a fleet is summed up below them.
pub const MOST_LINES: usize = 20;
/// Fleets larger than this are summed up, and their successes are not listed one by one.
pub const FLEET: usize = 100;
const MESSAGE_WIDTH: usize = 60;
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

#[derive(Debug)]
struct Row {
    /// Order of arrival, so that lines keep their places.
    place: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits { on: String },
    Runs { what: String, since: Duration, typical: Option<Duration> },
}

/// Everything that has begun or waits. Times are measured from the start of the run.
#[derive(Debug, Default)]
pub struct Board {
    total: usize,
    names: Names,
    rows: BTreeMap<ResourceId, Row>,
    arrivals: usize,
    pub done: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Board {
    pub fn new(total: usize, names: Names) -> Self {
        Self { total, names, ..Self::default() }
    }

    fn is_fleet(&self) -> bool {
        self.total > FLEET
    }

    /// Takes an event in. Returns the line that stays, when something ended.
    pub fn see(&mut self, now: Duration, progress: &Progress) -> Option<String> {
        match progress {
            Progress::Waits { resource, on } => {
                self.put(resource, State::Waits { on: self.names.name(on) });
                None
            }
            Progress::Started { resource, verb, typical } => {
                self.put(resource, State::Runs { what: (*verb).to_owned(), since: now, typical: *typical });
                None
            }
            Progress::Doing { resource, what } => {
                match self.rows.get_mut(resource).map(|row| &mut row.state) {
                    Some(State::Runs { what: old, .. }) => old.clone_from(what),
                    _ => self.put(resource, State::Runs { what: what.clone(), since: now, typical: None }),
                }
                None
            }
            Progress::Done { resource, summary, took } => {
                self.rows.remove(resource);
                self.done += 1;
                (!self.is_fleet()).then(|| self.ended("✓", resource, summary, Some(*took)))
            }
            Progress::Failed { resource, trouble } => {
                self.rows.remove(resource);
                self.failed += 1;
                Some(self.ended("✗", resource, &cut(&trouble.to_string()), None))
            }
            Progress::Skipped { resource, because } => {
                self.rows.remove(resource);
                self.skipped += 1;
                (!self.is_fleet()).then(|| self.ended("-", resource, &left_out(because), None))
            }
        }
    }

    fn ended(&self, mark: &str, resource: &ResourceId, what: &str, took: Option<Duration>) -> String {
        let took = took.map(|took| format!("  {}", short(took))).unwrap_or_default();
        let width = self.names.width().clamp(34, 60);
        let what = harmless_line(what.lines().next().unwrap_or_default());
        format!("  {mark} {:width$}  {what}{took}", self.names.name(resource))
    }

    fn put(&mut self, resource: &ResourceId, state: State) {
        match self.rows.get_mut(resource) {
            Some(row) => row.state = state,
            None => {
                self.arrivals += 1;
                self.rows.insert(resource.clone(), Row { place: self.arrivals, state });
            }
        }
    }

    /// The lines to show now: what runs first, then what waits, then a summary where lines were left out.
    pub fn lines(&self, now: Duration, tick: usize, width: usize) -> Vec<String> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(_, row)| (matches!(row.state, State::Waits { .. }), row.place));
        let names = rows.iter().take(MOST_LINES).map(|(id, _)| self.names.name(id).chars().count()).max().unwrap_or(0);
        let mut lines: Vec<String> = rows
            .iter()
            .take(MOST_LINES)
            .map(|(id, row)| match &row.state {
                State::Waits { on } => fit(&format!("  · {:names$}  waits for {on}", self.names.name(id)), "", width),
                State::Runs { what, since, typical } => {
                    let mark = FRAMES[tick % FRAMES.len()];
                    fit(
                        &format!("  {mark} {:names$}  {what}", self.names.name(id)),
                        &clock(now - *since, *typical),
                        width,
                    )
                }
            })
            .collect();
        if rows.len() > MOST_LINES || self.is_fleet() {
            let running = rows.iter().filter(|(_, row)| matches!(row.state, State::Runs { .. })).count();
            let mut summary =
                format!("  {} of {} done, {running} under way", self.done, self.total.max(self.done + rows.len()));
            if self.failed > 0 {
                summary.push_str(&format!(", {} failed", self.failed));
            }
            lines.push(fit(&summary, &short(now), width));
        }
        lines
    }

    /// One line for a log: what this resource is doing now.
    pub fn plain(&self, now: Duration, resource: &ResourceId) -> Option<String> {
        match &self.rows.get(resource)?.state {
            State::Waits { .. } => None,
            State::Runs { what, since, typical } => {
                let name = self.names.name(resource);
                Some(format!("{name}: {} ({})", harmless_line(what), clock(now - *since, *typical)))
            }
        }
    }

    pub fn running(&self) -> impl Iterator<Item = &ResourceId> {
        self.rows.iter().filter(|(_, row)| matches!(row.state, State::Runs { .. })).map(|(id, _)| id)
    }
}

/// Why it is not at its end: the run was, or something that it needs is not.
fn left_out(because: &Skip) -> String {
    match because {
        Skip::Interrupted => because.to_string(),
        _ => format!("not tried: {because}"),
    }
}

/// The whole of it is said, with what to do about it, when the run is over.
fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_WIDTH) {
        Some((at, _)) => format!("{}…", &message[..at]),
        None => message.to_owned(),
    }
}

fn clock(elapsed: Duration, typical: Option<Duration>) -> String {
    match typical {
        Some(typical) => format!("{} of ~{}", short(elapsed), short(typical)),
        None => short(elapsed),
    }
}

/// `3s`, `1m12s`, `2h05m`.
pub fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Text on the left, the clock on the right, never wider than the terminal: a wrapped line would not be erased.
fn fit(left: &str, right: &str, width: usize) -> String {
    let left = harmless_line(left);
    let room = width.saturating_sub(1).min(100).saturating_sub(right.chars().count() + 1);
    let mut line: String = if left.chars().count() > room {
        left.chars().take(room.saturating_sub(1)).chain(['…']).collect()
    } else {
        left.into_owned()
    };
    if !right.is_empty() {
        line.extend(std::iter::repeat_n(' ', room.saturating_sub(line.chars().count()) + 1));
        line.push_str(right);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_engine::handler::Trouble;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn started(name: &str, typical: u64) -> Progress {
        Progress::Started {
            resource: ResourceId::new("CivoKubernetesCluster", name),
            verb: "creating",
            typical: Some(at(typical)),
        }
    }

    #[test]
    fn shows_what_runs_then_what_waits() {
        let mut board = Board::new(3, Names::default());
        let pool = ResourceId::new("CivoKubernetesNodePool", "shop-batch");
        let shop = ResourceId::new("CivoKubernetesCluster", "shop");
        assert_eq!(board.see(at(0), &Progress::Waits { resource: pool, on: shop.clone() }), None);
        board.see(at(3), &started("shop", 90));
        board.see(at(50), &Progress::Doing { resource: shop.clone(), what: "building: 2 of 3 nodes ready".into() });
        insta::assert_snapshot!(board.lines(at(75), 2, 90).join("\n"), @r"
        ⠹ CivoKubernetesCluster/shop         building: 2 of 3 nodes ready       1m12s of ~1m30s
        · CivoKubernetesNodePool/shop-batch  waits for CivoKubernetesCluster/shop
        ");
        let line =
            board.see(at(93), &Progress::Done { resource: shop, summary: "3 nodes, 1.30.5-k3s1".into(), took: at(90) });
        assert_eq!(line.as_deref(), Some("  ✓ CivoKubernetesCluster/shop          3 nodes, 1.30.5-k3s1  1m30s"));
        assert_eq!(board.lines(at(93), 0, 90).len(), 1);
    }

    #[test]
    fn a_fleet_is_bounded_and_summed_up() {
        let mut board = Board::new(10_000, Names::default());
        for i in 0..500 {
            board.see(at(1), &started(&format!("c{i}"), 90));
        }
        let gone = ResourceId::new("CivoKubernetesCluster", "c0");
        assert_eq!(board.see(at(9), &Progress::Done { resource: gone, summary: String::new(), took: at(8) }), None);
        let bad = ResourceId::new("CivoKubernetesCluster", "c1");
        let line = board.see(at(9), &Progress::Failed { resource: bad, trouble: Trouble::refused("quota exceeded") });
        assert!(line.is_some_and(|line| line.contains("quota exceeded")));
        let lines = board.lines(at(10), 0, 80);
        assert_eq!(lines.len(), MOST_LINES + 1);
        assert!(lines[MOST_LINES].starts_with("  1 of 10000 done, 498 under way, 1 failed"), "{}", lines[MOST_LINES]);
        assert!(lines.iter().all(|line| line.chars().count() < 80));
    }

    #[test]
    fn a_name_with_controls_cannot_move_the_cursor() {
        let mut board = Board::new(1, Names::default());
        board.see(at(0), &started("x\u{1b}[2J", 1));
        assert!(!board.lines(at(0), 0, 80).join("").contains('\u{1b}'));
    }

    #[test]
    fn durations_are_short() {
        assert_eq!([short(at(3)), short(at(72)), short(at(7500))], ["3s", "1m12s", "2h05m"]);
    }
}
