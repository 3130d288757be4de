//! Places for calls without a token, of which each address has a part. Whoever is slow to send what it asks makes way for a
//! newcomer: one of the newcomer's own network where that has its part already, otherwise one of the network that has most. So
//! nobody keeps others from logging in by sending slowly.

use crate::address::network;
use crate::limits::{PUBLIC_CALLS_MAX, PUBLIC_CALLS_PER_ADDRESS};
use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;

/// `None`: it did not come by a connection.
type Network = Option<IpAddr>;

#[derive(Default)]
pub struct PublicSlots(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    /// The next call's number.
    turn: u64,
    all: usize,
    of: HashMap<Network, usize>,
    /// Those that have not sent all that they ask.
    reading: BTreeMap<u64, (Network, CancellationToken)>,
    reading_of: HashMap<Network, BTreeSet<u64>>,
}

/// One call's place, given back when it is dropped.
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
    /// `None` where all places are taken by calls that are being worked on.
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
    /// Returns when the place is another's.
    pub async fn evicted(&self) {
        self.leave.cancelled().await;
    }

    /// Tells the place when all of the request is here.
    pub fn watch(self: &Arc<Self>, request: Request<Body>) -> Request<Body> {
        let mut sending = Sending(Arc::downgrade(self));
        if request.body().is_end_stream() {
            sending.end();
        }
        request.map(|body| Body::new(Watched { body, sending }))
    }
}

impl Drop for PublicSlot {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls);
        // Whoever had to leave was counted out then.
        if !self.leave.is_cancelled() {
            calls.read(self.turn);
            calls.go(&self.network);
        }
    }
}

/// Whose request it is. A stream may go on after the place was given back.
struct Sending(Weak<PublicSlot>);

impl Sending {
    fn end(&mut self) {
        if let Some(slot) = std::mem::take(&mut self.0).upgrade() {
            lock(&slot.calls).read(slot.turn);
        }
    }
}

struct Watched {
    body: Body,
    sending: Sending,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream() {
            self.sending.end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
    fn when_all_places_are_taken_the_network_with_most_makes_way() {
        let slots = PublicSlots::default();
        let addresses = PUBLIC_CALLS_MAX / PUBLIC_CALLS_PER_ADDRESS;
        let held: Vec<_> = (0..PUBLIC_CALLS_MAX - 1)
            .map(|n| slots.take(address((n % addresses) as u8)).unwrap())
            .chain([slots.take(address(200)).unwrap()])
            .collect();
        let newcomer = slots.take(address(201)).expect("a place");
        assert_eq!(held.iter().filter(|slot| slot.leave.is_cancelled()).count(), 1);
        assert!(!held[PUBLIC_CALLS_MAX - 1].leave.is_cancelled() && !newcomer.leave.is_cancelled());
    }
}
