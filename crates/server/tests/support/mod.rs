//! A server inside of the test. Each test program uses a part of it.
#![allow(dead_code)]

use berth_server::start::{Config, Running, start};
use std::time::Duration;
use tempfile::TempDir;

/// Everything is fast here; a minute means that something hangs.
pub const WAIT: Duration = Duration::from_secs(60);

/// On a port of its own, with all that it keeps in a temporary folder, and a client that trusts it alone.
pub async fn start_server(change: impl FnOnce(&mut Config)) -> (Running, TempDir, reqwest::Client) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut config = Config::in_folder(folder.path().join("server"));
    change(&mut config);
    config.store.key = berth_store::KeySource::File(folder.path().join("key"));
    let running = start(config).await.expect("the server starts");
    let ca = std::fs::read(running.ca.as_ref().expect("an authority of its own")).expect("an authority");
    let authority = reqwest::Certificate::from_pem(&ca).expect("a certificate");
    let http = reqwest::Client::builder().tls_certs_only([authority]).timeout(WAIT).build().expect("a client");
    (running, folder, http)
}
