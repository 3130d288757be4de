//! The project's own sandbox: a background process, or one inside this process that lasts as long as the command.
//! Both keep their cloud in a file, so that two commands see the same one.

use crate::args::workspace_args::speed;
use crate::failure::Failure;
use crate::local::project;
use crate::view::progress;
use berth_clouds::accounts::Simulated;
use berth_sandbox::{Config, Sandbox, SandboxError, Speed, registry};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long a command waits for another one of the same project that has the cloud's file open.
const OTHER_COMMAND: Duration = Duration::from_secs(10);
const WAITS: &str = "waiting for another command that has the simulated clouds open";
const LOCK_TRIES: u32 = 20;
const RECORD_BYTES: u64 = 64 << 10;

/// What a sandbox that stays writes down about itself. Its pid counts only while its process holds the lock beside it:
/// the lock ends with the process, so that another one that got the same pid is never taken for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub pid: u32,
    /// By the cloud's name.
    pub urls: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    pub speed: String,
}

impl Record {
    /// For messages.
    pub fn addresses(&self) -> String {
        self.urls.values().map(String::as_str).collect::<Vec<_>>().join(" and ")
    }
}

fn record_path(folder: &Path) -> PathBuf {
    folder.join("sandbox.json")
}

fn lock_path(folder: &Path) -> PathBuf {
    folder.join("sandbox.lock")
}

pub fn log_path(folder: &Path) -> PathBuf {
    folder.join("sandbox.log")
}

/// Where the project's cloud is kept.
pub fn cloud_path(folder: &Path) -> PathBuf {
    folder.join("sandbox-cloud.jsonl")
}

/// The right to be the project's sandbox. Gives the record up when dropped.
pub struct Post {
    folder: PathBuf,
    _lock: File,
}

impl Post {
    /// `None` when another process has it.
    pub fn take(folder: &Path) -> Result<Option<Self>, Failure> {
        project::make(folder)?;
        let path = lock_path(folder);
        let failed = |error: std::io::Error| Failure::caused(format!("cannot lock {}", path.display()), &error);
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        // A command that checks whether a sandbox is running also holds the lock for a moment.
        for _ in 0..LOCK_TRIES {
            match lock.try_lock() {
                Ok(()) => return Ok(Some(Self { folder: folder.into(), _lock: lock })),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        Ok(None)
    }

    pub fn write(&self, record: &Record) -> Result<(), Failure> {
        let path = record_path(&self.folder);
        let text = crate::view::output::json(record)?;
        let half = path.with_extension("json.new");
        // Readers see the old record or the new one, never part of one.
        std::fs::write(&half, text)
            .and_then(|()| std::fs::rename(&half, &path))
            .map_err(|error| Failure::caused(format!("cannot write {}", path.display()), &error))
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        _ = std::fs::remove_file(record_path(&self.folder));
    }
}

/// The sandbox that the project has running, whether it answers or not.
pub fn recorded(folder: &Path) -> Option<Record> {
    let lock = File::open(lock_path(folder)).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        _ => return None,
    }
    let mut text = String::new();
    File::open(record_path(folder)).ok()?.take(RECORD_BYTES).read_to_string(&mut text).ok()?;
    read_record(&text)
}

fn read_record(text: &str) -> Option<Record> {
    let mut record: serde_json::Value = serde_json::from_str(text).ok()?;
    let fields = record.as_object_mut()?;
    // Version 0.1.0 wrote `civoUrl` and the like.
    if !fields.contains_key("urls") {
        let url =
            |(name, url): (&String, &serde_json::Value)| Some((name.strip_suffix("Url")?.to_owned(), url.clone()));
        let urls = fields.iter().filter_map(url).collect();
        fields.insert("urls".into(), serde_json::Value::Object(urls));
    }
    serde_json::from_value(record).ok()
}

/// Whether a recorded sandbox is there, with all its clouds.
pub async fn answers(record: &Record) -> bool {
    let all = futures::future::join_all(record.urls.values().map(|url| answers_at(url))).await;
    !all.is_empty() && all.into_iter().all(|answered| answered)
}

/// Asked where no fault strikes.
async fn answers_at(url: &str) -> bool {
    let Some(address) = url.strip_prefix("http://") else { return false };
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        let request = format!("GET /_sandbox/clock HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut start = [0u8; 5];
        stream.read_exact(&mut start).await.ok()?;
        (&start == b"HTTP/").then_some(())
    };
    tokio::time::timeout(ANSWER_WITHIN, ask).await.ok().flatten().is_some()
}

/// Simulated clouds for one command.
pub struct Sandboxed {
    /// By the cloud's name.
    pub urls: BTreeMap<String, String>,
    /// How many times faster than real clouds they are.
    pub pace: f64,
    /// The cloud itself, when it lives in this process.
    guard: Option<Sandbox>,
}

impl Sandboxed {
    /// Where accounts find these clouds.
    pub fn simulated(&self) -> Simulated {
        Simulated { urls: self.urls.clone(), token: sandbox_token(), pace: self.pace }
    }

    /// Writes the cloud down before the process ends.
    pub async fn stop(self) {
        if let Some(sandbox) = self.guard {
            sandbox.stop().await;
        }
    }
}

/// The token that simulated clouds were told to accept.
pub fn sandbox_token() -> Option<String> {
    std::env::var("BERTH_SANDBOX_TOKEN").ok().filter(|token| !token.is_empty())
}

/// The sandbox that this project has running, or else one inside this process. `project` is the `.berth` folder.
pub async fn connect_or_start(speed: Option<Speed>, project: &Path) -> Result<Sandboxed, Failure> {
    if let Some(record) = recorded(project)
        && answers(&record).await
    {
        if let Some(speed) = speed
            && show_speed(speed) != record.speed
        {
            anstream::eprintln!("the sandbox that is running has its own speed, {}; --speed is ignored", record.speed);
        }
        let pace = pace(&record.speed);
        return Ok(Sandboxed { urls: record.urls, pace, guard: None });
    }
    project::make(project)?;
    let speed = speed.unwrap_or(Speed::Times(1.0));
    let config = Config { state: Some(cloud_path(project)), speed, ..Config::default() };
    let sandbox = progress::patiently(WAITS, start_when_free(config)).await?;
    Ok(Sandboxed { urls: sandbox.urls(), pace: pace(&show_speed(speed)), guard: Some(sandbox) })
}

/// What a recorded speed means for how long things take.
pub fn pace(recorded: &str) -> f64 {
    match speed(recorded) {
        Ok(Speed::Times(times)) => times,
        Ok(Speed::Instant) => f64::INFINITY,
        Err(_) => 1.0,
    }
}

async fn start_when_free(config: Config) -> Result<Sandbox, Failure> {
    let until = Instant::now() + OTHER_COMMAND;
    loop {
        match Sandbox::start(config.clone()).await {
            Ok(sandbox) => return Ok(sandbox),
            Err(SandboxError::StateInUse { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(cannot_start(&error)),
        }
    }
}

/// Why a sandbox did not start, with what to do about it.
pub fn cannot_start(error: &SandboxError) -> Failure {
    let failure = Failure::caused("the sandbox cannot start", error);
    match error {
        SandboxError::Bind { .. } => {
            let free: String = registry::clouds().map(|cloud| format!("--{} 127.0.0.1:0 ", cloud.name)).collect();
            failure
                .help("another sandbox may be running; to end the one of this project:   berth sandbox --stop")
                .help(format!("to let free ports be chosen, add:   {free}--kube 127.0.0.1:0"))
        }
        SandboxError::StateInUse { .. } => failure
            .help("another command is using this cloud; to share one between commands:   berth sandbox --background"),
        SandboxError::NotLoopback { .. } => failure.help("give an address such as 127.0.0.1:7070"),
        SandboxError::StateUnreadable { path, .. } => {
            failure.help(format!("to start with an empty cloud, remove {}", path.display()))
        }
        SandboxError::KubePrograms { .. } => {
            failure.help("Berth's repository builds them into one folder:   tools/peers/build kubernetes")
        }
        SandboxError::Option { .. } | SandboxError::State { .. } | SandboxError::Tls(_) => failure,
    }
}

pub fn show_speed(speed: Speed) -> String {
    match speed {
        Speed::Times(times) => format!("{times}"),
        Speed::Instant => "max".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_living_process_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(recorded(folder.path()), None);
        let record = Record {
            pid: 1,
            urls: [("civo".into(), "http://127.0.0.1:1".into())].into(),
            state: None,
            speed: "max".into(),
        };
        let post = Post::take(folder.path()).unwrap().unwrap();
        post.write(&record).unwrap();
        assert_eq!(recorded(folder.path()), Some(record));
        assert!(Post::take(folder.path()).unwrap().is_none());
        drop(post);
        assert_eq!(recorded(folder.path()), None);
        // The process was killed: its record remains, but its lock is free.
        std::fs::write(record_path(folder.path()), r#"{"pid":1,"urls":{"civo":"a"},"speed":"1"}"#).unwrap();
        assert_eq!(recorded(folder.path()), None);
    }

    #[tokio::test]
    async fn a_cloud_inside_the_process_is_kept_between_commands() {
        let folder = tempfile::tempdir().unwrap();
        let first = connect_or_start(Some(Speed::Instant), folder.path()).await.unwrap();
        assert!(!first.urls.is_empty());
        for url in first.urls.values() {
            assert!(answers_at(url).await, "{url}");
        }
        first.stop().await;
        assert!(cloud_path(folder.path()).exists());
        let second = connect_or_start(None, folder.path()).await.unwrap();
        assert!(answers_at(&second.urls["civo"]).await);
        second.stop().await;
    }

    #[test]
    fn a_record_of_the_first_version_is_read() {
        let record = read_record(r#"{"pid":1,"civoUrl":"a","digitaloceanUrl":"b","speed":"1"}"#).unwrap();
        assert_eq!(record.urls, [("civo".into(), "a".into()), ("digitalocean".into(), "b".into())].into());
        assert_eq!(read_record(&serde_json::to_string(&record).unwrap()), Some(record));
    }

    #[test]
    fn speeds_are_read_as_people_write_them() {
        assert_eq!(speed("max"), Ok(Speed::Instant));
        assert_eq!(speed("60").map(show_speed), Ok("60".into()));
        assert!(speed("fast").is_err());
    }
}
