//! Slots for calls without a token, of which each network may use a part. If none is free, the call that has been sending its
//! request for longest is ended: one of the new call's own network if that network uses its part already, otherwise one of the
//! network with the most calls. So nobody can keep others from logging in by sending slowly.

use crate::address::network;
use crate::limits::{PUBLIC_CALLS_MAX, PUBLIC_CALLS_PER_ADDRESS};
use crate::tracked_body::{TrackedBody, Tracker};
use axum::body::Body;
use axum::http::Request;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio_util::sync::CancellationToken;

/// `None` for a call that did not come by a connection.
type Network = Option<IpAddr>;

#[derive(Default)]
pub struct PublicSlots(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    /// The next call's number.
    turn: u64,
    all: usize,
    of: HashMap<Network, usize>,
    /// Calls whose requests have not arrived completely.
    reading: BTreeMap<u64, (Network, CancellationToken)>,
    reading_of: HashMap<Network, BTreeSet<u64>>,
}

/// One call's slot, given back when it is dropped.
pub struct PublicSlot {
    calls: Arc<Mutex<Calls>>,
    network: Network,
    turn: u64,
    leave: CancellationToken,
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PublicSlots {
    /// `None` if all slots are taken by calls whose requests have arrived.
    pub fn take(&self, address: Option<IpAddr>) -> Option<Arc<PublicSlot>> {
        let network = address.map(network);
        let leave = CancellationToken::new();
        let mut calls = lock(&self.0);
        let own = calls.of.get(&network).copied().unwrap_or(0);
        if own >= PUBLIC_CALLS_PER_ADDRESS {
            calls.evict(&network)?;
        } else if calls.all >= PUBLIC_CALLS_MAX {
            let most = calls.reading_of.iter().max_by_key(|(_, turns)| turns.len()).map(|(network, _)| *network);
            calls.evict(&most?)?;
        }
        calls.turn += 1;
        let turn = calls.turn;
        calls.all += 1;
        *calls.of.entry(network).or_default() += 1;
        calls.reading.insert(turn, (network, leave.clone()));
        calls.reading_of.entry(network).or_default().insert(turn);
        drop(calls);
        Some(Arc::new(PublicSlot { calls: self.0.clone(), network, turn, leave }))
    }
}

impl Calls {
    /// The network's call that has been sending for longest leaves.
    fn evict(&mut self, network: &Network) -> Option<()> {
        let turn = self.reading_of.get(network)?.first().copied()?;
        let leave = self.read(turn)?;
        self.go(network);
        leave.cancel();
        Some(())
    }

    /// It does not send any more.
    fn read(&mut self, turn: u64) -> Option<CancellationToken> {
        let (network, leave) = self.reading.remove(&turn)?;
        if let Some(turns) = self.reading_of.get_mut(&network) {
            turns.remove(&turn);
            if turns.is_empty() {
                self.reading_of.remove(&network);
            }
        }
        Some(leave)
    }

    fn go(&mut self, network: &Network) {
        self.all -= 1;
        if let Some(own) = self.of.get_mut(network) {
            *own -= 1;
            if *own == 0 {
                self.of.remove(network);
            }
        }
    }
}

impl PublicSlot {
    /// Returns when the slot was given to another call.
    pub async fn evicted(&self) {
        self.leave.cancelled().await;
    }

    /// Tells the slot when all of the request has arrived.
    pub fn watch(self: &Arc<Self>, request: Request<Body>) -> Request<Body> {
        let sending = Sending(Arc::downgrade(self));
        request.map(|body| TrackedBody::wrap(body, sending))
    }
}

impl Drop for PublicSlot {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls);
        // A call that was ended for another gave its slot back then.
        if !self.leave.is_cancelled() {
            calls.read(self.turn);
            calls.go(&self.network);
        }
    }
}

/// The slot of a request that is being received. A stream may go on after the slot was given back.
struct Sending(Weak<PublicSlot>);

impl Tracker for Sending {
    fn ended(&mut self) {
        if let Some(slot) = std::mem::take(&mut self.0).upgrade() {
            lock(&slot.calls).read(slot.turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn an_address_that_has_its_part_makes_way_for_itself_where_it_is_slow() {
        let slots = PublicSlots::default();
        let mut held: Vec<_> = (0..PUBLIC_CALLS_PER_ADDRESS).map(|_| slots.take(address(1)).unwrap()).collect();
        let other = slots.take(address(2)).unwrap();
        held.push(slots.take(address(1)).unwrap());
        assert!(held[0].leave.is_cancelled() && !held[1].leave.is_cancelled() && !other.leave.is_cancelled());
        // What was sent to its end is worked on, and stays.
        for slot in &held {
            drop(slot.watch(Request::new(Body::empty())));
        }
        assert!(slots.take(address(1)).is_none() && slots.take(address(2)).is_some());
        drop((held, other));
        let calls = lock(&slots.0);
        assert_eq!((calls.all, calls.of.len(), calls.reading.len(), calls.reading_of.len()), (0, 0, 0, 0));
    }

    #[test]
    fn when_all_slots_are_taken_the_network_with_most_makes_way() {
        let slots = PublicSlots::default();
        let addresses = PUBLIC_CALLS_MAX / PUBLIC_CALLS_PER_ADDRESS;
        let held: Vec<_> = (0..PUBLIC_CALLS_MAX - 1)
            .map(|n| slots.take(address((n % addresses) as u8)).unwrap())
            .chain([slots.take(address(200)).unwrap()])
            .collect();
        let newcomer = slots.take(address(201)).expect("a slot");
        assert_eq!(held.iter().filter(|slot| slot.leave.is_cancelled()).count(), 1);
        assert!(!held[PUBLIC_CALLS_MAX - 1].leave.is_cancelled() && !newcomer.leave.is_cancelled());
    }
}
