//! Limits on connections. Connections that have shown a valid token use slots that are reserved for them. The others
//! (strangers) share the remaining slots, and each network may use a part of those. A new connection is always accepted: if no
//! slot is free, the stranger that has been idle for longest is closed. That is one of the new connection's own network if that
//! network uses its part already, and otherwise one of the network with the most connections. So idle strangers cannot keep
//! out callers with a token, not even callers from the same address.

use crate::address::network;
use crate::limits::{Limits, known_slots, stranger_slots};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

pub struct ConnectionSlots {
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
    /// The last turn number.
    turn: u64,
    /// Strangers by the turn number of their last request.
    strangers: BTreeMap<u64, Stranger>,
    networks: HashMap<IpAddr, BTreeSet<u64>>,
    known: usize,
}

struct Stranger {
    network: IpAddr,
    /// Time of its last request.
    at: Instant,
    leave: CancellationToken,
}

/// One connection's slot, given back when it is dropped.
pub struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    network: IpAddr,
    leave: CancellationToken,
    state: Mutex<State>,
}

struct State {
    kind: SlotKind,
    /// Requests, and responses that are not sent completely.
    open: usize,
    quiet_since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotKind {
    /// Its turn number.
    Stranger(u64),
    Known,
}

impl ConnectionSlots {
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            strangers_max: stranger_slots(limits.connections),
            per_network: limits.connections_per_address.max(1),
            known_max: known_slots(limits.connections),
            new_for: limits.stranger_new,
            stranger_idle: limits.stranger_idle,
            known_idle: limits.known_idle,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a new connection. Another connection may be closed for it.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectionSlot> {
        let network = network(address);
        let leave = CancellationToken::new();
        let turn = self.inner().admit(Stranger { network, at: Instant::now(), leave: leave.clone() }, self);
        self.slot(network, leave, SlotKind::Stranger(turn))
    }

    /// A reserved slot for a trusted proxy, or a stranger's slot if none is free.
    pub fn enter_trusted(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectionSlot> {
        let slot = self.enter(address);
        slot.mark_known();
        slot
    }

    fn slot(self: &Arc<Self>, network: IpAddr, leave: CancellationToken, kind: SlotKind) -> Arc<ConnectionSlot> {
        let state = Mutex::new(State { kind, open: 0, quiet_since: Instant::now() });
        Arc::new(ConnectionSlot { slots: self.clone(), network, leave, state })
    }
}

impl Inner {
    fn admit(&mut self, stranger: Stranger, slots: &ConnectionSlots) -> u64 {
        let oldest = |turns: &BTreeSet<u64>| turns.first().copied();
        let own = self.networks.get(&stranger.network).filter(|turns| turns.len() >= slots.per_network);
        // Many connections at once from one address (workers after a restart of the server) get time to show a token.
        let is_old = |turn: &u64| self.strangers.get(turn).is_some_and(|one| one.at.elapsed() >= slots.new_for);
        let leaves = own.and_then(oldest).filter(is_old).or_else(|| {
            let crowded = self.networks.values().max_by_key(|turns| (turns.len(), std::cmp::Reverse(turns.first())));
            crowded.filter(|_| self.strangers.len() >= slots.strangers_max).and_then(oldest)
        });
        if let Some(gone) = leaves.and_then(|turn| self.remove(turn)) {
            gone.leave.cancel();
        }
        self.insert(stranger)
    }

    fn insert(&mut self, stranger: Stranger) -> u64 {
        self.turn += 1;
        self.networks.entry(stranger.network).or_default().insert(self.turn);
        self.strangers.insert(self.turn, stranger);
        self.turn
    }

    fn remove(&mut self, turn: u64) -> Option<Stranger> {
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

impl ConnectionSlot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins; it lasts until what this returns is dropped.
    pub fn open(self: &Arc<Self>) -> OpenRequest {
        let mut state = self.state();
        state.open += 1;
        if let SlotKind::Stranger(turn) = state.kind {
            let mut inner = self.slots.inner();
            if let Some(mut stranger) = inner.remove(turn) {
                stranger.at = Instant::now();
                state.kind = SlotKind::Stranger(inner.insert(stranger));
            }
        }
        OpenRequest(self.clone())
    }

    /// A valid token was shown. `false` if all reserved slots are taken: the connection stays a stranger.
    pub fn mark_known(&self) -> bool {
        let mut state = self.state();
        let SlotKind::Stranger(turn) = state.kind else { return true };
        let mut inner = self.slots.inner();
        if inner.known >= self.slots.known_max || inner.remove(turn).is_none() {
            return false;
        }
        inner.known += 1;
        state.kind = SlotKind::Known;
        true
    }

    pub fn is_known(&self) -> bool {
        self.state().kind == SlotKind::Known
    }

    /// Returns when the slot was given to another connection.
    pub async fn evicted(&self) {
        self.leave.cancelled().await;
    }

    /// Returns when there was no request for too long. Keep-alive frames do not count.
    pub async fn idle(&self) {
        loop {
            let (open, known, quiet) = {
                let state = self.state();
                (state.open, state.kind == SlotKind::Known, state.quiet_since.elapsed())
            };
            let most = if known { self.slots.known_idle } else { self.slots.stranger_idle };
            match most.checked_sub(quiet).filter(|left| !left.is_zero()) {
                None if open == 0 => return,
                None => tokio::time::sleep(most).await,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let kind = self.state().kind;
        let mut inner = self.slots.inner();
        match kind {
            SlotKind::Known => inner.known -= 1,
            SlotKind::Stranger(turn) => _ = inner.remove(turn),
        }
    }
}

/// A request under way, or its answer.
pub struct OpenRequest(Arc<ConnectionSlot>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.quiet_since = Instant::now();
    }
}

impl std::fmt::Debug for ConnectionSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionSlot").field("network", &self.network).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(connections: usize, per_address: usize) -> Arc<ConnectionSlots> {
        let stranger_new = Duration::ZERO;
        ConnectionSlots::new(&Limits {
            connections,
            connections_per_address: per_address,
            stranger_new,
            ..Limits::default()
        })
    }

    fn address(last: u32) -> IpAddr {
        IpAddr::V4(last.into())
    }

    #[test]
    fn the_oldest_stranger_makes_way_and_nobody_with_a_token_does() {
        let slots = slots(16, 100);
        let known = slots.enter(address(1));
        assert!(known.mark_known() && known.is_known());
        let strangers: Vec<_> = (0..slots.strangers_max).map(|n| slots.enter(address(n as u32))).collect();
        let active = strangers[0].open();
        let near = slots.enter(address(3));
        let gone = |slot: &Arc<ConnectionSlot>| slot.leave.is_cancelled();
        assert!(gone(&strangers[1]), "the one that did nothing for longest");
        let far = slots.enter(address(1_000));
        assert!(gone(&strangers[3]) && !gone(&strangers[2]), "of the network that has most");
        assert!(!gone(&near) && !gone(&far));
        assert!(!gone(&strangers[0]) && !gone(&known));
        drop(active);
    }

    #[test]
    fn a_network_that_has_its_part_makes_way_for_itself() {
        let slots = slots(4096, 2);
        let other = slots.enter("192.0.2.1".parse().unwrap());
        let [one, two, three] = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|text| text.parse().unwrap());
        let (first, second) = (slots.enter(one), slots.enter(two));
        let third = slots.enter(three);
        assert!(first.leave.is_cancelled() && !second.leave.is_cancelled() && !third.leave.is_cancelled());
        assert!(!other.leave.is_cancelled());
        // A connection with a token is not counted any more.
        assert!(second.mark_known());
        let fourth = slots.enter(one);
        assert!(!third.leave.is_cancelled() && !fourth.leave.is_cancelled());
    }

    #[test]
    fn whoever_comes_with_many_others_has_a_moment() {
        let limits = Limits { connections_per_address: 2, ..Limits::default() };
        let slots = ConnectionSlots::new(&limits);
        let all: Vec<_> = (0..100).map(|_| slots.enter(address(1))).collect();
        assert!(!all.iter().any(|slot| slot.leave.is_cancelled()));
    }

    #[test]
    fn places_are_given_back() {
        let slots = slots(16, 100);
        let known: Vec<_> = (0..slots.known_max)
            .map(|n| {
                let slot = slots.enter(address(n as u32));
                assert!(slot.mark_known());
                slot
            })
            .collect();
        let late = slots.enter(address(1));
        assert!(!late.mark_known(), "there are no more");
        drop(known);
        assert!(late.mark_known());
        drop(late);
        let inner = slots.inner();
        assert_eq!((inner.known, inner.strangers.len(), inner.networks.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_stranger_that_asks_nothing_is_idle_and_one_that_asks_is_not() {
        let limits = Limits {
            stranger_idle: Duration::from_millis(30),
            known_idle: Duration::from_secs(60),
            ..Limits::default()
        };
        let slots = ConnectionSlots::new(&limits);
        let soon = Duration::from_millis(200);
        let stranger = slots.enter(address(1));
        assert!(tokio::time::timeout(soon, stranger.idle()).await.is_ok());
        let open = stranger.open();
        assert!(tokio::time::timeout(soon, stranger.idle()).await.is_err());
        drop(open);
        stranger.mark_known();
        assert!(tokio::time::timeout(soon, stranger.idle()).await.is_err(), "a known one has longer");
    }
}
