//! Layers as crates: what the lower ones must never depend on, read from Cargo's own graph.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A crate, and what it must not reach by its normal dependencies, directly or through others.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    ("berth-model", &["tokio", "sqlx", "sqlx-core", "reqwest", "hyper", "rusqlite"]),
    ("berth-engine", &["sqlx", "sqlx-core", "reqwest", "hyper", "axum", "rusqlite"]),
    ("berth-sandbox", &["berth-engine", "berth-clouds", "berth-store", "berth-server"]),
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

/// Sentences that are looked for in a text all the same, each with the reason.
const SENTENCES: [(&str, &str, &str); 4] = [
    (
        "server/src/client.rs",
        "lookup address",
        "the system's resolver has no code for it, and only the advice depends on it",
    ),
    ("store/src/control/writer.rs", "in progress", "what PostgreSQL's pg_xact_status answers is a code"),
    ("berth/src/remote/follow.rs", "queued again", "the name of an event is a code of the API"),
    ("model/src/rule.rs", "Syntax error: ", "the parser of rules gives nothing but a text, which is only worded anew"),
];

/// Ways to look into a text.
const LOOKS: [&str; 10] = [
    ".contains(\"",
    ".starts_with(\"",
    ".ends_with(\"",
    ".strip_prefix(\"",
    ".strip_suffix(\"",
    ".split_once(\"",
    ".rsplit_once(\"",
    ".find(\"",
    "== \"",
    "!= \"",
];

/// The literals of a line that a text is compared with.
fn looked_for(line: &str) -> Vec<&str> {
    let literal = |rest: &str| rest.find('"');
    let mut found: Vec<&str> = Vec::new();
    for look in LOOKS {
        for (at, _) in line.match_indices(look) {
            let rest = &line[at + look.len()..];
            found.extend(literal(rest).map(|end| &rest[..end]));
        }
    }
    // An arm of a match.
    if let Some(rest) = line.trim_start().strip_prefix('"')
        && let Some(end) = literal(rest)
        && rest[end..].contains("=>")
    {
        found.push(&rest[..end]);
    }
    found
}

/// Whether words for people are in it, rather than a name or a code.
fn is_sentence(literal: &str) -> bool {
    let letters: Vec<char> = literal.chars().collect();
    letters.windows(3).any(|three| three[1] == ' ' && three[0].is_lowercase() && three[2].is_lowercase())
}

fn sources(folder: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            into.push(path);
        }
    }
}

#[test]
fn no_decision_is_made_from_words_for_people() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
    let mut used = BTreeSet::new();
    for layer in ["berth", "server", "clouds", "store", "engine", "model"] {
        let mut files = Vec::new();
        sources(&crates.join(layer).join("src"), &mut files);
        assert!(files.len() > 10, "{layer} was not read");
        for file in files {
            let name = file.strip_prefix(crates).expect("below").display().to_string();
            let text = std::fs::read_to_string(&file).expect("a source");
            let code = text.split("\nmod tests").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate() {
                for literal in looked_for(line).into_iter().filter(|literal| is_sentence(literal)) {
                    let excused = SENTENCES.iter().position(|(file, said, _)| *file == name && *said == literal);
                    assert!(
                        excused.is_some(),
                        "{name}:{}: a decision is made from the words `{literal}`: give it a type, a field or a code",
                        number + 1
                    );
                    used.extend(excused);
                }
            }
        }
    }
    assert_eq!(used.len(), SENTENCES.len(), "an excuse that is not needed any more");
}

#[test]
fn words_for_people_are_told_from_codes() {
    assert_eq!(looked_for(r#"if help.contains("run the same command again") {"#), ["run the same command again"]);
    assert_eq!(looked_for(r#"    "being deleted" => Phase::Deleting,"#), ["being deleted"]);
    assert!(
        is_sentence("nothing named") && !is_sentence("already") && !is_sentence(" from ") && !is_sentence("BEGIN KEY")
    );
}

/// Text that names a cloud, for people to read.
const EXAMPLES: [&str; 4] = ["Examples:", "such as ", "\"apiVersion: ", "[\"example\"]"];

/// What differs between clouds stands in their own folders, behind the registries of `clouds` and `sandbox`. Code that names one
/// elsewhere would silently treat the next cloud like one of those that it knows.
#[test]
fn no_code_outside_its_folder_names_a_cloud() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let clouds: Vec<&str> = berth_clouds::registry::names();
    assert!(clouds.len() >= 2);
    let mut files = Vec::new();
    for name in ["berth", "server", "store", "engine", "model", "clouds", "sandbox"] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    // Outside the clouds' own folders, the registries and tests.
    files.retain(|path| {
        let mut parts = path.iter().map(|part| part.to_string_lossy());
        !parts.any(|part| {
            clouds.contains(&&*part) || part == "registry.rs" || part.ends_with("tests.rs") || part == "tests"
        })
    });
    assert!(files.len() > 200, "the sources were not found");
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable");
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default().trim();
            let is_module = line.trim_start_matches("pub ").starts_with("mod ");
            let is_example = EXAMPLES.iter().any(|example| line.contains(example));
            let plain = line.to_lowercase().replace('_', "");
            if !is_module && !is_example && clouds.iter().any(|cloud| plain.contains(cloud)) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{} places name a cloud:\n{}", found.len(), found.join("\n"));
}
