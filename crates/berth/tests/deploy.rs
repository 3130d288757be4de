//! What is shipped to run Berth with speaks of the program as it is: flags, metrics, alerts.

mod support;

use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::folder::Folder;
use support::root;
use support::server::Server;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn flags_in_help(command: &str) -> BTreeSet<String> {
    let text = Folder::new().berth(&[command, "--help"]).ok().stdout;
    Regex::new(r"--[a-z][a-z-]*").unwrap().find_iter(&text).map(|found| found.as_str().to_owned()).collect()
}

/// (command, flag) of every call of Berth in a text of lines.
fn called(text: &str, is_start: impl Fn(&str) -> Option<&'static str>) -> BTreeSet<(&'static str, String)> {
    let flag = Regex::new(r"(?:^|\s)(--[a-z][a-z-]*)").unwrap();
    let mut command = None;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        command = is_start(line).or(command);
        if let Some(command) = command {
            found.extend(flag.captures_iter(line).map(|captures| (command, captures[1].to_owned())));
        }
    }
    found
}

fn check(place: &str, calls: &BTreeSet<(&'static str, String)>) {
    assert!(!calls.is_empty(), "{place} calls nothing");
    for (command, flag) in calls {
        assert!(flags_in_help(command).contains(flag), "{place}: `berth {command}` has no flag {flag}");
    }
}

#[test]
fn units_call_flags_that_are_there() {
    for (unit, command) in [("berth-server.service", "server"), ("berth-worker@.service", "worker")] {
        let text = read(&format!("deploy/systemd/{unit}"));
        let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        assert!(line.contains(&format!("/berth {command} ")), "{line}");
        check(unit, &called(line, |_| Some(command)));
    }
}

#[test]
fn the_chart_calls_flags_that_are_there() {
    for snapshot in ["small", "full", "servers-only"] {
        let place = format!("charts/berth/ci/{snapshot}.snap.yaml");
        let start = |line: &str| match line.trim() {
            "- server" => Some("server"),
            "- worker" => Some("worker"),
            _ => None,
        };
        check(&place, &called(&read(&place), start));
    }
}

#[test]
fn every_alert_is_explained_and_there_are_no_others() {
    let alerts = read("deploy/prometheus/alerts.yaml");
    let names = |pattern: &str, text: &str| -> BTreeSet<String> {
        Regex::new(pattern).unwrap().captures_iter(text).map(|captures| captures[1].to_owned()).collect()
    };
    let declared = names(r"(?m)^\s*- alert: (\w+)$", &alerts);
    assert!(declared.len() > 5);
    assert_eq!(declared, names(r"(?m)^\| `(Berth\w+)` \|", &read("docs/operations.md")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_alerts_and_docs_are_shown_by_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--sandbox", "--speed", "60", "--audit-head-file", "heads"];
    let server = Server::run(Arc::new(folder), &more);
    let (url, client) = (&server.url, server.http());
    // A family is shown once there is something to count: one resource goes all the way.
    let token = std::fs::read_to_string(server.path().join("berth-server/admin.token")).unwrap();
    let manifest = "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: seen}\n\
                    spec: {networkName: seen, region: fra1}\n";
    let body = serde_json::json!({"files": [{"name": "seen.yaml", "text": manifest}]}).to_string();
    let apply = client.post(format!("{url}/v1/resources")).bearer_auth(token.trim());
    let applied = apply.header("content-type", "application/json").body(body).send().await.unwrap();
    assert_eq!(applied.status(), 200, "{}", applied.text().await.unwrap());
    let mut state = String::new();
    for _ in 0..300 {
        let get = client.get(format!("{url}/v1/resources/CivoVpc/seen")).bearer_auth(token.trim());
        state = get.send().await.unwrap().text().await.unwrap();
        if state.contains("\"state\":\"Ready\"") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(state.contains("\"state\":\"Ready\""), "{state}");

    // The task's report follows the status that says Ready.
    let mut shown = String::new();
    for _ in 0..300 {
        let answer = client.get(format!("{url}/metrics")).send().await.unwrap().error_for_status().unwrap();
        shown = answer.text().await.unwrap();
        if shown.contains("# TYPE berth_reports ") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let families: BTreeSet<&str> =
        shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_whitespace().next()).collect();

    let name = Regex::new(r"\bberth_[a-z_]+\b").unwrap();
    for place in ["deploy/prometheus/alerts.yaml", "docs/operations.md"] {
        let text = read(place);
        let mut named = 0;
        for metric in name.find_iter(&text) {
            let family = ["_total", "_bucket", "_info"]
                .iter()
                .find_map(|end| metric.as_str().strip_suffix(end))
                .unwrap_or(metric.as_str());
            assert!(families.contains(family), "{place}: {} is not shown:\n{shown}", metric.as_str());
            named += 1;
        }
        assert!(named > 5, "{place} names {named} metrics");
    }
}

fn tool(name: &str) -> Command {
    Command::new(root().join("tools").join(name))
}

/// The only archive in a folder.
fn packed(folder: &Path) -> PathBuf {
    let output =
        tool("release").args(["--program", env!("CARGO_BIN_EXE_berth"), "--out"]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

fn installed(archive: &Path, prefix: &Path) -> (bool, String) {
    let output = tool("install").arg(archive).arg("--prefix").arg(prefix).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

#[test]
fn an_archive_is_the_same_each_time_and_installs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (first, second) = (packed(&at("one")), packed(&at("two")));
    let bytes = std::fs::read(&first).unwrap();
    assert!(bytes == std::fs::read(&second).unwrap(), "two archives of one program differ");

    let (is_done, told) = installed(&first, &at("prefix"));
    assert!(is_done && told.contains("is not on your PATH"), "{told}");
    let version = Command::new(at("prefix/bin/berth")).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(version.stdout).unwrap().trim_end(), concat!("berth ", env!("CARGO_PKG_VERSION")));
    for file in ["man/man1/berth-apply.1", "bash-completion/completions/berth", "zsh/site-functions/_berth"] {
        assert!(at("prefix/share").join(file).metadata().unwrap().len() > 0, "{file}");
    }
    let sbom = std::fs::read(at("prefix/share/berth/berth.cdx.json")).unwrap();
    let sbom: serde_json::Value = serde_json::from_slice(&sbom).unwrap();
    let names: BTreeSet<_> = sbom["components"].as_array().unwrap().iter().map(|c| c["name"].as_str()).collect();
    assert!(names.contains(&Some("sqlx-core")) && names.contains(&Some("berth-engine")));
    assert!(!names.contains(&Some("insta")), "only tests use it");

    // Another byte, and another digest beside it: nothing is installed.
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&second, damaged).unwrap();
    let (is_done, told) = installed(&second, &at("refused"));
    assert!(!is_done && told.contains("is not what its digest says"), "{told}");
    std::fs::remove_file(second.with_extension("gz.sha256")).unwrap();
    let (is_done, told) = installed(&second, &at("refused"));
    assert!(!is_done && told.contains(".sha256 is not there"), "{told}");
    assert!(!at("refused").exists());
}

/// Two builds in two folders are compared by the release workflow; here, that it calls what there is.
#[test]
fn the_release_workflow_uses_the_tools() {
    let workflow = read(".github/workflows/release.yml");
    for call in ["tools/release --out dist", "tools/install dist/", "tools/quickstart", "cmp first/"] {
        assert!(workflow.contains(call), "{call}");
    }
}
