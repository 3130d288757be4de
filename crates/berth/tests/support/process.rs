//! Processes that run beside a test.

use super::{LONGEST, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How much of a log is told when a test fails.
const TOLD_LINES: usize = 15;

/// Writes to a log file, can be started again, and ends with the test.
pub struct Process {
    pub name: String,
    command: Command,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Its log is `NAME.log` in the folder.
    pub fn start(name: &str, folder: &Path, command: Command) -> Self {
        let log = folder.join(format!("{name}.log"));
        File::create(&log).expect("a log");
        let mut process = Self { name: name.into(), command, log, child: None };
        process.start_again();
        process
    }

    pub fn start_again(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        self.command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(self.command.spawn().expect("it starts"));
    }

    pub fn log_path(&self) -> &Path {
        &self.log
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of its log.
    pub fn told(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("----- {}\n{}\n", self.name, lines[lines.len().saturating_sub(TOLD_LINES)..].join("\n"))
    }

    /// Of one that runs.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// What it was started with, as everybody on the machine sees it.
    pub fn cmdline(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/cmdline", self.pid())).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            kill_process(Pid::from_child(child), signal).expect("it gets the signal");
        }
    }

    /// At once, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Asks it to stop, as a service manager does; whether it has in time.
    pub fn stop(&mut self, within: Duration) -> bool {
        self.signal(Signal::TERM);
        let limit = Instant::now() + within;
        while self.is_running() {
            if Instant::now() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child = None;
        true
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("its status").is_none())
    }

    /// Waits until this text is in its log.
    #[track_caller]
    pub fn until_says(&mut self, text: &str) {
        let limit = Instant::now() + LONGEST;
        while !self.log().contains(text) {
            let goes_on = self.is_running() && Instant::now() < limit;
            assert!(goes_on || self.log().contains(text), "{} does not say `{text}`:\n{}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it ends by itself, and gives its exit code.
    #[track_caller]
    pub fn until_ended(&mut self) -> Option<i32> {
        until(&format!("the end of {}", self.name), || !self.is_running());
        self.child.take().expect("it was started").wait().expect("its end").code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.told());
        }
    }
}
