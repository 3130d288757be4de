//! A server in a folder of its own, and those who ask it.

use super::folder::{Folder, berth};
use super::process::Process;
use super::ran::{Ran, run, start};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Server {
    process: Process,
    /// Apart from its folder, which tests look through and start others in.
    _logs: TempDir,
    dir: Arc<TempDir>,
    pub url: String,
    login: Vec<String>,
}

impl Server {
    /// With simulated clouds that take no time, in a new folder.
    pub fn start(more: &[&str]) -> Self {
        Self::start_in(new_folder(), more)
    }

    /// Where one was before, or another's clouds are.
    pub fn start_in(dir: Arc<TempDir>, more: &[&str]) -> Self {
        let mut args = vec!["--sandbox", "--speed", "max"];
        args.extend(more);
        Self::run(dir, &args)
    }

    /// One that does not start; what it said.
    pub fn refused_in(dir: &TempDir, more: &[&str]) -> Ran {
        let mut args = vec!["server", "--listen", "127.0.0.1:0"];
        args.extend(more);
        let mut running = start(&mut berth(dir.path(), &args));
        let limit = Instant::now() + Duration::from_secs(30);
        while !running.has_ended() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(50));
        }
        if running.has_ended() { running.finish() } else { running.kill() }
    }

    pub fn without_worker() -> Self {
        Self::run(new_folder(), &["--no-worker"])
    }

    pub fn run(dir: Arc<TempDir>, more: &[&str]) -> Self {
        let command = berth(dir.path(), &[]);
        Self::run_command(dir, command, more)
    }

    /// Of any version, with an environment of its own.
    pub fn run_command(dir: Arc<TempDir>, mut command: Command, more: &[&str]) -> Self {
        command.args(["server", "--listen", "127.0.0.1:0"]).args(more);
        let logs = tempfile::tempdir().expect("a folder");
        let mut process = Process::start("server", logs.path(), command);
        process.until_says("berth login ");
        let login = loop {
            let log = process.log();
            let line = log.split_inclusive('\n').find_map(|line| {
                line.trim_start().strip_prefix("berth login ").filter(|rest| rest.ends_with('\n')).map(str::to_owned)
            });
            if let Some(line) = line {
                break line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            }
            assert!(process.is_running(), "{log}");
        };
        Self { process, _logs: logs, url: login[0].clone(), dir, login }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// What it has in memory, in KiB.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says so");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// What `berth login` takes, in the server's folder.
    pub fn login(&self) -> &[String] {
        &self.login
    }

    /// Lets it end in order. Its folder stays.
    pub fn stop(mut self) -> Arc<TempDir> {
        self.process.signal(rustix::process::Signal::TERM);
        assert_eq!(self.process.until_ended(), Some(0), "{}", self.process.log());
        self.dir.clone()
    }

    /// Someone who is logged in as the first admin.
    pub fn admin(&self) -> Folder {
        let user = Folder::of_user();
        let mut args = vec!["login"];
        args.extend(self.login.iter().map(String::as_str));
        // Files are named as the server's folder sees them.
        run(&mut user.equip(berth(self.path(), &args))).ok();
        user
    }

    /// A client that trusts this server alone.
    pub fn http(&self) -> reqwest::Client {
        https(&self.path().join("berth-server/ca.pem"))
    }
}

fn new_folder() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

/// A client that trusts this authority alone.
pub fn https(ca: &Path) -> reqwest::Client {
    let authority = reqwest::Certificate::from_pem(&std::fs::read(ca).expect("an authority")).expect("PEM");
    let client = reqwest::Client::builder().tls_certs_only([authority]).no_proxy().timeout(Duration::from_secs(20));
    client.build().expect("a client")
}
