//! All that a database holds, read and written without the store.

use crate::*;
use std::collections::BTreeMap;

/// Table, column and type, by the database's own word.
pub async fn columns(place: &StateLocation) -> BTreeMap<String, Vec<(String, bool)>> {
    let text = match place.is_sqlite() {
        true => {
            "SELECT t.name || ' ' || c.name || ' ' || lower(c.type) FROM sqlite_schema t, pragma_table_info(t.name) c \
             WHERE t.type = 'table' AND t.name NOT IN ('sqlite_sequence') ORDER BY t.name, c.cid"
        }
        false => {
            "SELECT table_name || ' ' || column_name || ' ' || data_type FROM information_schema.columns \
             WHERE table_schema = 'public' AND table_name <> 'berth_schema' ORDER BY table_name, ordinal_position"
        }
    };
    let mut tables: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    for line in place.texts(text).await {
        let words: Vec<&str> = line.split(' ').collect();
        tables.entry(words[0].to_owned()).or_default().push((words[1].to_owned(), words[2] == "boolean"));
    }
    tables
}

/// Every row of every table as a line, alike for both databases: columns by name, rows sorted.
pub async fn rows(place: &StateLocation) -> Vec<String> {
    let mut all = Vec::new();
    for (table, mut columns) in columns(place).await {
        columns.sort();
        let cell = |(column, truth): &(String, bool)| match (place.is_sqlite(), truth) {
            (true, true) => format!("json(CASE \"{column}\" WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)"),
            _ => format!("\"{column}\""),
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        let text = match place.is_sqlite() {
            true => format!("SELECT json_array({}) FROM \"{table}\"", cells.join(", ")),
            false => format!("SELECT json_build_array({})::text FROM \"{table}\"", cells.join(", ")),
        };
        for row in place.texts(&text).await {
            let values: Vec<Value> = serde_json::from_str(&row).unwrap();
            let named: serde_json::Map<_, _> = columns.iter().map(|(name, _)| name.clone()).zip(values).collect();
            all.push(format!("{table} {}", Value::Object(named)));
        }
    }
    all.sort();
    all
}

pub async fn all_rows(place: &StateLocation) -> String {
    rows(place).await.join("\n")
}

/// What a restore is to change.
pub fn without_rights(rows: Vec<String>) -> Vec<String> {
    let steady = |row: &String| !row.starts_with("fence ") && !row.contains("\"name\":\"holder\"");
    let lease = |row: String| match row.starts_with("tasks ") {
        true => row.replace("\"lease_until\":7", "\"lease_until\":0"),
        false => row,
    };
    rows.into_iter().filter(steady).map(lease).collect()
}

/// A row in each table that nothing else wrote to, so that none can be forgotten.
pub async fn fill_all_tables(place: &StateLocation) {
    for (table, columns) in columns(place).await {
        if place.number(&format!("SELECT COUNT(*) FROM \"{table}\"")).await > 0 || table == "audit" {
            continue;
        }
        let resource = place.number("SELECT MIN(id) FROM resources").await;
        let number = |name: &str| {
            let number = [
                "_at",
                "_until",
                "_after",
                "_limit",
                "_mark",
                "_seal",
                "generation",
                "fence",
                "priority",
                "attempts",
                "capacity",
            ];
            let exact = ["at", "line", "queued", "running", "places", "turn", "entry", "seq", "id"];
            number.iter().any(|end| name.ends_with(end)) || exact.contains(&name)
        };
        let mut names = Vec::new();
        let mut values = Vec::new();
        for (name, truth) in &columns {
            names.push(format!("\"{name}\""));
            values.push(match name.as_str() {
                "resource_id" | "child" => resource.to_string(),
                "state" => "'running'".into(),
                "id" => "'7'".into(),
                "payload" | "sealed_paths" => "''".into(),
                _ if *truth => "TRUE".into(),
                name if number(name) => "7".into(),
                name => format!("'{name} ü'"),
            });
        }
        let text = format!("INSERT INTO \"{table}\" ({}) VALUES ({})", names.join(", "), values.join(", "));
        assert_eq!(place.sql(&text).await, 1, "{table}");
    }
}
