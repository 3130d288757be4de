//! Who may have a connection. Whoever showed a valid token has one of the places that are kept for them; strangers share the
//! others, and each network of theirs has a part. A newcomer is never turned away: the stranger that was quiet for longest
//! makes way: one of the newcomer's own network where that has its part already, otherwise one of the network that has most.
//! So no number of idle strangers keeps anyone with a token out, not even one that shares their address.

use crate::address::network;
use crate::limits::{Limits, known_places, stranger_places};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

pub struct Places {
    inner: Mutex<Inner>,
    strangers_max: usize,
    per_network: usize,
    known_max: usize,
    new_for: Duration,
    stranger_idle: Duration,
    known_idle: Duration,
}

#[derive(Default)]
struct Inner {
    /// The next turn's number.
    turn: u64,
    /// Strangers by the turn in which they last did something.
    strangers: BTreeMap<u64, Stranger>,
    networks: HashMap<IpAddr, BTreeSet<u64>>,
    known: usize,
}

struct Stranger {
    network: IpAddr,
    /// When it last did something.
    at: Instant,
    leave: CancellationToken,
}

/// One connection's place, given back when it is dropped.
pub struct Place {
    places: Arc<Places>,
    network: IpAddr,
    leave: CancellationToken,
    state: Mutex<State>,
}

struct State {
    standing: Standing,
    /// Requests, and answers that are not sent to their end.
    open: usize,
    quiet_since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its turn.
    Stranger(u64),
    Known,
}

impl Places {
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            strangers_max: stranger_places(limits.connections),
            per_network: limits.connections_per_address.max(1),
            known_max: known_places(limits.connections),
            new_for: limits.stranger_new,
            stranger_idle: limits.stranger_idle,
            known_idle: limits.known_idle,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a newcomer. Another may have to leave.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Arc<Place> {
        let network = network(address);
        let leave = CancellationToken::new();
        let turn = self.inner().come(Stranger { network, at: Instant::now(), leave: leave.clone() }, self);
        self.place(network, leave, Standing::Stranger(turn))
    }

    /// A place among the known ones, for a proxy that is trusted; a stranger's where there is none.
    pub fn enter_trusted(self: &Arc<Self>, address: IpAddr) -> Arc<Place> {
        let place = self.enter(address);
        place.settle();
        place
    }

    fn place(self: &Arc<Self>, network: IpAddr, leave: CancellationToken, standing: Standing) -> Arc<Place> {
        let state = Mutex::new(State { standing, open: 0, quiet_since: Instant::now() });
        Arc::new(Place { places: self.clone(), network, leave, state })
    }
}

impl Inner {
    fn come(&mut self, stranger: Stranger, places: &Places) -> u64 {
        let oldest = |turns: &BTreeSet<u64>| turns.first().copied();
        let own = self.networks.get(&stranger.network).filter(|turns| turns.len() >= places.per_network);
        // Many who come at once from one address, such as workers of a server that was away, have a moment to show a token.
        let is_old = |turn: &u64| self.strangers.get(turn).is_some_and(|one| one.at.elapsed() >= places.new_for);
        let leaves = own.and_then(oldest).filter(is_old).or_else(|| {
            let crowded = self.networks.values().max_by_key(|turns| (turns.len(), std::cmp::Reverse(turns.first())));
            crowded.filter(|_| self.strangers.len() >= places.strangers_max).and_then(oldest)
        });
        if let Some(gone) = leaves.and_then(|turn| self.go(turn)) {
            gone.leave.cancel();
        }
        self.stand(stranger)
    }

    fn stand(&mut self, stranger: Stranger) -> u64 {
        self.turn += 1;
        self.networks.entry(stranger.network).or_default().insert(self.turn);
        self.strangers.insert(self.turn, stranger);
        self.turn
    }

    fn go(&mut self, turn: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&turn)?;
        if let Some(turns) = self.networks.get_mut(&stranger.network) {
            turns.remove(&turn);
            if turns.is_empty() {
                self.networks.remove(&stranger.network);
            }
        }
        Some(stranger)
    }
}

impl Place {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins; it lasts until what this returns is dropped.
    pub fn open(self: &Arc<Self>) -> Open {
        let mut state = self.state();
        state.open += 1;
        if let Standing::Stranger(turn) = state.standing {
            let mut inner = self.places.inner();
            if let Some(mut stranger) = inner.go(turn) {
                stranger.at = Instant::now();
                state.standing = Standing::Stranger(inner.stand(stranger));
            }
        }
        Open(self.clone())
    }

    /// A valid token was shown. `false` where all places for those are taken: it stays a stranger.
    pub fn settle(&self) -> bool {
        let mut state = self.state();
        let Standing::Stranger(turn) = state.standing else { return true };
        let mut inner = self.places.inner();
        if inner.known >= self.places.known_max || inner.go(turn).is_none() {
            return false;
        }
        inner.known += 1;
        state.standing = Standing::Known;
        true
    }

    pub fn is_known(&self) -> bool {
        self.state().standing == Standing::Known
    }

    /// Returns when the place is another's.
    pub async fn evicted(&self) {
        self.leave.cancelled().await;
    }

    /// Returns when nothing was asked here for too long. Signs of life are no requests.
    pub async fn idle(&self) {
        loop {
            let (open, known, quiet) = {
                let state = self.state();
                (state.open, state.standing == Standing::Known, state.quiet_since.elapsed())
            };
            let most = if known { self.places.known_idle } else { self.places.stranger_idle };
            match most.checked_sub(quiet).filter(|left| !left.is_zero()) {
                None if open == 0 => return,
                None => tokio::time::sleep(most).await,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let standing = self.state().standing;
        let mut inner = self.places.inner();
        match standing {
            Standing::Known => inner.known -= 1,
            Standing::Stranger(turn) => _ = inner.go(turn),
        }
    }
}

/// A request under way, or its answer.
pub struct Open(Arc<Place>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.quiet_since = Instant::now();
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("network", &self.network).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(connections: usize, per_address: usize) -> Arc<Places> {
        let stranger_new = Duration::ZERO;
        Places::new(&Limits { connections, connections_per_address: per_address, stranger_new, ..Limits::default() })
    }

    fn address(last: u32) -> IpAddr {
        IpAddr::V4(last.into())
    }

    #[test]
    fn the_oldest_stranger_makes_way_and_nobody_with_a_token_does() {
        let places = places(16, 100);
        let known = places.enter(address(1));
        assert!(known.settle() && known.is_known());
        let strangers: Vec<_> = (0..places.strangers_max).map(|n| places.enter(address(n as u32))).collect();
        let active = strangers[0].open();
        let near = places.enter(address(3));
        let gone = |place: &Arc<Place>| place.leave.is_cancelled();
        assert!(gone(&strangers[1]), "the one that did nothing for longest");
        let far = places.enter(address(1_000));
        assert!(gone(&strangers[3]) && !gone(&strangers[2]), "of the network that has most");
        assert!(!gone(&near) && !gone(&far));
        assert!(!gone(&strangers[0]) && !gone(&known));
        drop(active);
    }

    #[test]
    fn a_network_that_has_its_part_makes_way_for_itself() {
        let places = places(4096, 2);
        let other = places.enter("192.0.2.1".parse().unwrap());
        let [one, two, three] = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|text| text.parse().unwrap());
        let (first, second) = (places.enter(one), places.enter(two));
        let third = places.enter(three);
        assert!(first.leave.is_cancelled() && !second.leave.is_cancelled() && !third.leave.is_cancelled());
        assert!(!other.leave.is_cancelled());
        // Whoever shows a token is not counted any more.
        assert!(second.settle());
        let fourth = places.enter(one);
        assert!(!third.leave.is_cancelled() && !fourth.leave.is_cancelled());
    }

    #[test]
    fn whoever_comes_with_many_others_has_a_moment() {
        let limits = Limits { connections_per_address: 2, ..Limits::default() };
        let places = Places::new(&limits);
        let all: Vec<_> = (0..100).map(|_| places.enter(address(1))).collect();
        assert!(!all.iter().any(|place| place.leave.is_cancelled()));
    }

    #[test]
    fn places_are_given_back() {
        let places = places(16, 100);
        let known: Vec<_> = (0..places.known_max)
            .map(|n| {
                let place = places.enter(address(n as u32));
                assert!(place.settle());
                place
            })
            .collect();
        let late = places.enter(address(1));
        assert!(!late.settle(), "there are no more");
        drop(known);
        assert!(late.settle());
        drop(late);
        let inner = places.inner();
        assert_eq!((inner.known, inner.strangers.len(), inner.networks.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_stranger_that_asks_nothing_is_idle_and_one_that_asks_is_not() {
        let limits = Limits {
            stranger_idle: Duration::from_millis(30),
            known_idle: Duration::from_secs(60),
            ..Limits::default()
        };
        let places = Places::new(&limits);
        let soon = Duration::from_millis(200);
        let stranger = places.enter(address(1));
        assert!(tokio::time::timeout(soon, stranger.idle()).await.is_ok());
        let open = stranger.open();
        assert!(tokio::time::timeout(soon, stranger.idle()).await.is_err());
        drop(open);
        stranger.settle();
        assert!(tokio::time::timeout(soon, stranger.idle()).await.is_err(), "a known one has longer");
    }
}
