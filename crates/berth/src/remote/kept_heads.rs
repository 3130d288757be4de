//! Heads of the audit log that were kept elsewhere, and whether the log still holds them. The hashes are computed here, from the entries
//! themselves, so a server whose log was changed cannot hide that.

use crate::failure::Failure;
use berth_server::client::Client;
use berth_server::pb;
use berth_store::AuditEntry;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

const FILE_BYTES_MAX: u64 = 256 << 20;
const PAGE: u32 = 1000;

/// An entry's number and hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct KeptHead {
    pub id: i64,
    pub hash: String,
}

/// A head that the log does not hold.
pub struct Missing {
    pub head: KeptHead,
    pub reason: Reason,
    /// The log's newest entry.
    last: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The log ends before it.
    Cut,
    /// The entry, or one before it, was changed.
    Changed,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Changed => "changed",
        }
    }
}

impl Missing {
    pub fn text(&self) -> String {
        let id = self.head.id;
        match self.reason {
            Reason::Cut => format!("cut off: entry {id} was kept elsewhere, and the log ends at entry {}\n", self.last),
            Reason::Changed => {
                format!("changed: entry {id}, or one before it, is not the one whose head was kept elsewhere\n")
            }
        }
    }
}

/// The heads in a file, oldest first: lines of `ID HASH`, or JSON objects with `id` and `hash`.
pub fn read(path: &Path) -> Result<Vec<KeptHead>, Failure> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| Failure::caused(format!("cannot read the heads in {}", path.display()), &error))?;
    let heads = parse(&text).map_err(|line| {
        Failure::new(format!("{}:{line}: this is not a head of an audit log", path.display()))
            .help("a line is `ID HASH`, as `berth audit head` prints it, or a line of a server's --audit-head-file")
    })?;
    match heads.is_empty() {
        true => Err(Failure::new(format!("{} holds no head of an audit log", path.display()))
            .help("to keep one:   berth audit head >> FILE")),
        false => Ok(heads),
    }
}

/// `Err` is the number of a line that cannot be read. A last line without its end is one that was being written.
fn parse(text: &str) -> Result<Vec<KeptHead>, usize> {
    let mut heads = Vec::new();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let whole = line.ends_with('\n');
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let head = match line.starts_with('{') {
            true => serde_json::from_str(line).ok(),
            false => line
                .split_once(' ')
                .and_then(|(id, hash)| Some(KeptHead { id: id.parse().ok()?, hash: hash.trim().to_owned() })),
        };
        let good = |head: &KeptHead| head.id >= 0 && head.hash.chars().all(|c| c.is_ascii_hexdigit());
        match head.filter(good) {
            Some(head) => heads.push(head),
            None if !whole => {}
            None => return Err(at + 1),
        }
    }
    heads.sort();
    heads.dedup();
    Ok(heads)
}

/// The first of these that the log does not hold. Reads the log from its end down to the oldest of them.
pub async fn missing(client: &Client, kept: &[KeptHead]) -> Result<Option<Missing>, Failure> {
    let mut wanted: BTreeMap<i64, Vec<&KeptHead>> = BTreeMap::new();
    kept.iter().filter(|head| head.id > 0).for_each(|head| wanted.entry(head.id).or_default().push(head));
    let Some(oldest) = wanted.keys().next().copied() else { return Ok(None) };
    let (mut before, mut last, mut first) = (0, None, None);
    // The hash of the current entry, as recorded in the entry after it.
    let mut expected: Option<String> = None;
    loop {
        let request = pb::AuditRequest { before, page_size: PAGE, ..Default::default() };
        let page =
            client.access().audit(request).await.map_err(|status| Failure::from(client.fault(&status)))?.into_inner();
        for entry in &page.entries {
            let last = *last.get_or_insert(entry.id);
            let hash = computed(entry);
            let follows =
                hash.as_deref() == Some(&entry.hash) && expected.as_ref().is_none_or(|hash| *hash == entry.hash);
            let is_kept = |head: &&KeptHead| head.hash == entry.hash;
            let heads = wanted.remove(&entry.id).unwrap_or_default();
            if let Some(head) = heads.iter().find(|head| !follows || !is_kept(head)) {
                first = Some(Missing { head: (*head).clone(), reason: Reason::Changed, last });
            } else if !follows {
                // All later heads depend on this one.
                let head = KeptHead { id: entry.id, hash: entry.hash.clone() };
                first = Some(Missing { head, reason: Reason::Changed, last });
            }
            expected = Some(entry.previous.clone());
            before = entry.id;
        }
        if page.entries.len() < PAGE as usize || before <= oldest {
            break;
        }
    }
    let last = last.unwrap_or(0);
    let cut = wanted.into_iter().next().and_then(|(_, heads)| heads.first().map(|head| (*head).clone()));
    let reason = |id: i64| if id > last { Reason::Cut } else { Reason::Changed };
    Ok(first.or(cut.map(|head| Missing { reason: reason(head.id), head, last })))
}

fn computed(entry: &pb::AuditEntry) -> Option<String> {
    let known = AuditEntry {
        id: entry.id,
        at: entry.at.parse().ok()?,
        actor: entry.actor.clone(),
        actor_id: entry.actor_id.clone(),
        action: entry.action.clone(),
        target: entry.target.clone(),
        detail: entry.detail.clone(),
        outcome: entry.outcome.clone(),
        hash: entry.hash.clone(),
        previous: entry.previous.clone(),
    };
    Some(known.computed_hash(&entry.previous))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_forms_are_heads() {
        let heads =
            parse("# kept\n12 ab\n{\"at\":\"2026-11-15T00:00:00Z\",\"id\":7,\"hash\":\"cd\"}\n12 ab\n{\"id\":9,\"ha")
                .unwrap();
        let head = |id, hash: &str| KeptHead { id, hash: hash.into() };
        assert_eq!(heads, [head(7, "cd"), head(12, "ab")]);
        assert_eq!(parse("1 ab\nhello\n"), Err(2));
        assert_eq!(parse("-1 ab\n"), Err(1));
        assert_eq!(parse("1 xy\n"), Err(1));
    }
}
