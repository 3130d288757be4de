//! A PostgreSQL server of the tests' own, on loopback, in a temporary folder.

use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Output, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

pub const PASSWORD: &str = "pg-secret-8c1f";
const START_WAIT: Duration = Duration::from_secs(60);

/// Keeps the server for as long as its standard input is open, which is until the tests' process ends, however it ends; then
/// stops it and removes its folder. A line is the order to crash the server and start it anew.
const KEEPER: &str = r#"
folder=$1; shift
trap : INT TERM HUP
"$@" >>"$folder/log" 2>&1 </dev/null & server=$!
while read -r order; do
    kill -QUIT $server; wait $server
    "$@" >>"$folder/log" 2>&1 </dev/null & server=$!
done
kill -INT $server; wait $server
rm -rf "$folder"
"#;

pub struct Server {
    port: u16,
    folder: PathBuf,
    bin: PathBuf,
    keeper: Mutex<ChildStdin>,
    databases: AtomicUsize,
}

/// One for all tests but those that crash it.
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl Server {
    pub fn start() -> Self {
        let bin = programs();
        let temporary = tempfile::Builder::new().prefix("berth-pg-").tempdir().expect("a temporary folder");
        let folder = temporary.path().to_owned();
        let user = Unprivileged::find();
        let password_file = folder.join("password");
        std::fs::write(&password_file, PASSWORD).unwrap();
        user.own(&folder);
        let data = folder.join("data");
        let mut make = user.command(&bin.join("initdb"));
        // Words are sorted as in English, and names must not be; nothing of use is in the folder yet, so no sync.
        make.args(["--username=berth", "--auth=scram-sha-256", "--encoding=UTF8", "--no-sync", "--locale=C"])
            .args(["--locale-provider=icu", "--icu-locale=en-US"])
            .arg(format!("--pwfile={}", password_file.display()))
            .arg("-D")
            .arg(&data);
        done(make.output(), "initdb");
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(folder.join("server.crt"), identity.cert.pem()).unwrap();
        std::fs::write(folder.join("server.key"), identity.signing_key.serialize_pem()).unwrap();
        done(Command::new("chmod").arg("600").arg(folder.join("server.key")).output(), "chmod");
        user.own(&folder);

        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".into(),
            format!("unix_socket_directories={}", folder.display()),
            "max_connections=200".into(),
            "ssl=on".into(),
            format!("ssl_cert_file={}", folder.join("server.crt").display()),
            format!("ssl_key_file={}", folder.join("server.key").display()),
        ];
        let run = user.command(&bin.join("postgres"));
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&folder)
            .arg(run.get_program())
            .args(run.get_args())
            .arg("-D")
            .arg(&data)
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // From here on it is the keeper's to remove.
        let _ = temporary.keep();
        let keeper = Mutex::new(keeper.expect("sh starts").stdin.take().expect("its input"));
        let server = Self { port, folder, bin, keeper, databases: AtomicUsize::new(0) };
        server.wait();
        server
    }

    fn wait(&self) {
        let until = Instant::now() + START_WAIT;
        let mut ask = Command::new(self.bin.join("pg_isready"));
        ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        while !ask.status().expect("pg_isready runs").success() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "PostgreSQL did not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// As when the server's process dies: nothing is flushed, nobody is told.
    pub fn crash(&self) {
        self.keeper.lock().unwrap().write_all(b"crash\n").expect("the keeper listens");
    }

    /// Waits until a server that was seen to crash is back.
    pub fn back(&self) {
        tokio::task::block_in_place(|| self.wait());
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn address(&self, database: &str) -> String {
        format!("postgres://berth:{PASSWORD}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// The address of a new, empty database.
    pub async fn database(&self) -> String {
        let name = format!("state_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let options = sqlx::postgres::PgConnectOptions::from_str(&self.address("postgres")).unwrap();
        let mut connection = options.connect().await.expect("the server answers");
        connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.expect("a new database");
        self.address(&name)
    }
}

/// The newest that is installed.
fn programs() -> PathBuf {
    let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    found.sort_by_key(|bin| bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok()));
    found.extend(on_path.into_iter().flatten());
    let complete =
        |bin: &PathBuf| ["initdb", "postgres", "pg_isready", "pg_dump"].iter().all(|one| bin.join(one).exists());
    found.retain(complete);
    found
        .pop()
        .expect("PostgreSQL is needed for these tests: `apt-get install postgresql`, or put its programs on the PATH")
}

/// PostgreSQL refuses to run as root; then it runs as a user who may do less.
struct Unprivileged(Option<(String, String)>);

impl Unprivileged {
    fn find() -> Self {
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

    fn command(&self, program: &Path) -> Command {
        let Some((user, group)) = &self.0 else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", group, "--clear-groups"]).arg(program);
        command
    }

    fn own(&self, folder: &Path) {
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

/// Everything in a database, as text.
pub fn dump(address: &str) -> String {
    let output = Command::new(programs().join("pg_dump")).arg(address).output();
    String::from_utf8(done(output, "pg_dump")).expect("text")
}
