//! How the tests run berth: a folder to run it in, what it answered, servers and other processes beside the test, simulated clouds,
//! and waiting. Each test program uses a part of it.
#![allow(dead_code)]

pub mod cloud;
pub mod folder;
pub mod process;
pub mod ran;
pub mod search;
pub mod server;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// 32 bytes in hex: the key of a state, for all tests.
pub const KEY: &str = "5f4dcc3b5aa765d61d8327deb882cf995f4dcc3b5aa765d61d8327deb882cf99";
/// No step of a test takes longer; one that does hangs.
pub const LONGEST: Duration = Duration::from_secs(150);

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Waits until something holds, and not for ever.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + LONGEST;
    while !holds() {
        assert!(Instant::now() < limit, "waited {LONGEST:?} for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A port that nobody listens on, as far as anyone can tell.
pub fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.expect("a free port").port()
}

/// Compares what a command printed with the snapshot of that name. `shown` of the test program makes it steady.
#[macro_export]
macro_rules! shows {
    ($name:expr, $ran:expr) => {
        insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!($name, $crate::shown(&$ran));
        })
    };
}
