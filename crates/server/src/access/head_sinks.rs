//! Publishes the head of the audit log to sinks outside the server: somebody who controls the database or the server can rewrite
//! the log, but not the heads that others have received. The head is read from the store, so that a sink cannot delay or fail a
//! write. Each sink gets only the newest head, since a head covers all entries before it.

use crate::metrics::{Metrics, Sink};
use berth_store::{AuditHead, Control};
use jiff::Timestamp;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often the log is read: a head is sent at most this much later, if the sink accepts it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// New entries are followed for this long in one look.
const FOLLOW_WITHIN: Duration = Duration::from_secs(5);
/// Time limit of one delivery.
const DELIVER_WITHIN: Duration = Duration::from_secs(10);
/// Shortest and longest pause between attempts at a sink that fails.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Facility "log audit", severity "notice".
const SYSLOG_PRIORITY: u8 = 13 * 8 + 5;

/// The sinks that are configured.
#[derive(Clone, Default)]
pub struct HeadSinks {
    /// Appended to, a line for each.
    pub file: Option<PathBuf>,
    pub syslog: Option<Syslog>,
    pub webhook: Option<Webhook>,
}

#[derive(Clone)]
pub struct Webhook {
    pub url: Url,
    /// Sent as a bearer token.
    pub token: Option<SecretString>,
}

/// A syslog that takes messages of RFC 5424.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Syslog {
    /// Such as `/dev/log`.
    Unix(PathBuf),
    Udp(String),
    /// With the length before each message.
    Tcp(String),
}

impl FromStr for Syslog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = |rest: &str| match rest.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(rest.to_owned()),
            _ => Err(format!("`{rest}` is not HOST:PORT")),
        };
        match text.split_once(':') {
            Some(("unix", path)) if Path::new(path).is_absolute() => Ok(Self::Unix(path.into())),
            Some(("udp", rest)) => host(rest.trim_start_matches("//")).map(Self::Udp),
            Some(("tcp", rest)) => host(rest.trim_start_matches("//")).map(Self::Tcp),
            _ => Err("it is unix:/PATH, udp:HOST:PORT or tcp:HOST:PORT".into()),
        }
    }
}

impl HeadSinks {
    /// Starts the task that follows the log, also without any sink, and a task for each sink.
    pub fn start(&self, control: Control, metrics: Metrics, stop: CancellationToken) -> Vec<JoinHandle<()>> {
        let (sender, heads) = watch::channel(None);
        let mut tasks = vec![tokio::spawn(look(control, metrics.clone(), sender, stop.clone()))];
        let file = self.file.clone().map(HeadSink::File);
        let syslog = self.syslog.clone().map(HeadSink::Syslog);
        let webhook = self.webhook.clone().and_then(|webhook| {
            let client = reqwest::Client::builder().timeout(DELIVER_WITHIN).redirect(reqwest::redirect::Policy::none());
            client.build().ok().map(|client| HeadSink::Webhook(client, webhook))
        });
        for head_sink in [file, syslog, webhook].into_iter().flatten() {
            tasks.push(tokio::spawn(deliver(head_sink, metrics.clone(), heads.clone(), stop.clone())));
        }
        tasks
    }
}

/// Follows the log from the last head that was seen: an entry that does not follow from it was written by somebody else. The
/// metric of a broken log is never reset while the server runs, since it is read only now and then.
async fn look(control: Control, metrics: Metrics, sender: watch::Sender<Option<AuditHead>>, stop: CancellationToken) {
    let mut last: Option<AuditHead> = None;
    loop {
        match next(&control, last.as_ref()).await {
            Ok((head, whole)) => {
                if !whole {
                    metrics.audit_broken.set(1);
                }
                if let Some(head) = head.filter(|head| last.as_ref() != Some(head)) {
                    if !whole {
                        tracing::error!(
                            entry = head.id,
                            "the audit log does not follow from the head that was offered before"
                        );
                    }
                    last = Some(head.clone());
                    sender.send_replace(Some(head));
                }
            }
            Err(error) => tracing::warn!(%error, "the audit log's head cannot be read; trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The head, and whether it follows from the one before.
async fn next(
    control: &Control,
    last: Option<&AuditHead>,
) -> Result<(Option<AuditHead>, bool), berth_store::StoreError> {
    let Some(last) = last else {
        let head = control.audit_head().await?;
        let is_genuine = head.is_some();
        return Ok((head, is_genuine));
    };
    let state = control.verify_audit_from(last.id, &last.hash, FOLLOW_WITHIN).await?;
    match state.whole {
        true => Ok((Some(AuditHead { id: state.last, hash: state.head }), true)),
        false => Ok((control.audit_head().await?, false)),
    }
}

enum HeadSink {
    File(PathBuf),
    Syslog(Syslog),
    Webhook(reqwest::Client, Webhook),
}

impl HeadSink {
    fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Syslog(_) => "syslog",
            Self::Webhook(..) => "webhook",
        }
    }

    async fn offer(&self, head: &AuditHead) -> Result<(), String> {
        let told = |error: std::io::Error| error.to_string();
        let line = json!({"at": Timestamp::now().to_string(), "id": head.id, "hash": head.hash}).to_string();
        match self {
            Self::File(path) => {
                let path = path.clone();
                let written = tokio::task::spawn_blocking(move || append(&path, &format!("{line}\n")));
                written.await.map_err(|error| error.to_string())?.map_err(told)
            }
            Self::Syslog(syslog) => send(syslog, &line).await.map_err(told),
            Self::Webhook(client, webhook) => {
                let mut request =
                    client.post(webhook.url.clone()).header("content-type", "application/json").body(line);
                if let Some(token) = &webhook.token {
                    request = request.bearer_auth(token.expose_secret());
                }
                // The address may hold a secret.
                let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
                if answer.status().is_success() { Ok(()) } else { Err(format!("it answered {}", answer.status())) }
            }
        }
    }
}

/// Opened each time: a file that was moved away is made anew.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

async fn send(syslog: &Syslog, line: &str) -> std::io::Result<()> {
    let at = Timestamp::now();
    let process = std::process::id();
    let message = format!("<{SYSLOG_PRIORITY}>1 {at} - berth-server {process} audit-head - {line}");
    match syslog {
        #[cfg(unix)]
        Syslog::Unix(path) => {
            let socket = tokio::net::UnixDatagram::unbound()?;
            socket.send_to(message.as_bytes(), path).await.map(|_| ())
        }
        #[cfg(not(unix))]
        Syslog::Unix(_) => Err(std::io::ErrorKind::Unsupported.into()),
        Syslog::Udp(address) => {
            let target = tokio::net::lookup_host(address).await?.next().ok_or(std::io::ErrorKind::NotFound)?;
            let any: std::net::SocketAddr =
                if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
            UdpSocket::bind(any).await?.send_to(message.as_bytes(), target).await.map(|_| ())
        }
        Syslog::Tcp(address) => {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(format!("{} {message}", message.len()).as_bytes()).await?;
            stream.shutdown().await
        }
    }
}

/// Each sink has its own pace: while it does not answer, a newer head replaces the one that waits.
async fn deliver(
    head_sink: HeadSink,
    metrics: Metrics,
    mut heads: watch::Receiver<Option<AuditHead>>,
    stop: CancellationToken,
) {
    let sink = Sink { sink: head_sink.name() };
    // Shown from the start, so that an alert on it is not silent until the first failure.
    drop(metrics.audit_head_failures.get_or_create(&sink));
    drop(metrics.audit_head_offered.get_or_create(&sink));
    let mut pause = PAUSE.0;
    loop {
        let head = heads.borrow_and_update().clone();
        let mut done = true;
        if let Some(head) = head {
            let offered = tokio::time::timeout(DELIVER_WITHIN, head_sink.offer(&head)).await;
            match offered.unwrap_or_else(|_| Err("it took too long".into())) {
                Ok(()) => {
                    metrics.audit_head_offered.get_or_create(&sink).set(head.id);
                    pause = PAUSE.0;
                }
                Err(error) => {
                    metrics.audit_head_failures.get_or_create(&sink).inc();
                    tracing::warn!(
                        sink = sink.sink,
                        entry = head.id,
                        error,
                        "the audit log's head could not be offered"
                    );
                    done = false;
                }
            }
        }
        let again = async {
            match done {
                true => heads.changed().await.is_ok(),
                false => {
                    tokio::time::sleep(pause).await;
                    true
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            more = again => if !more { return },
        }
        if !done {
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_syslog() {
        assert_eq!("unix:/dev/log".parse(), Ok(Syslog::Unix("/dev/log".into())));
        assert_eq!("udp:10.0.0.1:514".parse(), Ok(Syslog::Udp("10.0.0.1:514".into())));
        assert_eq!("tcp://log.example.com:6514".parse(), Ok(Syslog::Tcp("log.example.com:6514".into())));
        for bad in ["", "unix:dev/log", "udp:514", "tcp:host:port", "http://x:1"] {
            assert!(bad.parse::<Syslog>().is_err(), "{bad}");
        }
    }
}
