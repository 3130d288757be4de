//! Authenticates callers by their token. Valid tokens are cached briefly: a busy caller does not cost a database read for each call,
//! and a revocation still takes effect on every server within a second.

use super::attempts::{Attempts, Failed};
use super::live_tokens::LiveTokens;
use super::principal::Principal;
use super::token;
use crate::api::rate::Rate;
use crate::fault::{Code, Fault};
use crate::limits::Limits;
use crate::metrics::Metrics;
use axum::http::{HeaderMap, header};
use berth_store::Control;
use jiff::Timestamp;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// For so long a token that was valid is not looked at again: the longest that another server's revocation takes to hold.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(1);
/// Tokens that are remembered at once.
const REMEMBERED_MAX: usize = 16_384;
/// How exactly the time of a token's last use is kept.
const USED_EVERY: Duration = Duration::from_secs(60);
const WRITE_USED_EVERY: Duration = Duration::from_secs(10);

struct Remembered {
    principal: Arc<Principal>,
    at: Instant,
}

/// Authenticates callers of one server.
pub struct Authenticator {
    control: Control,
    remembered: Mutex<HashMap<[u8; 32], Remembered>>,
    attempts: Attempts,
    live: LiveTokens,
    metrics: Metrics,
    rate: Rate,
    /// Uses that are not written yet.
    used: Mutex<HashMap<String, Timestamp>>,
}

impl Authenticator {
    pub fn new(control: Control, limits: &Limits, metrics: Metrics) -> Self {
        Self {
            live: LiveTokens::new(control.clone(), metrics.clone()),
            metrics,
            control,
            remembered: Mutex::default(),
            attempts: Attempts::new(limits.failed_attempts),
            rate: Rate::new(limits),
            used: Mutex::default(),
        }
    }

    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Who calls; `peer` is whom failed attempts are counted for.
    pub async fn authenticate(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<Arc<Principal>, Fault> {
        let now = Timestamp::now();
        let Some(text) = bearer(headers)? else {
            return Err(Fault::new(Code::Unauthenticated, "this needs a token")
                .help("log in:                   berth login URL")
                .help("or send it yourself:      authorization: Bearer TOKEN"));
        };
        let Some(hash) = token::hash(text) else { return Err(self.failed(peer, None, "malformed")) };
        let (fresh, stale) = match lock(&self.remembered).get(&hash) {
            Some(known) if known.at.elapsed() < REMEMBERED_FOR => (Some(known.principal.clone()), false),
            Some(_) => (None, true),
            None => (None, false),
        };
        let principal = match fresh {
            Some(principal) => principal,
            None => {
                let hurried = peer.is_some_and(|peer| self.attempts.spent(peer, Instant::now()));
                if !stale && !self.live.holds(&hash, hurried).await? {
                    return Err(self.failed(peer, Some(hash), "unknown"));
                }
                self.look_up(hash, peer).await?
            }
        };
        if principal.is_expired(now) {
            return Err(Fault::new(Code::Unauthenticated, format!("the token {} has expired", principal.name))
                .help("log in again:   berth login"));
        }
        self.rate.check(&principal.token_id)?;
        Ok(principal)
    }

    async fn look_up(&self, hash: [u8; 32], peer: Option<IpAddr>) -> Result<Arc<Principal>, Fault> {
        self.metrics.token_lookups.inc();
        let row = self.control.token_by_hash(&hash).await?;
        let known = row.as_ref().filter(|row| row.revoked_at.is_none());
        let Some((row, principal)) = known.and_then(|row| Some((row, Principal::of(row)?))) else {
            lock(&self.remembered).remove(&hash);
            self.live.forget(&hash);
            let why = if row.is_some() { "revoked" } else { "unknown" };
            return Err(self.failed(peer, Some(hash), why));
        };
        let principal = Arc::new(principal);
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, known| known.at.elapsed() < REMEMBERED_FOR);
            if remembered.len() >= REMEMBERED_MAX {
                remembered.clear();
            }
        }
        remembered.insert(hash, Remembered { principal: principal.clone(), at: Instant::now() });
        drop(remembered);
        let now = Timestamp::now();
        let recent = |used: Timestamp| now.duration_since(used).unsigned_abs() < USED_EVERY;
        if !principal.is_expired(now) && !row.used_at.is_some_and(recent) {
            lock(&self.used).insert(row.id.clone(), now);
        }
        Ok(principal)
    }

    /// A revocation on this server holds at once.
    pub fn forget(&self, token_id: &str) {
        lock(&self.remembered).retain(|_, known| known.principal.token_id != token_id);
    }

    /// Counts an attempt that failed, and says so in the log: never the token.
    pub fn failed(&self, peer: Option<IpAddr>, token: Option<[u8; 32]>, why: &str) -> Fault {
        match peer.map(|peer| self.attempts.count(peer, token, Instant::now())) {
            Some(Failed::TooMany) => return too_many(),
            Some(Failed::Again) => {}
            Some(Failed::Counted) | None => {
                let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
                tracing::warn!(%peer, why, "a call without a valid token was refused");
            }
        }
        Fault::new(Code::Unauthenticated, "the token is not valid, or not any more").help("log in again:   berth login")
    }

    /// What someone is told whose login failed, from an address that has failed too often: a good one is not refused.
    pub fn too_many(&self, peer: Option<IpAddr>) -> Option<Fault> {
        peer.filter(|peer| self.attempts.spent(*peer, Instant::now())).map(|_| too_many())
    }

    /// This server made a token.
    pub fn made(&self, hash: [u8; 32]) {
        self.live.add(hash);
    }

    /// Reads which tokens hold, until told to stop.
    pub async fn keep_live(self: Arc<Self>, stop: CancellationToken) {
        self.live.keep(stop).await;
    }

    /// Writes when tokens were last used, until told to stop.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(WRITE_USED_EVERY)).await.is_some() {
            let used: Vec<(String, Timestamp)> = lock(&self.used).drain().collect();
            if !used.is_empty()
                && let Err(error) = self.control.touch_tokens(used).await
            {
                tracing::warn!(%error, "when tokens were used could not be written");
            }
        }
    }
}

fn too_many() -> Fault {
    Fault::new(Code::TooMany, "too many attempts from this address without a valid token").help("wait half a minute")
}

/// The token of a request; `None` when there is none.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let bad = || Fault::new(Code::Unauthenticated, "the authorization header is not `Bearer TOKEN`");
    if all.next().is_some() {
        return Err(Fault::new(Code::Unauthenticated, "there is more than one authorization header"));
    }
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(bad)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(bad());
    }
    Ok(Some(token.trim()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
