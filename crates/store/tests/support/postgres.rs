//! A PostgreSQL server of the tests' own, on loopback, in a temporary folder.
#![allow(dead_code)]

mod postgres_programs;

use postgres_programs::{Unprivileged, done, programs};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

pub const PASSWORD: &str = "pg-secret-8c1f";
const START_WAIT: Duration = Duration::from_secs(60);

/// Keeps the server for as long as its standard input is open, which is until the tests' process ends, however it ends; then
/// stops it and removes its folder. A line is the order to crash the server and start it anew, and is answered by one.
const KEEPER: &str = r#"
folder=$1; shift
trap : INT TERM HUP
"$@" >>"$folder/log" 2>&1 </dev/null & server=$!
while read -r order; do
    kill -QUIT $server; wait $server
    "$@" >>"$folder/log" 2>&1 </dev/null & server=$!
    echo started
done
kill -INT $server; wait $server
rm -rf "$folder"
"#;

pub struct Postgres {
    port: u16,
    folder: PathBuf,
    bin: PathBuf,
    keeper: Mutex<Keeper>,
    databases: AtomicUsize,
}

struct Keeper {
    /// Its standard input takes orders, and ends it when it is closed.
    process: Child,
    answers: BufReader<ChildStdout>,
    /// Orders without an answer so far.
    open: usize,
}

/// One for all tests but those that crash it.
pub fn shared() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

impl Postgres {
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
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        // From here on it is the keeper's to remove.
        let _ = temporary.keep();
        let mut process = keeper.expect("sh starts");
        let answers = BufReader::new(process.stdout.take().expect("its output"));
        let keeper = Mutex::new(Keeper { process, answers, open: 0 });
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
        let mut keeper = self.keeper.lock().unwrap();
        keeper.process.stdin.as_mut().expect("its input").write_all(b"crash\n").expect("the keeper listens");
        keeper.open += 1;
    }

    /// Waits until a server that was told to crash is back.
    pub fn back(&self) {
        tokio::task::block_in_place(|| {
            let mut keeper = self.keeper.lock().unwrap();
            while keeper.open > 0 {
                keeper.answers.read_line(&mut String::new()).expect("the keeper answers");
                keeper.open -= 1;
            }
            self.wait();
        });
    }

    /// As when the machine goes down under it and comes back.
    pub fn crash_and_restart(&self) {
        self.crash();
        self.back();
    }

    /// Its data, its log of changes and its own log.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn address(&self, database: &str) -> String {
        format!("postgres://berth:{PASSWORD}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Of the database that is always there.
    pub fn url(&self) -> String {
        self.address("postgres")
    }

    /// The answer of that one to a question, as text.
    pub fn ask(&self, question: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"));
        let answer = done(psql.args(["-XAtc", question]).arg(self.url()).output(), question);
        String::from_utf8(answer).expect("text").trim().to_owned()
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

/// Everything in a database, as text.
pub fn dump(address: &str) -> String {
    let output = Command::new(programs().join("pg_dump")).arg(address).output();
    String::from_utf8(done(output, "pg_dump")).expect("text")
}
