//! A PostgreSQL server of the benchmark's own, with the settings it comes with: every commit is synced to disk.

use crate::process::{Process, free_port};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const START_WAIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "bench";

pub struct Postgres {
    port: u16,
    bin: PathBuf,
    process: Process,
}

impl Postgres {
    pub fn start(folder: &Path) -> Result<Self> {
        let bin = programs()?;
        let user = Unprivileged::find()?;
        let home = folder.join("postgres");
        std::fs::create_dir_all(&home)?;
        let password = home.join("password");
        std::fs::write(&password, PASSWORD)?;
        user.own(&home)?;
        let data = home.join("data");
        let mut make = user.command(&bin.join("initdb"));
        make.args(["--username=berth", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
            .arg(format!("--pwfile={}", password.display()))
            .arg("-D")
            .arg(&data);
        done(make.output(), "initdb")?;
        let port = free_port()?;
        let mut run = user.command(&bin.join("postgres"));
        run.arg("-D").arg(&data).args(["-c", &format!("port={port}"), "-c", "listen_addresses=127.0.0.1"]);
        run.args(["-c", &format!("unix_socket_directories={}", home.display())]);
        let mut process = Process::start("postgres", run, folder)?;
        let until = Instant::now() + START_WAIT;
        let mut ask = Command::new(bin.join("pg_isready"));
        ask.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
        while !ask.status()?.success() {
            process.check()?;
            if Instant::now() > until {
                bail!("PostgreSQL does not start");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let postgres = Self { port, bin, process };
        let synced =
            postgres.sql("postgres", "SELECT current_setting('fsync') || current_setting('synchronous_commit')")?;
        if synced != "onon" {
            bail!("PostgreSQL does not sync its commits ({synced}): creates would not be durable");
        }
        Ok(postgres)
    }

    /// The address of a new, empty database.
    pub fn database(&self, name: &str) -> Result<String> {
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(format!("postgres://berth:{PASSWORD}@127.0.0.1:{}/{name}?sslmode=disable", self.port))
    }

    fn sql(&self, database: &str, text: &str) -> Result<String> {
        let output = Command::new(self.bin.join("psql"))
            .args(["-X", "-A", "-t", "-h", "127.0.0.1", "-U", "berth", "-p", &self.port.to_string(), "-d", database])
            .args(["-c", text])
            .env("PGPASSWORD", PASSWORD)
            .output();
        Ok(String::from_utf8(done(output, "psql")?)?.trim().to_owned())
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// `SIGINT` is PostgreSQL's word for ending without waiting for its clients.
    pub fn stop(self) -> Result<()> {
        self.process.stop_by(Signal::INT)
    }
}

/// The newest that is installed.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    found.sort_by_key(|bin| bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    found.extend(on_path.into_iter().flatten());
    found.retain(|bin| ["initdb", "postgres", "pg_isready", "psql"].iter().all(|one| bin.join(one).exists()));
    found.pop().context("PostgreSQL's programs were not found: `apt-get install postgresql`, or put them on the PATH")
}

/// PostgreSQL refuses to run as root; then it runs as a user who may do less.
struct Unprivileged(Option<(String, String)>);

impl Unprivileged {
    fn find() -> Result<Self> {
        let id = |args: &[&str]| -> Option<String> {
            let output = Command::new("id").args(args).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        if id(&["-u"]).as_deref() != Some("0") {
            return Ok(Self(None));
        }
        let of = |user: &str| Some((id(&["-u", user])?, id(&["-g", user])?));
        Ok(Self(Some(of("postgres").or_else(|| of("nobody")).context("no user `postgres` or `nobody`")?)))
    }

    fn command(&self, program: &Path) -> Command {
        let Some((user, group)) = &self.0 else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", group, "--clear-groups"]).arg(program);
        command
    }

    /// The folder, and the right to reach it.
    fn own(&self, folder: &Path) -> Result<()> {
        if let Some((user, group)) = &self.0 {
            done(Command::new("chown").arg("-R").arg(format!("{user}:{group}")).arg(folder).output(), "chown")?;
            let above = folder.parent().context("a folder without a parent")?;
            done(Command::new("chmod").arg("o+x").arg(above).output(), "chmod")?;
        }
        Ok(())
    }
}

fn done(output: std::io::Result<Output>, what: &str) -> Result<Vec<u8>> {
    let output = output.with_context(|| format!("cannot run {what}"))?;
    if !output.status.success() {
        bail!("{what} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
