//! The tables and columns of a database, read from the database itself: a new table is part of backups without any further change.

use crate::db::{Connection, Row};
use crate::error::StoreError;
use sqlx::AssertSqlSafe;
use std::collections::BTreeSet;

/// What a column holds, whatever the database calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Truth,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: String,
    pub kind: Kind,
    /// The database counts it by itself, and never twice.
    pub counted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub name: String,
    pub columns: Vec<Column>,
}

/// The mark of a schema's version in PostgreSQL, which is no data.
const SCHEMA_MARK: &str = "berth_schema";

const SQLITE_COLUMNS: &str = "SELECT t.name, c.name, c.type, \
     CASE WHEN c.pk = 1 AND t.sql LIKE '%AUTOINCREMENT%' THEN 1 ELSE 0 END \
     FROM sqlite_schema t JOIN pragma_table_info(t.name) c \
     WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY t.name, c.cid";
const SQLITE_REFERENCES: &str = "SELECT t.name, f.\"table\" FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) f \
     WHERE t.type = 'table'";
const POSTGRES_COLUMNS: &str = "SELECT table_name::text, column_name::text, data_type::text, \
     (CASE WHEN is_identity = 'YES' THEN 1 ELSE 0 END)::bigint \
     FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) \
     WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' AND is_generated = 'NEVER' \
     ORDER BY table_name COLLATE \"C\", ordinal_position";
const POSTGRES_REFERENCES: &str = "SELECT c.relname::text, p.relname::text FROM pg_constraint f \
     JOIN pg_class c ON c.oid = f.conrelid JOIN pg_class p ON p.oid = f.confrelid \
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE f.contype = 'f' AND n.nspname = current_schema()";

/// All tables, those that others refer to first.
pub(crate) async fn tables(connection: &mut Connection) -> Result<Vec<Table>, StoreError> {
    let (columns, references) = match connection {
        Connection::Sqlite(_) => (SQLITE_COLUMNS, SQLITE_REFERENCES),
        Connection::Postgres(_) => (POSTGRES_COLUMNS, POSTGRES_REFERENCES),
    };
    let mut tables: Vec<Table> = Vec::new();
    for row in rows(connection, columns.to_owned()).await? {
        let (table, name, kind): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if table == SCHEMA_MARK {
            continue;
        }
        let column = Column { kind: kind_of(&table, &name, &kind)?, name, counted: row.get::<i64>(3)? == 1 };
        match tables.last_mut() {
            Some(last) if last.name == table => last.columns.push(column),
            _ => tables.push(Table { name: table, columns: vec![column] }),
        }
    }
    let mut refers = BTreeSet::new();
    for row in rows(connection, references.to_owned()).await? {
        refers.insert((row.get::<String>(0)?, row.get::<String>(1)?));
    }
    Ok(parents_first(tables, &refers))
}

fn kind_of(table: &str, column: &str, declared: &str) -> Result<Kind, StoreError> {
    match declared.to_ascii_lowercase().as_str() {
        "text" => Ok(Kind::Text),
        "bigint" | "integer" => Ok(Kind::Number),
        "boolean" => Ok(Kind::Truth),
        other => Err(StoreError::Database(format!("backups know no column of type {other}: {table}.{column}"))),
    }
}

fn parents_first(mut left: Vec<Table>, refers: &BTreeSet<(String, String)>) -> Vec<Table> {
    let mut done: Vec<Table> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |table: &Table| {
            left.iter()
                .any(|other| other.name != table.name && refers.contains(&(table.name.clone(), other.name.clone())))
        };
        // Tables that refer to each other in a circle would never be free: then any order is as good.
        let next = left.iter().position(|table| !waits(table)).unwrap_or(0);
        done.push(left.remove(next));
    }
    done
}

/// The rows of a statement that is made of names from a catalog and numbers of our own.
pub(crate) async fn rows(connection: &mut Connection, text: String) -> Result<Vec<Row>, StoreError> {
    let query = AssertSqlSafe(text);
    match connection {
        Connection::Sqlite(one) => {
            Ok(sqlx::query(query).fetch_all(one.as_mut()).await?.into_iter().map(Row::Sqlite).collect())
        }
        Connection::Postgres(one) => {
            Ok(sqlx::query(query).fetch_all(one.as_mut()).await?.into_iter().map(Row::Postgres).collect())
        }
    }
}

/// A name as both databases read it. Names come from a catalog, never from a backup.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first() {
        let table = |name: &str| Table { name: name.into(), columns: Vec::new() };
        let pair = |child: &str, parent: &str| (child.to_owned(), parent.to_owned());
        let refers = BTreeSet::from([pair("a", "c"), pair("c", "d"), pair("d", "d"), pair("b", "a")]);
        let sorted = parents_first(["a", "b", "c", "d"].map(table).to_vec(), &refers);
        assert_eq!(sorted.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["d", "c", "a", "b"]);
        let circle = BTreeSet::from([pair("a", "b"), pair("b", "a")]);
        assert_eq!(parents_first(["a", "b"].map(table).to_vec(), &circle).len(), 2);
    }
}
