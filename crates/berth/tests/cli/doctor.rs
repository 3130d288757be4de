//! `berth doctor`.

use crate::shows;
use crate::support::folder::Folder;
use crate::support::ran::run;

#[test]
fn nothing_installed_and_no_account_is_healthy() {
    shows!("doctor_bare", Folder::new().berth(&["doctor"]).ok());
}

#[test]
fn an_unreachable_cloud_is_a_failure_with_a_cure() {
    let project = Folder::new();
    let mut command = project.command(&["doctor", "-o", "json"]);
    command.env("CIVO_TOKEN", "planted-token").env("CIVO_API_URL", "http://127.0.0.1:9");
    let run = run(&mut command).exits(1);
    assert!(!run.to_string().contains("planted-token"), "{run}");
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["healthy"], false);
    let checks = report["checks"].as_array().unwrap();
    let civo = checks.iter().find(|check| check["name"] == "civo" && check["area"] == "account").unwrap();
    assert_eq!(civo["health"], "failed");
    assert!(!civo["help"].as_array().unwrap().is_empty(), "{civo}");
}

#[test]
fn a_state_that_is_none_is_a_failure() {
    let project = Folder::with(&[(".berth/state.db", "not a database at all, only some text that goes on and on")]);
    let run = project.berth(&["doctor"]).exits(1);
    assert!(run.stdout.contains("✗") && run.stdout.contains("help:"), "{run}");
}
