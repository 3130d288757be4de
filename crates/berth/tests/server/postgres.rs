//! A PostgreSQL server of one test's own, on loopback, in a temporary folder.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PASSWORD: &str = "pg-secret-77aa";
const START_WITHIN: Duration = Duration::from_secs(90);

pub struct Postgres {
    port: u16,
    folder: tempfile::TempDir,
    bin: PathBuf,
    user: Option<(String, String)>,
    process: Option<Child>,
}

impl Postgres {
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("berth-pg-").tempdir().expect("a temporary folder");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { port, folder, bin: programs(), user: unprivileged(), process: None };
        let password = server.folder.path().join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        if let Some((user, group)) = &server.user {
            let owner = format!("{user}:{group}");
            done(Command::new("chown").args(["-R", &owner]).arg(server.folder.path()).output(), "chown");
        }
        let mut make = server.command("initdb");
        make.args(["--username=berth", "--auth=scram-sha-256", "--encoding=UTF8", "--no-sync", "--locale=C"])
            .arg(format!("--pwfile={}", password.display()))
            .arg("-D")
            .arg(server.folder.path().join("data"));
        done(make.output(), "initdb");
        server.run();
        server
    }

    fn command(&self, program: &str) -> Command {
        let program = self.bin.join(program);
        let Some((user, group)) = &self.user else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        // It ends with the tests, however they end.
        command.args(["--reuid", user, "--regid", group, "--clear-groups", "--pdeathsig", "KILL"]).arg(program);
        command
    }

    fn run(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.folder.path().join("data"));
        for setting in [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".into(),
            format!("unix_socket_directories={}", self.folder.path().display()),
            "max_connections=100".into(),
        ] {
            command.args(["-c", &setting]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().expect("postgres starts"));
        let until = Instant::now() + START_WITHIN;
        let mut ask = Command::new(self.bin.join("pg_isready"));
        ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        while !ask.status().expect("pg_isready runs").success() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "PostgreSQL did not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Everything in the database, as text.
    pub fn dump(&self) -> String {
        let output = Command::new(self.bin.join("pg_dump")).arg(self.url()).output();
        String::from_utf8(done(output, "pg_dump")).expect("text")
    }

    /// Its data, its log of changes and its own log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// As when the machine goes down under it and comes back.
    pub fn crash_and_restart(&mut self) {
        self.end("QUIT");
        self.run();
    }

    fn end(&mut self, signal: &str) {
        if let Some(mut process) = self.process.take() {
            // `setpriv` becomes postgres itself, so that the number is its own.
            done(Command::new("kill").args([&format!("-{signal}"), &process.id().to_string()]).output(), "kill");
            _ = process.wait();
        }
    }

    /// The answer to one question, as text.
    pub fn ask(&self, question: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"));
        let output = psql.args(["-XAtc", question]).arg(self.url()).output().expect("psql runs");
        assert!(output.status.success(), "{question}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub fn url(&self) -> String {
        format!("postgres://berth:{PASSWORD}@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end("INT");
    }
}

/// The newest that is installed.
fn programs() -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    found.sort_by_key(|bin| bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok()));
    found.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    found.retain(|bin| ["initdb", "postgres", "pg_isready", "psql"].iter().all(|one| bin.join(one).exists()));
    found.pop().expect("PostgreSQL is needed: `apt-get install postgresql`, or put its programs on the PATH")
}

/// PostgreSQL refuses to run as root; then it runs as a user who may do less.
fn unprivileged() -> Option<(String, String)> {
    let id = |args: &[&str]| {
        let output = Command::new("id").args(args).output().expect("id runs");
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    if id(&["-u"]).as_deref() != Some("0") {
        return None;
    }
    let of = |user: &str| Some((id(&["-u", user])?, id(&["-g", user])?));
    Some(of("postgres").or_else(|| of("nobody")).expect("a user `postgres` or `nobody`"))
}

fn done(output: std::io::Result<Output>, what: &str) -> Vec<u8> {
    let output = output.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
