//! One type of cloud object: found by id, listed by any key, gone when its time has come.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::clock::SimTime;

/// How many ids of objects that disappeared are remembered.
const MAX_DEPARTED: usize = 1000;

/// What a cloud keeps in a `Table`.
pub trait Object: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// Stable name of the type in the state file and the ledger, such as `civo.cluster`.
    const TYPE: &'static str;

    /// Whether the ledger shows it. What a client neither makes nor deletes by itself, such as a remembered token, is left out.
    const IN_LEDGER: bool = true;

    fn id(&self) -> &str;

    /// Every key under which the object is to be found or listed: `name:shop`, `region:fra1`, `network:ID`.
    fn keys(&self) -> Vec<String>;

    /// When the object disappears; `None` while it is not being deleted.
    fn gone_at(&self) -> Option<SimTime>;

    /// What it counts against a quota (a cluster: its nodes). Summed over the table.
    fn weight(&self) -> u64 {
        0
    }

    /// Name, region and key fields for the ledger; `type` and `id` are added. A null leaves the object out: it is only
    /// remembered, no longer there.
    fn ledger(&self, now: SimTime) -> Value;
}

/// Rows keep the order of their creation. Index lists are sorted vectors: a page is a slice, and taking one
/// entry out of ten thousand moves 80 kB at worst.
pub struct Table<T> {
    rows: HashMap<u64, T>,
    ids: HashMap<String, u64>,
    index: HashMap<String, Vec<u64>>,
    all: Vec<u64>,
    leaving: BTreeSet<(SimTime, u64)>,
    /// Ids of what disappeared when its time had come, the latest last.
    departed: VecDeque<String>,
    changed: Vec<u64>,
    removed: Vec<u64>,
    /// What rows were before they changed, oldest first: for lists that are behind. Kept while `memory` is not zero.
    past: VecDeque<Past<T>>,
    memory: Duration,
    next: u64,
    weight: u64,
    created: u64,
    deleted: u64,
}

/// A row as it was until `at`; `None` when it was not there yet.
struct Past<T> {
    at: Instant,
    seq: u64,
    before: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table {
            rows: HashMap::new(),
            ids: HashMap::new(),
            index: HashMap::new(),
            all: Vec::new(),
            leaving: BTreeSet::new(),
            departed: VecDeque::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            past: VecDeque::new(),
            memory: Duration::ZERO,
            next: 1,
            weight: 0,
            created: 0,
            deleted: 0,
        }
    }
}

impl<T: Object> Table<T> {
    /// Adds a new object. An object with the same id would be a bug of the caller: ids are made here or checked before.
    pub fn insert(&mut self, object: T) {
        let seq = self.next;
        self.created += 1;
        self.remember(seq, None);
        self.place(seq, object);
        self.changed.push(seq);
    }

    pub fn get(&self, id: &str) -> Option<&T> {
        self.rows.get(self.ids.get(id)?)
    }

    /// Whether an object with this id was deleted and has disappeared lately.
    pub fn departed(&self, id: &str) -> bool {
        self.departed.iter().any(|gone| gone == id)
    }

    /// Changes one object in place; its keys and its hour of leaving are looked at again afterwards.
    pub fn update<R>(&mut self, id: &str, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let seq = *self.ids.get(id)?;
        let mut object = self.rows.remove(&seq)?;
        self.remember(seq, Some(&object));
        self.unlink(seq, &object);
        let was_leaving = object.gone_at().is_some();
        let result = change(&mut object);
        if !was_leaving && object.gone_at().is_some() {
            self.deleted += 1;
        }
        self.place(seq, object);
        self.changed.push(seq);
        Some(result)
    }

    /// Takes an object out at once, for clouds' deletes that take no time.
    pub fn remove(&mut self, id: &str) -> Option<T> {
        let seq = *self.ids.get(id)?;
        let object = self.take(seq)?;
        if object.gone_at().is_none() {
            self.deleted += 1;
        }
        self.removed.push(seq);
        Some(object)
    }

    /// All objects with a key, oldest first.
    pub fn find<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.seqs(key).iter().filter_map(|seq| self.rows.get(seq))
    }

    pub fn first(&self, key: &str) -> Option<&T> {
        self.find(key).next()
    }

    /// How many objects have a key.
    pub fn count(&self, key: &str) -> usize {
        self.seqs(key).len()
    }

    /// A slice of the objects with a key, oldest first. The empty key lists all.
    pub fn page<'a>(&'a self, key: &str, offset: usize, limit: usize) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let seqs = self.seqs(key);
        let from = offset.min(seqs.len());
        let to = offset.saturating_add(limit).min(seqs.len());
        seqs[from..to].iter().filter_map(|seq| self.rows.get(seq))
    }

    /// All objects with a key as they were so long ago, oldest first. The empty key lists all.
    pub fn behind(&self, key: &str, lag: Duration) -> Vec<&T> {
        if lag.is_zero() {
            return self.seqs(key).iter().filter_map(|seq| self.rows.get(seq)).collect();
        }
        let now = Instant::now();
        let mut rows: BTreeMap<u64, &T> = self.rows.iter().map(|(seq, row)| (*seq, row)).collect();
        for past in self.past.iter().rev().take_while(|past| now.duration_since(past.at) < lag) {
            match &past.before {
                Some(row) => _ = rows.insert(past.seq, row),
                None => _ = rows.remove(&past.seq),
            }
        }
        rows.into_values().filter(|row| key.is_empty() || row.keys().iter().any(|own| own == key)).collect()
    }

    fn remember(&mut self, seq: u64, before: Option<&T>) {
        if self.memory.is_zero() {
            return;
        }
        let at = Instant::now();
        while self.past.front().is_some_and(|past| at.duration_since(past.at) > self.memory) {
            self.past.pop_front();
        }
        self.past.push_back(Past { at, seq, before: before.cloned() });
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter().filter_map(|seq| self.rows.get(seq))
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn weight(&self) -> u64 {
        self.weight
    }

    fn seqs(&self, key: &str) -> &[u64] {
        if key.is_empty() {
            return &self.all;
        }
        self.index.get(key).map(Vec::as_slice).unwrap_or(&[])
    }

    fn place(&mut self, seq: u64, object: T) {
        self.next = self.next.max(seq + 1);
        self.ids.insert(object.id().to_owned(), seq);
        self.weight += object.weight();
        for key in object.keys() {
            add(self.index.entry(key).or_default(), seq);
        }
        add(&mut self.all, seq);
        if let Some(at) = object.gone_at() {
            self.leaving.insert((at, seq));
        }
        self.rows.insert(seq, object);
    }

    /// `all` and `ids` stay as they are: the caller either places the object again or takes it out.
    fn unlink(&mut self, seq: u64, object: &T) {
        self.weight = self.weight.saturating_sub(object.weight());
        for key in object.keys() {
            if let Some(list) = self.index.get_mut(&key) {
                drop_from(list, seq);
                if list.is_empty() {
                    self.index.remove(&key);
                }
            }
        }
        if let Some(at) = object.gone_at() {
            self.leaving.remove(&(at, seq));
        }
    }

    fn take(&mut self, seq: u64) -> Option<T> {
        let object = self.rows.remove(&seq)?;
        self.remember(seq, Some(&object));
        self.unlink(seq, &object);
        self.ids.remove(object.id());
        drop_from(&mut self.all, seq);
        Some(object)
    }
}

fn add(list: &mut Vec<u64>, seq: u64) {
    if let Err(at) = list.binary_search(&seq) {
        list.insert(at, seq);
    }
}

fn drop_from(list: &mut Vec<u64>, seq: u64) {
    if let Ok(at) = list.binary_search(&seq) {
        list.remove(at);
    }
}

/// What the world does with every table, whatever it holds.
pub trait AnyTable: Send {
    fn type_name(&self) -> &'static str;
    fn in_ledger(&self) -> bool;
    /// For how long lists can be behind: changes are remembered for that time from now on.
    fn set_memory(&mut self, memory: Duration);
    /// Lets go of what has reached its time.
    fn sweep(&mut self, now: SimTime);
    /// Appends one line of the state file for each change since the last call.
    fn drain(&mut self, out: &mut Vec<u8>) -> Result<(), serde_json::Error>;
    /// Forgets which rows changed, for a world without a state file.
    fn settle(&mut self);
    /// Appends every row as a line of the state file.
    fn dump(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error>;
    fn restore(&mut self, seq: u64, object: Value) -> Result<(), serde_json::Error>;
    fn forget(&mut self, seq: u64);
    fn totals(&self) -> (u64, u64);
    fn set_totals(&mut self, created: u64, deleted: u64);
    fn ledger(&self, now: SimTime, out: &mut Vec<Value>);
}

#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(rename = "type")]
    type_name: &'a str,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a T>,
}

impl<T: Object> Table<T> {
    fn line(&self, seq: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(&mut *out, &Line { type_name: T::TYPE, seq, object: self.rows.get(&seq) })?;
        out.push(b'\n');
        Ok(())
    }
}

impl<T: Object> AnyTable for Table<T> {
    fn type_name(&self) -> &'static str {
        T::TYPE
    }

    fn in_ledger(&self) -> bool {
        T::IN_LEDGER
    }

    fn set_memory(&mut self, memory: Duration) {
        self.memory = memory;
        if memory.is_zero() {
            self.past.clear();
        }
    }

    fn sweep(&mut self, now: SimTime) {
        while let Some(&(at, seq)) = self.leaving.first() {
            if at > now {
                break;
            }
            self.leaving.pop_first();
            if let Some(object) = self.take(seq) {
                if self.departed.len() == MAX_DEPARTED {
                    self.departed.pop_front();
                }
                self.departed.push_back(object.id().to_owned());
            }
        }
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        if self.changed.is_empty() && self.removed.is_empty() {
            return Ok(());
        }
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let removed = std::mem::take(&mut self.removed);
        for seq in changed.into_iter().filter(|seq| self.rows.contains_key(seq)) {
            self.line(seq, out)?;
        }
        for seq in removed {
            self.line(seq, out)?;
        }
        Ok(())
    }

    fn settle(&mut self) {
        self.changed.clear();
        self.removed.clear();
    }

    fn dump(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        self.all.iter().try_for_each(|seq| self.line(*seq, out))
    }

    fn restore(&mut self, seq: u64, object: Value) -> Result<(), serde_json::Error> {
        let object: T = serde_json::from_value(object)?;
        match self.take(seq) {
            Some(old) => self.deleted += u64::from(old.gone_at().is_none() && object.gone_at().is_some()),
            None => self.created += 1,
        }
        self.place(seq, object);
        Ok(())
    }

    fn forget(&mut self, seq: u64) {
        self.next = self.next.max(seq + 1);
        if let Some(old) = self.take(seq) {
            self.deleted += u64::from(old.gone_at().is_none());
        }
    }

    fn totals(&self) -> (u64, u64) {
        (self.created, self.deleted)
    }

    fn set_totals(&mut self, created: u64, deleted: u64) {
        (self.created, self.deleted) = (created, deleted);
    }

    fn ledger(&self, now: SimTime, out: &mut Vec<Value>) {
        for object in self.iter() {
            let mut row = object.ledger(now);
            if row.is_null() {
                continue;
            }
            if let Value::Object(fields) = &mut row {
                fields.insert("type".into(), json!(T::TYPE));
                fields.insert("id".into(), json!(object.id()));
            }
            out.push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Serialize, Deserialize)]
    struct Thing {
        id: String,
        name: String,
        gone: Option<SimTime>,
    }

    impl Object for Thing {
        const TYPE: &'static str = "test.thing";
        fn id(&self) -> &str {
            &self.id
        }
        fn keys(&self) -> Vec<String> {
            vec![format!("name:{}", self.name), "region:x".into()]
        }
        fn gone_at(&self) -> Option<SimTime> {
            self.gone
        }
        fn weight(&self) -> u64 {
            2
        }
        fn ledger(&self, _now: SimTime) -> Value {
            json!({"name": self.name})
        }
    }

    fn thing(n: usize) -> Thing {
        Thing { id: format!("id{n}"), name: format!("n{n}"), gone: None }
    }

    #[test]
    fn objects_are_found_by_id_and_key_and_listed_in_order() {
        let mut table = Table::default();
        (0..250).for_each(|n| table.insert(thing(n)));
        assert_eq!(table.get("id7").map(|t| t.name.as_str()), Some("n7"));
        assert_eq!(table.first("name:n9").map(|t| t.id.as_str()), Some("id9"));
        let page: Vec<_> = table.page("region:x", 100, 100).map(|t| t.id.clone()).collect();
        assert_eq!((page.len(), page[0].as_str(), page[99].as_str()), (100, "id100", "id199"));
        assert_eq!(table.page("region:x", 200, 100).count(), 50);
        assert_eq!(table.page("region:x", 9000, 100).count(), 0);
        assert_eq!(table.weight(), 500);
    }

    #[test]
    fn a_rename_moves_the_key_and_keeps_the_place() {
        let mut table = Table::default();
        (0..3).for_each(|n| table.insert(thing(n)));
        table.update("id1", |t| t.name = "new".into());
        assert!(table.first("name:n1").is_none());
        assert_eq!(table.first("name:new").map(|t| t.id.as_str()), Some("id1"));
        let order: Vec<_> = table.iter().map(|t| t.id.clone()).collect();
        assert_eq!(order, ["id0", "id1", "id2"]);
        assert_eq!(table.weight(), 6);
    }

    #[test]
    fn what_is_being_deleted_goes_when_its_time_has_come() {
        let mut table = Table::default();
        (0..3).for_each(|n| table.insert(thing(n)));
        table.update("id1", |t| t.gone = Some(SimTime(50)));
        table.sweep(SimTime(49));
        assert!(table.get("id1").is_some());
        table.sweep(SimTime(50));
        assert!(table.get("id1").is_none());
        assert_eq!((table.len(), table.count("region:x"), table.totals()), (2, 2, (3, 1)));
    }

    #[test]
    fn lists_that_are_behind_show_what_was() {
        let lag = Duration::from_millis(200);
        let mut table = Table::default();
        table.set_memory(Duration::from_secs(10));
        (0..3).for_each(|n| table.insert(thing(n)));
        let names = |table: &Table<Thing>, key: &str, lag| -> Vec<String> {
            table.behind(key, lag).iter().map(|thing| thing.name.clone()).collect()
        };
        assert!(names(&table, "", lag).is_empty(), "made a moment ago");
        std::thread::sleep(lag);
        table.update("id0", |t| t.name = "new".into());
        table.update("id1", |t| t.gone = Some(SimTime(5)));
        table.sweep(SimTime(5));
        table.remove("id2");
        table.insert(thing(3));
        assert_eq!(names(&table, "", lag), ["n0", "n1", "n2"]);
        assert_eq!(names(&table, "name:n0", lag), ["n0"]);
        assert_eq!(names(&table, "", Duration::ZERO), ["new", "n3"]);
        std::thread::sleep(lag);
        assert_eq!(names(&table, "region:x", lag), ["new", "n3"]);
    }

    #[test]
    fn drained_lines_rebuild_the_same_table() {
        let (mut table, mut log) = (Table::default(), Vec::new());
        (0..5).for_each(|n| table.insert(thing(n)));
        table.drain(&mut log).unwrap();
        table.update("id2", |t| t.name = "two".into());
        table.remove("id4");
        table.drain(&mut log).unwrap();
        table.drain(&mut log).unwrap();
        assert_eq!(log.iter().filter(|b| **b == b'\n').count(), 7);

        let mut copy = Table::<Thing>::default();
        for line in log.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            let mut line: Value = serde_json::from_slice(line).unwrap();
            let seq = line["seq"].as_u64().unwrap();
            match line["object"].take() {
                Value::Null => copy.forget(seq),
                object => copy.restore(seq, object).unwrap(),
            }
        }
        let names: Vec<_> = copy.iter().map(|t| t.name.clone()).collect();
        assert_eq!(names, ["n0", "n1", "two", "n3"]);
        assert_eq!(copy.totals(), (5, 1));
        copy.insert(thing(9));
        assert_eq!(copy.iter().last().map(|t| t.id.clone()), Some("id9".into()));
    }
}
