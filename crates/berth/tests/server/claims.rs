//! What docs/operations.md claims about who is kept from what: every claim names the tests that show it, and they exist.

use crate::support::root;
use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/operations.md");
const TITLE: &str = "## What protects you from whom";

/// Names of all tests of the workspace.
pub fn tests() -> Vec<String> {
    let mut names = Vec::new();
    collect(&root().join("crates"), &mut names);
    names
}

fn collect(folder: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, names);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let file = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let own = text.lines().filter_map(|line| {
                let rest = line.trim_start().strip_prefix("async ").unwrap_or(line.trim_start());
                Some(rest.strip_prefix("fn ")?.split(['(', '<']).next()?.to_owned())
            });
            names.extend(own);
            names.push(file);
        }
    }
}

#[test]
fn every_claim_about_protection_names_its_tests() {
    let page = PAGE.split(TITLE).nth(1).expect("the page is there");
    let page = page.split("\n## ").next().expect("its text");
    let known = tests();
    let mut parties = 0;
    for section in page.split("\n### ").skip(1) {
        parties += 1;
        let rows = section
            .lines()
            .filter(|line| line.starts_with("| ") && !line.starts_with("| claim") && !line.contains("---"));
        let mut claims = 0;
        for row in rows {
            claims += 1;
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let named: Vec<&str> = cells.last().unwrap().split('`').skip(1).step_by(2).collect();
            assert!(!named.is_empty(), "no test is named: {row}");
            for name in named {
                assert!(known.iter().any(|test| test == name), "there is no test `{name}`: {row}");
            }
        }
        assert!(claims > 0, "no claim in {}", section.lines().next().unwrap_or_default());
    }
    assert_eq!(parties, 6, "stranger, member, org admin, worker, database owner, backup holder");
}
