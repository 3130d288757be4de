//! PostgreSQL's programs, and the user that they run as.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The newest that is installed.
pub fn programs() -> PathBuf {
    let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    found.sort_by_key(|bin| bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok()));
    found.extend(on_path.into_iter().flatten());
    let complete = |bin: &PathBuf| {
        ["initdb", "postgres", "pg_isready", "pg_dump", "psql"].iter().all(|one| bin.join(one).exists())
    };
    found.retain(complete);
    found.pop().expect("PostgreSQL is needed: `apt-get install postgresql`, or put its programs on the PATH")
}

/// PostgreSQL refuses to run as root; then it runs as a user who may do less.
pub struct Unprivileged(Option<(String, String)>);

impl Unprivileged {
    pub fn find() -> Self {
        let id = |args: &[&str]| {
            let output = Command::new("id").args(args).output().expect("id runs");
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
        };
        if id(&["-u"]).as_deref() != Some("0") {
            return Self(None);
        }
        let of = |user: &str| Some((id(&["-u", user])?, id(&["-g", user])?));
        Self(Some(of("postgres").or_else(|| of("nobody")).expect("a user `postgres` or `nobody`")))
    }

    pub fn command(&self, program: &Path) -> Command {
        let Some((user, group)) = &self.0 else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", group, "--clear-groups"]).arg(program);
        command
    }

    pub fn own(&self, folder: &Path) {
        if let Some((user, group)) = &self.0 {
            let owner = format!("{user}:{group}");
            done(Command::new("chown").args(["-R", &owner]).arg(folder).output(), "chown");
        }
    }
}

pub fn done(output: std::io::Result<Output>, what: &str) -> Vec<u8> {
    let output = output.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
