//! How much one caller, and all of them together, may take. Each limit has its name and its unit.

use std::num::NonZeroU32;
use std::time::Duration;

/// A JSON body, or one gRPC message. A file of manifests has a limit of its own.
pub const BODY_BYTES_MAX: usize = 32 << 20;
/// What someone without a token may send: an identity provider's token is a few kilobytes.
pub const PUBLIC_BYTES_MAX: usize = 256 << 10;
/// Calls of them that are worked on at once, apart from everyone else's: whoever sends slowly keeps only their like out.
pub const PUBLIC_CALLS_MAX: usize = 128;
/// And for how long.
pub const PUBLIC_WITHIN: Duration = Duration::from_secs(20);
/// One gRPC message that is sent.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;
/// All headers of one request.
pub const HEADER_BYTES_MAX: usize = 32 << 10;
pub const HEADERS_MAX: usize = 100;
/// A request's path and query.
pub const TARGET_BYTES_MAX: usize = 8 << 10;
/// Requests at once on one HTTP/2 connection.
pub const STREAMS_MAX: u32 = 256;
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// From a connection's start, or the end of its last request, to the end of the next one's headers.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(60);
/// A client that takes nothing of what it is sent for this long is let go.
pub const STALLED_AFTER: Duration = Duration::from_secs(30);
/// An HTTP/2 connection is asked for a sign of life this often, and has as long to give it.
pub const PING_EVERY: Duration = Duration::from_secs(20);
/// Until the head of the answer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The same for what waits for a worker.
pub const WORK_WITHIN: Duration = Duration::from_secs(600);
/// How long open requests have to end when the server stops.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(20);
/// A stream of server-sent events says that it is alive this often.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections: usize,
    /// Requests that are worked on at once; watching does not count.
    pub requests: usize,
    /// For each token; `None` for no limit.
    pub requests_per_second: Option<NonZeroU32>,
    /// Calls without a valid token that one address may make at once; two are forgiven each second.
    pub failed_attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 4096, requests: 1024, requests_per_second: NonZeroU32::new(5000), failed_attempts: 60 }
    }
}
