//! A PostgreSQL server of the benchmark's own, with the settings it comes with: every commit is synced to disk.

use crate::postgres_programs::{Unprivileged, done, programs};
use crate::process::{Process, free_port};
use anyhow::{Result, bail};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
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
        let bin = programs();
        let user = Unprivileged::find();
        let home = folder.join("postgres");
        std::fs::create_dir_all(&home)?;
        let password = home.join("password");
        std::fs::write(&password, PASSWORD)?;
        user.own(&home);
        // That user has to reach it.
        done(Command::new("chmod").arg("o+x").arg(folder).output(), "chmod");
        let data = home.join("data");
        let mut make = user.command(&bin.join("initdb"));
        make.args(["--username=berth", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
            .arg(format!("--pwfile={}", password.display()))
            .arg("-D")
            .arg(&data);
        done(make.output(), "initdb");
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
        Ok(String::from_utf8(done(output, "psql"))?.trim().to_owned())
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// `SIGINT` is PostgreSQL's word for ending without waiting for its clients.
    pub fn stop(self) -> Result<()> {
        self.process.stop_by(Signal::INT)
    }
}
