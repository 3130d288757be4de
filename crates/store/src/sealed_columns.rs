//! Every column that holds sealed text: how to page through it, what its places are, and how to put a value back only where
//! the old one still stands. A test looks for sealed text in all other columns.

use crate::db::Row;
use crate::error::StoreError;
use crate::rows::id_at;
use crate::seal::{PREFIX, Unopened};
use crate::sealed_place::{SealNumber, SealedPlace};
use berth_model::ResourceId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Part of a row's key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    Number(i64),
    Text(String),
}

/// A row with sealed text in it.
pub(crate) struct Sealed {
    pub key: Vec<Cell>,
    pub text: String,
    /// Whose it is, for rows that are a resource's.
    id: Option<ResourceId>,
    /// JSON pointers of a manifest's secrets.
    paths: String,
    /// Where the row has one.
    pub number: Option<SealNumber>,
}

impl Sealed {
    /// For errors.
    pub fn of(&self, column: &SealedColumn) -> String {
        match (&self.id, self.key.first()) {
            (Some(id), _) => format!("{id} ({})", column.name),
            (None, Some(Cell::Text(key))) => format!("{} {key}", column.name),
            _ => column.name.to_owned(),
        }
    }

    /// For columns whose places have one.
    fn number(&self) -> SealNumber {
        self.number.unwrap_or(SealNumber::NONE)
    }

    fn id(&self) -> Result<&ResourceId, Unopened> {
        self.id.as_ref().ok_or(Unopened::Bad)
    }

    fn word(&self, part: usize) -> &str {
        match self.key.get(part) {
            Some(Cell::Text(text)) => text,
            _ => "",
        }
    }
}

pub(crate) struct SealedColumn {
    pub name: &'static str,
    /// A key before the first row's.
    pub start: &'static [Start],
    /// Parameters: the last row's key, then how many. Rows that may hold sealed text.
    pub page: &'static str,
    pub put: Put,
    pub read: fn(&Row) -> Result<Sealed, StoreError>,
    shape: Shape,
}

/// Writes a row's new text if the old one is still there. Parameters: the row's key, the old text, the new one, and the new
/// seal number where the row has one.
pub(crate) struct Put {
    pub sqlite: &'static str,
    /// A row that another transaction has locked is left for the next pass: waiting for it while holding locks on others could
    /// end in a deadlock.
    pub postgres: &'static str,
}

#[derive(Clone, Copy)]
pub(crate) enum Start {
    Number,
    Text,
}

impl SealedColumn {
    pub fn first_key(&self) -> Vec<Cell> {
        let before = |start: &Start| match start {
            Start::Number => Cell::Number(i64::MIN),
            Start::Text => Cell::Text(String::new()),
        };
        self.start.iter().map(before).collect()
    }

    /// Hands each sealed text in a row with its place to `turn`, and gives the row's new text if any of them changed.
    pub fn each(
        &self,
        row: &Sealed,
        mut turn: impl FnMut(&SealedPlace, &str) -> Result<Option<String>, Unopened>,
    ) -> Result<Option<String>, Unopened> {
        let bad = |_| Unopened::Bad;
        match self.shape {
            Shape::Manifest => {
                let mut manifest: Value = serde_json::from_str(&row.text).map_err(bad)?;
                let paths: Vec<String> = serde_json::from_str(&row.paths).map_err(bad)?;
                let mut changed = false;
                for path in &paths {
                    let slot = manifest.pointer_mut(path).ok_or(Unopened::Bad)?;
                    let text = slot.as_str().ok_or(Unopened::Bad)?;
                    if let Some(new) = turn(&SealedPlace::manifest(row.id()?, path, row.number()), text)? {
                        *slot = Value::String(new);
                        changed = true;
                    }
                }
                Ok(changed.then(|| manifest.to_string()))
            }
            Shape::Map(place) => {
                let mut sealed: BTreeMap<String, String> = serde_json::from_str(&row.text).map_err(bad)?;
                let mut changed = false;
                for (name, text) in &mut sealed {
                    if let Some(new) = turn(&place(row, name)?, text)? {
                        *text = new;
                        changed = true;
                    }
                }
                if changed { serde_json::to_string(&sealed).map(Some).map_err(bad) } else { Ok(None) }
            }
            // A value that is not sealed, such as the name of the state's holder.
            Shape::Text(_) if !row.text.starts_with(PREFIX) => Ok(None),
            Shape::Text(place) => turn(&place(row), &row.text),
        }
    }
}

enum Shape {
    /// A JSON document with sealed texts at known pointers.
    Manifest,
    /// A JSON object of sealed texts by name.
    Map(fn(&Sealed, &str) -> Result<SealedPlace, Unopened>),
    /// The text itself.
    Text(fn(&Sealed) -> SealedPlace),
}

/// Compare and swap, for each database. `$set` is what else is written.
macro_rules! put {
    ($table:literal, $column:literal, $key:literal, $old:literal, $new:literal $(, $set:literal)?) => {
        Put {
            sqlite: concat!(
                "UPDATE ", $table, " SET ", $column, " = ", $new $(, ", ", $set)?,
                " WHERE ", $key, " AND ", $column, " = ", $old
            ),
            postgres: concat!(
                "UPDATE ", $table, " SET ", $column, " = ", $new $(, ", ", $set)?,
                " WHERE ctid = (SELECT ctid FROM ", $table, " WHERE ", $key, " AND ", $column, " = ", $old,
                " FOR UPDATE SKIP LOCKED)"
            ),
        }
    };
}

pub(crate) const SEALED_COLUMNS: &[SealedColumn] = &[
    SealedColumn {
        name: "meta.value",
        start: &[Start::Text],
        page: "SELECT name, value FROM meta WHERE name > $1 ORDER BY name LIMIT $2",
        put: put!("meta", "value", "name = $1", "$2", "$3"),
        read: |row| Ok(once(text(row, 0)?, row.get(1)?)),
        shape: Shape::Text(|row| SealedPlace::meta(row.word(0))),
    },
    SealedColumn {
        name: "resources.manifest",
        start: &[Start::Number],
        page: "SELECT id, kind, name, org, env, sealed_paths, manifest, manifest_seal FROM resources \
               WHERE id > $1 AND sealed_paths <> '' ORDER BY id LIMIT $2",
        put: put!("resources", "manifest", "id = $1", "$2", "$3", "manifest_seal = $4"),
        read: |row| {
            let (key, id) = (vec![number(row, 0)?], Some(id_at(row, 1)?));
            Ok(Sealed { key, id, paths: row.get(5)?, text: row.get(6)?, number: seal_number(row, 7)? })
        },
        shape: Shape::Manifest,
    },
    SealedColumn {
        name: "resources.secrets",
        start: &[Start::Number],
        page: "SELECT id, kind, name, org, env, secrets, secrets_seal FROM resources \
               WHERE id > $1 AND secrets <> '' ORDER BY id LIMIT $2",
        put: put!("resources", "secrets", "id = $1", "$2", "$3", "secrets_seal = $4"),
        read: |row| {
            let (key, id) = (vec![number(row, 0)?], Some(id_at(row, 1)?));
            Ok(Sealed { key, id, paths: String::new(), text: row.get(5)?, number: seal_number(row, 6)? })
        },
        shape: Shape::Map(|row, name| Ok(SealedPlace::status(row.id()?, name, row.number()))),
    },
    SealedColumn {
        name: "revisions.manifest",
        start: &[Start::Number, Start::Number],
        page: "SELECT v.resource_id, v.generation, r.kind, r.name, r.org, r.env, v.sealed_paths, v.manifest, \
               v.manifest_seal FROM revisions v JOIN resources r ON r.id = v.resource_id \
               WHERE (v.resource_id, v.generation) > ($1, $2) AND v.sealed_paths <> '' \
               ORDER BY v.resource_id, v.generation LIMIT $3",
        put: put!("revisions", "manifest", "resource_id = $1 AND generation = $2", "$3", "$4", "manifest_seal = $5"),
        read: |row| {
            let key = vec![number(row, 0)?, number(row, 1)?];
            let (id, number) = (Some(id_at(row, 2)?), seal_number(row, 8)?);
            Ok(Sealed { key, id, paths: row.get(6)?, text: row.get(7)?, number })
        },
        shape: Shape::Manifest,
    },
    SealedColumn {
        name: "units.secrets",
        start: &[Start::Number, Start::Text, Start::Text],
        page: "SELECT u.resource_id, u.unit_key, u.token, r.kind, r.name, r.org, r.env, u.secrets, \
               u.secrets_seal FROM units u JOIN resources r ON r.id = u.resource_id \
               WHERE (u.resource_id, u.unit_key, u.token) > ($1, $2, $3) AND u.secrets <> '' \
               ORDER BY u.resource_id, u.unit_key, u.token LIMIT $4",
        put: put!(
            "units",
            "secrets",
            "resource_id = $1 AND unit_key = $2 AND token = $3",
            "$4",
            "$5",
            "secrets_seal = $6"
        ),
        read: |row| {
            let key = vec![number(row, 0)?, text(row, 1)?, text(row, 2)?];
            let (id, number) = (Some(id_at(row, 3)?), seal_number(row, 8)?);
            Ok(Sealed { key, id, paths: String::new(), text: row.get(7)?, number })
        },
        shape: Shape::Map(|row, name| Ok(SealedPlace::unit(row.id()?, row.word(1), row.word(2), name, row.number()))),
    },
    SealedColumn {
        name: "tasks.payload",
        start: &[Start::Text],
        page: "SELECT id, payload FROM tasks WHERE id > $1 AND payload <> '' ORDER BY id LIMIT $2",
        put: put!("tasks", "payload", "id = $1", "$2", "$3"),
        read: |row| Ok(once(text(row, 0)?, row.get(1)?)),
        shape: Shape::Text(|row| SealedPlace::payload(row.word(0))),
    },
    SealedColumn {
        name: "tasks.result",
        start: &[Start::Text],
        page: "SELECT id, result FROM tasks WHERE id > $1 AND result <> '' ORDER BY id LIMIT $2",
        put: put!("tasks", "result", "id = $1", "$2", "$3"),
        read: |row| Ok(once(text(row, 0)?, row.get(1)?)),
        shape: Shape::Text(|row| SealedPlace::result(row.word(0))),
    },
];

/// A row whose text has no seal number.
fn once(key: Cell, text: String) -> Sealed {
    Sealed { key: vec![key], text, id: None, paths: String::new(), number: None }
}

fn seal_number(row: &Row, column: usize) -> Result<Option<SealNumber>, StoreError> {
    row.get(column).map(|number| Some(SealNumber(number)))
}

fn number(row: &Row, column: usize) -> Result<Cell, StoreError> {
    row.get(column).map(Cell::Number)
}

fn text(row: &Row, column: usize) -> Result<Cell, StoreError> {
    row.get(column).map(Cell::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new column with secrets must be listed, so that key rotation reaches it.
    #[test]
    fn every_place_in_the_state_is_in_the_list() {
        let source = include_str!("sealed_place.rs");
        let places: Vec<&str> = source
            .split("Self::new(\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .filter(|place| !["file.manifest", "wrapped data key"].contains(place))
            .collect();
        assert!(places.len() >= 6, "{places:?}");
        for place in places {
            let name = if place == "meta" { "meta.value" } else { place };
            assert!(SEALED_COLUMNS.iter().any(|column| column.name == name), "{place} is not in SEALED_COLUMNS");
        }
    }
}
