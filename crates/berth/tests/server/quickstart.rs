//! The lines of docs/quickstart.md do what it says, with one server and with many.

use crate::support::process::Process;
use crate::support::{free_port, root};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TEXT: &str = include_str!("../../../../docs/quickstart.md");

/// The commands of the block whose first line begins so.
fn lines(first: &str) -> Vec<String> {
    let block = TEXT.split("```sh\n").map(|block| block.split("```").next().unwrap_or_default());
    let block = block.into_iter().find(|block| block.starts_with(first)).expect("the block is there");
    block.lines().map(|line| line.split("  #").next().unwrap_or_default().trim().to_owned()).collect()
}

/// Three free ports in a row, as far as anyone can tell.
pub fn ports() -> u16 {
    loop {
        let first = free_port();
        if (1..3).all(|next| first.checked_add(next).is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()))
        {
            return first;
        }
    }
}

/// A shell in the folder, with `berth` on the PATH and nothing of this user's.
pub fn shell(folder: &Path, line: &str) -> Command {
    let berth = Path::new(env!("CARGO_BIN_EXE_berth"));
    let mut path = std::ffi::OsString::from(berth.parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BERTH")) {
        command.env_remove(name);
    }
    command
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env("XDG_CONFIG_HOME", folder.join("config"))
        .env("XDG_DATA_HOME", folder.join("data"))
        .env("BERTH", berth)
        .env("SPEED", "max")
        .stdin(Stdio::null());
    command
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Starts the line and waits until it has said so.
pub fn started(folder: &Path, line: &str, says: &str) -> Process {
    let mut process = Process::start("served", folder, shell(folder, &format!("exec {line}")));
    process.until_says(says);
    process
}

#[test]
fn one_server_in_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let port = ports();
    let lines = lines("berth server");
    assert_eq!(lines.len(), 6, "{lines:?}");
    let serve = format!("{} --listen 127.0.0.1:{port}", lines[0].replace("--speed 60", "--speed max"));
    let server = started(folder.path(), &serve, "berth login");
    for line in &lines[1..] {
        let output = shell(folder.path(), &line.replace("7443", &port.to_string())).output().unwrap();
        assert!(output.status.success(), "{line}: {}\n{}", said(&output), server.log());
        if line == "berth get" {
            let text = said(&output);
            assert_eq!(text.matches("  yes  ").count(), 4, "{text}");
        }
    }
    assert!(folder.path().join("shop.kubeconfig").exists());
}

#[test]
fn two_servers_three_workers_and_postgresql() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
    // PostgreSQL's own user has to reach its folder.
    done(&shell(folder.path(), "chmod 711 .").output().unwrap());
    let port = ports().to_string();
    let lines = lines("tools/cluster-up");
    assert_eq!(lines.len(), 5, "{lines:?}");
    let run = |line: &str| {
        let line = line.replace("7443", &port).replace("tools/", &format!("{}/tools/", root().display()));
        shell(folder.path(), &line).env("PORT", &port).output().unwrap()
    };
    let down = Down { run: &run, line: lines[4].clone() };
    for line in &lines[..4] {
        let output = run(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        if line == "berth workers" {
            assert!(["w1", "w2", "w3"].iter().all(|name| said(&output).contains(name)), "{}", said(&output));
        }
    }
    let output = run("berth get");
    assert_eq!(said(&output).matches("  yes  ").count(), 4, "{}", said(&output));
    drop(down);
    let left = shell(folder.path(), "ls berth-cluster/*.pid").output().unwrap();
    assert!(!left.status.success(), "everything is stopped: {}", said(&left));
}

fn done(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

struct Down<'a> {
    run: &'a dyn Fn(&str) -> Output,
    line: String,
}

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let output = (self.run)(&self.line);
        if !std::thread::panicking() {
            done(&output);
        }
    }
}
