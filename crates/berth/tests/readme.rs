//! The README's first command, as a newcomer runs it, but for the build: this is the binary that was just built.

mod support;

use std::process::{Command, Output};
use support::folder::berth;
use support::ran::run;
use support::root;

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_first_command_ends_with_a_cluster_that_kubectl_talks_to() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let commands: Vec<&str> = readme.lines().filter(|line| line.starts_with("tools/")).collect();
    assert_eq!(commands, ["tools/quickstart", "tools/test"], "the README's two commands");
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.contains("tools/test"), "CI runs the README's test command");

    let folder = tempfile::tempdir().unwrap();
    let mut quickstart = Command::new(root().join("tools/quickstart"));
    quickstart.arg(folder.path()).env("BERTH", env!("CARGO_BIN_EXE_berth")).env("SPEED", "200");
    quickstart.env("BERTH_KEY", "11".repeat(32)).env_remove("BERTH_STATE");
    let output = quickstart.output().unwrap();
    let checks = std::panic::catch_unwind(|| {
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("What to do next"), "{}", said(&output));
        let line = said(&output).lines().find(|l| l.trim_start().starts_with("kubectl ")).map(str::to_owned).unwrap();
        let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "talk").collect();
        let nodes = Command::new(words[0]).args(&words[1..]).current_dir(folder.path()).output().unwrap();
        let text = said(&nodes);
        assert!(nodes.status.success(), "{text}");
        assert_eq!(text.lines().filter(|l| l.contains(" Ready ")).count(), 2, "one node in each pool\n{text}");
    });
    let stopped = run(&mut berth(folder.path(), &["sandbox", "--stop"]));
    if let Err(panic) = checks {
        std::panic::resume_unwind(panic);
    }
    stopped.ok();
}
