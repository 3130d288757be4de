//! A project with a simulated cloud, prepared once and started from again and again, and many jobs at a time.

use crate::support::KEY;
use crate::support::cloud::Cloud;
use crate::support::folder::berth;
use crate::support::ran::{Ran, Running, run, start};
use berth_sandbox::{Config, Speed};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A folder to run berth in, alone: nothing of the user's environment reaches it.
pub struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for folder in ["work/.berth", "tmp", "data", "home"] {
            std::fs::create_dir_all(dir.path().join(folder)).expect("a folder");
        }
        Self { dir }
    }

    pub fn with(files: &[(&str, &str)]) -> Self {
        let project = Self::new();
        files.iter().for_each(|(name, text)| project.write(name, text));
        project
    }

    /// Everything that a command may leave behind is below this.
    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// The folder that commands run in.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.work().join(name), text).expect("a file");
    }

    pub fn command(&self, cloud: &Cloud, args: &[&str]) -> Command {
        let root = self.dir.path();
        let mut command = berth(&self.work(), args);
        command.env("HOME", root.join("home")).env("XDG_DATA_HOME", root.join("data"));
        command.env("TMPDIR", root.join("tmp")).env("BERTH_KEY", KEY).envs(cloud.variables());
        command
    }

    #[track_caller]
    pub fn berth(&self, cloud: &Cloud, args: &[&str]) -> Ran {
        run(&mut self.command(cloud, args))
    }

    /// Starts a command and leaves it running.
    pub fn start(&self, cloud: &Cloud, args: &[&str]) -> Running {
        start(&mut self.command(cloud, args))
    }
}

/// Runs all jobs, a few at a time, and tells of all that failed.
#[track_caller]
pub fn all<J: Send>(jobs: Vec<(String, J)>, work: impl Fn(&str, J) + Sync) {
    // Children wait for answers most of the time: a few more than there are cores keep these busy.
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get()).clamp(2, 8) * 2;
    many(workers, jobs, work);
}

/// The same, as many at a time as asked.
#[track_caller]
pub fn many<J: Send>(workers: usize, jobs: Vec<(String, J)>, work: impl Fn(&str, J) + Sync) {
    let count = jobs.len();
    let jobs = Mutex::new(VecDeque::from(jobs));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = jobs.lock().expect("jobs").pop_front();
                    let Some((name, job)) = next else { break };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&name, job))) {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text = text.or(panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
                        failures.lock().expect("failures").push((name, text));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("failures");
    failures.sort();
    let names: Vec<&str> = failures.iter().map(|(name, _)| name.as_str()).collect();
    let texts: Vec<String> = failures.iter().take(4).map(|(name, text)| format!("===== {name}\n{text}")).collect();
    assert!(
        failures.is_empty(),
        "{} of {count} failed:\n  {}\n\n{}",
        failures.len(),
        names.join("\n  "),
        texts.join("\n")
    );
}

/// Whether everything is to be tried, and not only the sample that every run of the tests takes.
pub fn whole() -> bool {
    std::env::var_os("BERTH_LAWS").is_some_and(|value| value == "all")
}

/// A cloud and a project at one moment, to start from again and again.
pub struct Prepared {
    dir: tempfile::TempDir,
}

impl Prepared {
    /// What `make` leaves behind. The cloud that it gets is kept in a file.
    pub fn new(make: impl FnOnce(&Project, &Cloud)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let project = Project::new();
        let cloud = Cloud::start(Config {
            speed: Speed::Instant,
            state: Some(dir.path().join("cloud.jsonl")),
            ..Config::default()
        });
        make(&project, &cloud);
        cloud.stop();
        copy(project.root(), &dir.path().join("project"));
        Self { dir }
    }

    /// A copy of both, with the cloud running.
    pub fn copy(&self, speed: Speed) -> (Project, Cloud, tempfile::TempDir) {
        let project = Project::new();
        copy(&self.dir.path().join("project"), project.root());
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["cloud.jsonl", "cloud.jsonl.kube"] {
            let from = self.dir.path().join(name);
            if from.exists() {
                copy(&from, &folder.path().join(name));
            }
        }
        let state = Some(folder.path().join("cloud.jsonl"));
        (project, Cloud::start(Config { speed, state, ..Config::default() }), folder)
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        std::fs::copy(from, to).expect("a copied file");
        return;
    }
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a readable folder") {
        let entry = entry.expect("an entry");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}
