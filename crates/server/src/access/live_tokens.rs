//! The hashes of all valid tokens, in memory. Calls with an invented token are refused without a database read, so that any number of
//! them costs only an occasional refresh, and a valid token is never refused because of them.

use crate::metrics::Metrics;
use berth_store::{Control, LIST_MAX, StoreError};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// All of them are read anew this often: what expired or was revoked is forgotten.
const READ_ALL_EVERY: Duration = Duration::from_secs(600);
/// New ones are looked for at most this often, however many ask.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// And this often for those who are not waited for.
const LOOK_BEHIND_EVERY: Duration = Duration::from_secs(1);
/// How much earlier than now a token may have been made that is still new: as far as the servers' clocks may be apart.
const NEW_FOR: SignedDuration = SignedDuration::from_mins(5);
/// Callers that wait for such a look; the others are answered by what is known.
const WAITING_MAX: usize = 256;
/// With more tokens than this each is looked up by itself.
const HASHES_MAX: usize = 1_000_000;

type Hash = [u8; 32];

pub struct LiveTokens {
    control: Control,
    metrics: Metrics,
    hashes: Mutex<Hashes>,
    /// When the last look began, and whether it went well.
    looked: tokio::sync::Mutex<Option<(Instant, bool)>>,
    waiting: Semaphore,
    /// Someone asked and was not waited for.
    wanted: AtomicBool,
}

#[derive(Default)]
struct Hashes {
    set: HashSet<Hash>,
    /// Everything that there is was read.
    whole: bool,
}

impl LiveTokens {
    pub fn new(control: Control, metrics: Metrics) -> Self {
        let (hashes, looked) = (Mutex::default(), tokio::sync::Mutex::new(None));
        Self { control, metrics, hashes, looked, waiting: Semaphore::new(WAITING_MAX), wanted: AtomicBool::new(false) }
    }

    fn hashes(&self) -> MutexGuard<'_, Hashes> {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_hold(&self, hash: &Hash) -> bool {
        let hashes = self.hashes();
        !hashes.whole || hashes.set.contains(hash)
    }

    /// Whether a token may be valid. One that another server made a moment ago is found too; for a caller who shows many bad
    /// ones (`hurried`) that may take a second.
    pub async fn holds(&self, hash: &Hash, hurried: bool) -> Result<bool, StoreError> {
        if self.may_hold(hash) {
            return Ok(true);
        }
        let waits = self.waiting.try_acquire().ok().filter(|_| !hurried);
        if waits.is_none() {
            self.wanted.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        self.look().await?;
        Ok(self.may_hold(hash))
    }

    /// This server made it, or found it.
    pub fn add(&self, hash: Hash) {
        self.hashes().set.insert(hash);
    }

    pub fn forget(&self, hash: &Hash) {
        self.hashes().set.remove(hash);
    }

    /// For tokens that are new. One look serves all who asked before it began.
    async fn look(&self) -> Result<(), StoreError> {
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        if let Some((begun, well)) = *looked {
            if begun > asked && well {
                return Ok(());
            }
            tokio::time::sleep_until((begun + LOOK_EVERY).into()).await;
        }
        let begun = Instant::now();
        let since = Timestamp::now().checked_sub(NEW_FOR).unwrap_or(Timestamp::UNIX_EPOCH);
        let millis = u64::try_from(since.as_millisecond()).unwrap_or(0);
        let oldest = uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid().to_string();
        let read = self.read(oldest, &mut |hash| self.add(hash)).await;
        *looked = Some((begun, read.is_ok()));
        read.map(|_| ())
    }

    /// Keeps what is known up to date, until told to stop.
    pub async fn keep(&self, stop: CancellationToken) {
        let mut all_at = Instant::now();
        loop {
            let due = Instant::now() >= all_at;
            let read = match due {
                true => self.read_all().await,
                false if self.wanted.swap(false, Ordering::Relaxed) => self.look().await,
                false => Ok(()),
            };
            match read {
                Ok(()) if due => all_at = Instant::now() + READ_ALL_EVERY,
                Ok(()) => {}
                Err(error) => tracing::warn!(%error, "which tokens hold could not be read"),
            }
            if stop.run_until_cancelled(tokio::time::sleep(LOOK_BEHIND_EVERY)).await.is_none() {
                return;
            }
        }
    }

    /// All of them, in place of what was known.
    async fn read_all(&self) -> Result<(), StoreError> {
        let mut set = HashSet::new();
        let all = self.read(String::new(), &mut |hash| _ = set.insert(hash)).await?;
        let mut hashes = self.hashes();
        // What was made meanwhile is found by the next look.
        (hashes.set, hashes.whole) = if all { (set, true) } else { (HashSet::new(), false) };
        Ok(())
    }

    /// `false` where there are too many.
    async fn read(&self, mut after: String, take: &mut (dyn FnMut(Hash) + Send)) -> Result<bool, StoreError> {
        let mut count = 0;
        loop {
            self.metrics.token_lookups.inc();
            let page = self.control.live_tokens(&after, Timestamp::now(), LIST_MAX).await?;
            count += page.len();
            if count > HASHES_MAX {
                return Ok(false);
            }
            let more = page.len() == LIST_MAX as usize;
            for (id, hash) in page {
                take(hash);
                after = id;
            }
            if !more {
                return Ok(true);
            }
        }
    }
}
