//! How much one caller, and all of them together, may take. Each limit has its name and its unit.

use crate::address::TrustedProxies;
use std::num::NonZeroU32;
use std::time::Duration;

/// A JSON body, or one gRPC message. A file of manifests has a limit of its own.
pub const BODY_BYTES_MAX: usize = 32 << 20;
/// What someone without a token may send: an identity provider's token is a few kilobytes.
pub const PUBLIC_BYTES_MAX: usize = 256 << 10;
/// Calls without a token that are processed at once, apart from all other calls; slow senders are evicted for others.
pub const PUBLIC_CALLS_MAX: usize = 128;
/// Of these, one address's.
pub const PUBLIC_CALLS_PER_ADDRESS: usize = 16;
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
/// How long a trusted proxy may take to say who its caller is.
pub const PROXY_WITHIN: Duration = Duration::from_secs(5);
/// How long an idle connection has to end after it was told to.
pub const FAREWELL_WITHIN: Duration = Duration::from_secs(2);
/// Connections that were evicted and are about to close.
pub const ACCEPT_SLACK: usize = 64;
/// So often it is looked at whether many connections have ended, and memory is to be given back for so many.
pub const GIVE_BACK_EVERY: Duration = Duration::from_secs(5);
pub const GIVE_BACK_FOR: usize = 64;
/// What is read, and thrown away, of a body that nobody wants: its sender takes the answer only when all is sent.
pub const DISCARD_BYTES_MAX: usize = 64 << 20;
pub const DISCARD_WITHIN: Duration = Duration::from_secs(10);
/// Bodies that are thrown away at once.
pub const DISCARDS_MAX: usize = 64;
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
    /// Connections of one address, or one IPv6 network, that showed no valid token.
    pub connections_per_address: usize,
    /// How long such a connection is safe from eviction in favour of another one of its address.
    pub stranger_new: Duration,
    /// How long a connection that showed no valid token may go without a request.
    pub stranger_idle: Duration,
    /// And one that did.
    pub known_idle: Duration,
    /// Who may say what address a caller has.
    pub proxies: TrustedProxies,
    /// Requests that are worked on at once; watching does not count.
    pub requests: usize,
    /// For each token; `None` for no limit.
    pub requests_per_second: Option<NonZeroU32>,
    /// Calls without a valid token that one address may make at once before they are neither logged nor told more than
    /// that there were too many; two are forgiven each second.
    pub failed_attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            connections_per_address: 64,
            stranger_new: Duration::from_secs(2),
            stranger_idle: Duration::from_secs(30),
            known_idle: Duration::from_secs(600),
            proxies: TrustedProxies::default(),
            requests: 1024,
            requests_per_second: NonZeroU32::new(5000),
            failed_attempts: 60,
        }
    }
}

/// Of all connections, those that strangers share.
pub fn stranger_slots(connections: usize) -> usize {
    (connections / 4).max(1)
}

/// Slots that are reserved for connections with a valid token.
pub fn known_slots(connections: usize) -> usize {
    connections.saturating_sub(stranger_slots(connections)).max(1)
}
