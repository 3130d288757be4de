//! What the lower layers must never depend on, read from Cargo's own graph.

use crate::structure::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A crate, and what it must not reach by its normal dependencies, directly or through others.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    ("berth-model", &["tokio", "sqlx", "sqlx-core", "reqwest", "hyper", "rusqlite", "mio", "socket2"]),
    ("berth-engine", &["sqlx", "sqlx-core", "reqwest", "hyper", "axum", "rusqlite"]),
    ("berth-sandbox", &["berth-model", "berth-engine", "berth-clouds", "berth-store", "berth-server"]),
    ("berth-store", &["berth-clouds", "berth-server", "reqwest", "axum", "tonic"]),
    ("berth-clouds", &["berth-store", "berth-server", "sqlx", "sqlx-core"]),
];

/// Every package with the packages that it depends on in a normal build.
fn graph() -> (BTreeMap<String, String>, BTreeMap<String, Vec<String>>) {
    // Other platforms' packages need not be on this machine.
    let rustc =
        Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into())).arg("-vV").output().expect("rustc runs");
    let about = String::from_utf8(rustc.stdout).expect("text");
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).expect("the host");
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--filter-platform",
            host,
            "--manifest-path",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let list = |value: &Value| value.as_array().cloned().expect("a list");
    let names = list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), text(&package["name"])));
    let nodes = list(&metadata["resolve"]["nodes"]);
    let edges = nodes.iter().map(|node| {
        let is_normal = |dep: &&Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let deps = list(&node["deps"]);
        (text(&node["id"]), deps.iter().filter(is_normal).map(|dep| text(&dep["pkg"])).collect())
    });
    (names.collect(), edges.collect())
}

#[test]
fn lower_layers_stay_free_of_what_is_above_them() {
    let (names, edges) = graph();
    for (layer, forbidden) in FORBIDDEN {
        let root = names.iter().find(|(_, name)| *name == layer).map(|(id, _)| id).expect("the crate is there");
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = vec![root.as_str()];
        let mut seen = BTreeSet::from([root.as_str()]);
        while let Some(id) = next.pop() {
            for dep in edges.get(id).into_iter().flatten() {
                if seen.insert(dep) {
                    came_from.insert(dep, id);
                    next.push(dep);
                }
            }
        }
        assert!(seen.len() > 3, "{layer} depends on nothing: the graph was not read");
        if let Some(id) = seen.iter().find(|id| forbidden.contains(&names[**id].as_str())) {
            let mut path = vec![names[*id].as_str()];
            let mut at = *id;
            while let Some(from) = came_from.get(at) {
                path.push(&names[*from]);
                at = from;
            }
            path.reverse();
            panic!("{layer} must not depend on {}: {}", names[*id], path.join(" -> "));
        }
    }
}

/// The crates in the order of ARCHITECTURE.md's map.
fn map() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the architecture");
    let row = |line: &str| Some(line.strip_prefix("| `crates/")?.split_once('`')?.0.to_owned());
    text.lines().filter_map(row).collect()
}

/// Those of a layer's dependencies that do not stand below it.
fn not_below<'a>(map: &[String], layer: &str, dependencies: &'a [String]) -> Vec<&'a str> {
    let place = |name: &str| map.iter().position(|other| other == name);
    dependencies.iter().map(String::as_str).filter(|name| place(name) <= place(layer)).collect()
}

#[test]
fn dependencies_point_downwards_in_the_map() {
    let map = map();
    let (names, edges) = graph();
    let ours = |id: &String| match names[id].as_str() {
        "berth" => Some("berth".to_owned()),
        name => name.strip_prefix("berth-").map(str::to_owned),
    };
    let crates = std::fs::read_dir(root().join("crates")).expect("the crates").count();
    assert_eq!(map.len(), crates, "each crate has a row in the map: {map:?}");
    for (id, dependencies) in &edges {
        let Some(layer) = ours(id).filter(|name| map.contains(name)) else { continue };
        let dependencies: Vec<String> = dependencies.iter().filter_map(ours).collect();
        assert_eq!(not_below(&map, &layer, &dependencies), Vec::<&str>::new(), "{layer} depends on what is above it");
    }
    assert_eq!(not_below(&map, "engine", &["model".into(), "store".into()]), ["store"]);
}
