//! What `berth watch` shows and where its user is in it. Pure: no terminal, no clock, no server.

use crate::remote::messages;
use berth_engine::ResourceState;
use berth_model::ResourceId;
use berth_server::pb;
use std::collections::{BTreeMap, VecDeque};

/// Events that are kept to be looked at.
const EVENTS_KEPT: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    Fleet,
    Tasks,
    Events,
    Workers,
}

impl Pane {
    pub const ALL: [Pane; 4] = [Pane::Fleet, Pane::Tasks, Pane::Events, Pane::Workers];

    pub fn title(self) -> &'static str {
        match self {
            Pane::Fleet => "Fleet",
            Pane::Tasks => "Tasks",
            Pane::Events => "Events",
            Pane::Workers => "Workers",
        }
    }

    fn index(self) -> usize {
        Pane::ALL.iter().position(|pane| *pane == self).unwrap_or(0)
    }

    fn step(self, by: usize) -> Pane {
        Pane::ALL[(self.index() + by) % Pane::ALL.len()]
    }
}

/// One resource, in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub state: String,
    pub message: String,
    pub version: String,
    pub nodes: String,
    pub drifted: bool,
}

impl Row {
    pub fn of(resource: &pb::Resource) -> Self {
        let facts = messages::map(resource.facts.as_ref());
        let fact = |name: &str| facts.get(name).map(crate::view::resource_view::value_text).unwrap_or_default();
        let failed = ResourceState::parse(&resource.state) == Some(ResourceState::Failed);
        let state = if resource.deleting && !failed { ResourceState::Deleting.as_str() } else { &resource.state };
        Self {
            state: state.to_owned(),
            message: resource.message.clone(),
            version: fact("version"),
            nodes: fact("nodes"),
            drifted: !resource.drift.is_empty(),
        }
    }
}

#[derive(Debug)]
pub struct Model {
    /// Who answers.
    pub place: String,
    pub fleet: BTreeMap<ResourceId, Row>,
    /// There are more than are looked at.
    pub more: bool,
    /// All pages were read once.
    pub loaded: bool,
    pub tasks: Vec<pb::Task>,
    /// Newest first.
    pub events: VecDeque<pb::Event>,
    pub workers: Vec<pb::Worker>,
    /// Why nothing new comes, while nothing does.
    pub trouble: Option<String>,
    pub pane: Pane,
    chosen: [usize; 4],
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The details of what is chosen are open, scrolled down so far.
    pub open: Option<u16>,
}

/// What a key means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    NextPane,
    PreviousPane,
    Enter,
    Escape,
    Back,
    Type(char),
    Interrupt,
}

/// Lines of a page, for keys that move by one.
const PAGE: usize = 10;

impl Model {
    pub fn new(place: String) -> Self {
        Self {
            place,
            fleet: BTreeMap::new(),
            more: false,
            loaded: false,
            tasks: Vec::new(),
            events: VecDeque::new(),
            workers: Vec::new(),
            trouble: None,
            pane: Pane::Tasks,
            chosen: [0; 4],
            filter: String::new(),
            typing: false,
            open: None,
        }
    }

    pub fn see(&mut self, event: pb::Event) {
        self.events.push_front(event);
        self.events.truncate(EVENTS_KEPT);
    }

    pub fn put(&mut self, id: ResourceId, resource: Option<&pb::Resource>) {
        match resource {
            Some(resource) => _ = self.fleet.insert(id, Row::of(resource)),
            None => _ = self.fleet.remove(&id),
        }
    }

    /// How many are in each state, by its name.
    pub fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for row in self.fleet.values() {
            *counts.entry(row.state.as_str()).or_default() += 1;
        }
        counts
    }

    fn has(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// What is not well first, then by name.
    pub fn shown_fleet(&self) -> Vec<(&ResourceId, &Row)> {
        let mut shown: Vec<(&ResourceId, &Row)> = self
            .fleet
            .iter()
            .filter(|(id, row)| self.has(&format!("{id} {} {} {} {}", id.env, id.org, row.state, row.message)))
            .collect();
        shown.sort_by_key(|(id, row)| (rank(&row.state), *id));
        shown
    }

    /// What runs first, then what waits, then what is over.
    pub fn shown_tasks(&self) -> Vec<&pb::Task> {
        let mut shown: Vec<&pb::Task> = self
            .tasks
            .iter()
            .filter(|task| {
                let about = messages::id_of(task.resource.as_ref());
                self.has(&format!("{} {about} {} {} {} {}", task.id, task.op, task.state, task.worker, task.message))
            })
            .collect();
        let place = |task: &pb::Task| ["running", "queued"].iter().position(|state| *state == task.state).unwrap_or(2);
        shown.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| b.created_at.cmp(&a.created_at)));
        shown
    }

    pub fn shown_events(&self) -> Vec<&pb::Event> {
        let about = |event: &pb::Event| messages::id_of(event.resource.as_ref());
        self.events.iter().filter(|e| self.has(&format!("{} {} {}", about(e), e.what, e.detail))).collect()
    }

    pub fn shown_workers(&self) -> Vec<&pb::Worker> {
        self.workers.iter().filter(|worker| self.has(&worker.name)).collect()
    }

    fn len(&self, pane: Pane) -> usize {
        match pane {
            Pane::Fleet => self.shown_fleet().len(),
            Pane::Tasks => self.shown_tasks().len(),
            Pane::Events => self.shown_events().len(),
            Pane::Workers => self.shown_workers().len(),
        }
    }

    /// Which line of a pane is chosen; always one that is there.
    pub fn chosen(&self, pane: Pane) -> Option<usize> {
        self.len(pane).checked_sub(1).map(|last| self.chosen[pane.index()].min(last))
    }

    /// Takes a key in. Answers whether to go on.
    pub fn press(&mut self, key: Key) -> bool {
        if key == Key::Interrupt {
            return false;
        }
        if self.typing {
            match key {
                Key::Type(letter) => self.filter.push(letter),
                Key::Back => _ = self.filter.pop(),
                Key::Enter => self.typing = false,
                Key::Escape => {
                    self.typing = false;
                    self.filter.clear();
                }
                _ => {}
            }
            return true;
        }
        if let Some(scrolled) = self.open {
            self.open = match key {
                Key::Escape | Key::Enter | Key::Back | Key::Type('q') => None,
                Key::Down | Key::Type('j') => Some(scrolled.saturating_add(1)),
                Key::Up | Key::Type('k') => Some(scrolled.saturating_sub(1)),
                _ => Some(scrolled),
            };
            return true;
        }
        match key {
            Key::Type('q') => return false,
            Key::Down | Key::Type('j') => self.step(1),
            Key::Up | Key::Type('k') => self.step(-1),
            Key::PageDown => self.step(PAGE as isize),
            Key::PageUp => self.step(-(PAGE as isize)),
            Key::Home | Key::Type('g') => self.chosen[self.pane.index()] = 0,
            Key::End | Key::Type('G') => self.chosen[self.pane.index()] = usize::MAX,
            Key::NextPane => self.pane = self.pane.step(1),
            Key::PreviousPane => self.pane = self.pane.step(Pane::ALL.len() - 1),
            Key::Enter => self.open = self.chosen(self.pane).map(|_| 0),
            Key::Type('/') => self.typing = true,
            Key::Escape => self.filter.clear(),
            _ => {}
        }
        true
    }

    fn step(&mut self, by: isize) {
        let now = self.chosen(self.pane).unwrap_or(0);
        self.chosen[self.pane.index()] = now.saturating_add_signed(by).min(self.len(self.pane).saturating_sub(1));
    }
}

/// What needs someone comes first.
pub fn rank(state: &str) -> usize {
    match ResourceState::parse(state) {
        Some(ResourceState::Failed) => 0,
        Some(ResourceState::Blocked) => 1,
        Some(ResourceState::AwaitingApproval) => 2,
        Some(ResourceState::Deleting) => 3,
        Some(ResourceState::Pending) | None => 4,
        Some(ResourceState::Ready) => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, state: &str) -> pb::Task {
        pb::Task { id: id.into(), state: state.into(), op: "apply".into(), ..Default::default() }
    }

    #[test]
    fn keys_move_within_what_is_shown() {
        let mut model = Model::new(String::new());
        model.tasks = vec![task("done-1", "done"), task("queued-1", "queued"), task("run-1", "running")];
        let order: Vec<&str> = model.shown_tasks().iter().map(|task| task.id.as_str()).collect();
        assert_eq!(order, ["run-1", "queued-1", "done-1"]);
        for (key, chosen) in [(Key::Down, 1), (Key::Type('j'), 2), (Key::Down, 2), (Key::Up, 1), (Key::End, 2)] {
            assert!(model.press(key));
            assert_eq!(model.chosen(Pane::Tasks), Some(chosen), "{key:?}");
        }
        // A shorter list keeps a line chosen that is there.
        model.tasks.truncate(1);
        assert_eq!(model.chosen(Pane::Tasks), Some(0));
        model.press(Key::NextPane);
        assert_eq!((model.pane, model.chosen(Pane::Events)), (Pane::Events, None));
        model.press(Key::Enter);
        assert_eq!(model.open, None, "there is nothing to open");
        model.press(Key::PreviousPane);
        model.press(Key::Enter);
        assert!(model.open.is_some() && model.press(Key::Type('q')) && model.open.is_none());
        assert!(!model.press(Key::Type('q')));
    }

    #[test]
    fn a_filter_narrows_every_pane_and_escape_ends_it() {
        let mut model = Model::new(String::new());
        model.tasks = vec![task("one", "running"), task("two", "running")];
        for key in [Key::Type('/'), Key::Type('T'), Key::Type('w'), Key::Type('q'), Key::Back, Key::Enter] {
            assert!(model.press(key), "a letter that is typed is not a command");
        }
        assert_eq!((model.filter.as_str(), model.typing), ("Tw", false));
        assert_eq!(model.shown_tasks().len(), 1);
        model.press(Key::Escape);
        assert_eq!(model.shown_tasks().len(), 2);
        assert!(!model.press(Key::Interrupt));
    }

    #[test]
    fn events_are_bounded_and_newest_first() {
        let mut model = Model::new(String::new());
        for id in 1..=600 {
            model.see(pb::Event { id, ..Default::default() });
        }
        assert_eq!((model.events.len(), model.events[0].id), (EVENTS_KEPT, 600));
    }
}
