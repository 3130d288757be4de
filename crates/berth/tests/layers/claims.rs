//! What ARCHITECTURE.md says is absent from a layer is absent from its sources, and what it names is there.

use crate::product_sources;
use crate::structure::{root, scan};
use berth_engine::ResourceState;

/// Files of `clouds` that pause between calls, each with the reason. No file of a cloud does.
const PAUSES: [(&str, &str); 3] = [
    ("http/hold.rs", "no call is made while a cloud says that it takes none"),
    ("http/mod.rs", "reads are tried again"),
    ("kube/drain.rs", "pods that leave are looked at again until the limit of this one look"),
];

/// The lines of a crate's sources without tests and comments: file from the crate's `src`, number, code.
fn code(name: &str) -> Vec<(String, usize, String)> {
    let folder = root().join("crates").join(name).join("src");
    let mut found = Vec::new();
    for path in product_sources(name) {
        let file = path.strip_prefix(&folder).expect("below the folder").display().to_string();
        let text = std::fs::read_to_string(&path).expect("a source");
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = scan::lines(product).into_iter().enumerate();
        found.extend(lines.map(|(number, line)| (file.clone(), number + 1, line.code)));
    }
    assert!(found.len() > 500, "{name} was not read");
    found
}

/// All lines of a crate that break a rule.
fn offending(name: &str, breaks: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let offending = code(name).into_iter().filter(|(file, _, code)| breaks(file, code));
    offending.map(|(file, number, code)| format!("crates/{name}/src/{file}:{number}: {}", code.trim())).collect()
}

#[track_caller]
fn none(what: &str, offending: &[String]) {
    assert!(offending.is_empty(), "{what}:\n{}", offending.join("\n"));
}

/// Whether a line touches files, the network, the environment, a terminal, threads or the clock.
fn does_io(code: &str) -> bool {
    const WAYS: [&str; 14] = [
        "std::fs",
        "std::env::",
        "std::io",
        "std::process",
        "std::thread",
        "File::",
        "TcpStream",
        "UdpSocket",
        "Instant::now",
        "SystemTime",
        "Timestamp::now",
        "Zoned::now",
        "println!",
        "tokio::",
    ];
    WAYS.iter().any(|way| code.contains(way))
}

fn pauses(code: &str) -> bool {
    ["sleep(", "sleep_until(", "interval(", "interval_at("].iter().any(|way| code.contains(way))
}

/// Whether a line of the store decides what an event means: it names a state, or writes what a transition says by cases.
fn decides(code: &str) -> bool {
    const OF_TRANSITIONS: [&str; 9] = [
        "state",
        "message",
        "observed_generation",
        "due_at",
        "due_mark",
        "drift_at",
        "plan_digest",
        "approved_by",
        "deleting",
    ];
    let names_a_state = ResourceState::ALL.iter().any(|state| {
        [format!("'{state}'"), format!("\"{state}\"")].iter().any(|literal| code.contains(literal.as_str()))
    });
    let words: Vec<&str> = code.split([' ', ',', '"', '(']).filter(|word| !word.is_empty()).collect();
    let by_cases = |three: &[&str]| three[1] == "=" && three[2] == "CASE" && OF_TRANSITIONS.contains(&three[0]);
    names_a_state || words.windows(3).any(by_cases)
}

#[test]
fn the_model_does_no_io() {
    none("the model does I/O", &offending("model", |_, code| does_io(code)));
}

#[test]
fn handlers_of_clouds_do_not_wait() {
    let allowed = |file: &str| PAUSES.iter().any(|(other, _)| *other == file);
    none("a cloud waits", &offending("clouds", |file, code| pauses(code) && !allowed(file)));
    for (file, _) in PAUSES {
        assert!(!offending("clouds", |other, code| file == other && pauses(code)).is_empty(), "{file} pauses no more");
    }
}

#[test]
fn the_store_of_a_server_decides_nothing() {
    none("the store decides", &offending("store", |file, code| file.starts_with("control") && decides(code)));
    none("the store names a state", &offending("store", |_, code| decides(code) && !code.contains("CASE")));
}

#[test]
fn the_rules_see_what_breaks_them() {
    assert!(does_io("let text = std::fs::read_to_string(path)?;") && !does_io("use std::fmt;"));
    assert!(pauses("tokio::time::sleep(PAUSE).await;") && !pauses("tokio::time::timeout(limit, call).await"));
    assert!(decides("\"UPDATE resources SET state = CASE WHEN $2 THEN $3 ELSE state END\""));
    assert!(decides("WHERE state = 'Ready'") && decides("if row.state == \"Failed\" {"));
    assert!(!decides("secrets = CASE WHEN v.secrets = '' THEN resources.secrets ELSE v.secrets END \\"));
}

/// Foreign code is forbidden everywhere but in `memory`.
#[test]
fn one_crate_has_foreign_code() {
    let mut own = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates") {
        let path = entry.expect("an entry").path();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        if !manifest.contains("[lints]\nworkspace = true") {
            own.push(path.file_name().expect("a name").to_string_lossy().into_owned());
        }
    }
    assert_eq!(own, ["memory"], "crates without the lints of the workspace");
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
}

/// Paths in backticks, with `<cloud>` for any cloud.
fn paths(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_path = |word: &&str| {
        ["crates/", "proto/", "docs/", "tools/"].iter().any(|start| word.starts_with(start)) && !word.contains(' ')
    };
    quoted.filter(is_path).map(str::to_owned).collect()
}

#[test]
fn every_path_of_the_architecture_is_there() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the architecture");
    let paths = paths(&text);
    assert!(paths.len() > 10, "{paths:?}");
    for path in paths {
        for cloud in berth_clouds::registry::names() {
            let path = path.replace("<cloud>", cloud);
            assert!(root().join(&path).exists(), "ARCHITECTURE.md names {path}, which is not there");
        }
    }
}
