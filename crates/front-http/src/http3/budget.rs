//! Bytes that may be sent to clients that have not shown their address: three times the bytes from there (RFC 9000,
//! section 8.1). quinn looks before each packet whether it may send another byte, so its last packet may go beyond:
//! that one is dropped here, as if it were lost on its way.
//!
//! Invariants
//! - Addresses are only remembered while a handshake of theirs is unfinished, and few more for their first packets.
//! - A client that quinn believes is never held up: quinn sends nothing beyond three times the bytes to another one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A first packet is at least as long (RFC 9000, section 14.1).
const FIRST: u64 = 1200;
/// How many times the bytes that came may go back.
const TIMES: u64 = 3;
/// Most addresses whose first packets wait to be accepted; all are forgotten when there are more, and count as [`FIRST`].
const WAITING: usize = 1024;

/// The budgets of all addresses with unfinished handshakes.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    unproven: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_address: HashMap<SocketAddr, Budget>,
    /// Bytes that came from addresses whose connections are not accepted yet.
    waiting: HashMap<SocketAddr, u64>,
}

#[derive(Debug, Default)]
struct Budget {
    handshakes: usize,
    received: u64,
    /// Bytes that quinn has sent, dropped ones included.
    sent: u64,
}

impl Budgets {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes that came. `first`: they may begin a connection.
    pub(super) fn receive(&self, peer: SocketAddr, bytes: usize, first: bool) {
        if !first && self.unproven.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.lock();
        let bytes = bytes as u64;
        if let Some(budget) = state.by_address.get_mut(&peer) {
            budget.received += bytes;
        } else if first {
            if state.waiting.len() >= WAITING {
                state.waiting.clear();
            }
            *state.waiting.entry(peer).or_default() += bytes;
        }
    }

    /// Begins a handshake of a client that has not shown its address; it ends when this is dropped.
    pub(super) fn begin(self: &Arc<Self>, peer: SocketAddr) -> Unproven {
        let mut state = self.lock();
        let came = state.waiting.remove(&peer).unwrap_or(0).max(FIRST);
        let budget = state.by_address.entry(peer).or_default();
        budget.handshakes += 1;
        budget.received += came;
        self.unproven.fetch_add(1, Ordering::Relaxed);
        Unproven { budgets: Arc::clone(self), peer }
    }

    /// Returns the number of clients that have not shown their address.
    pub(super) fn unproven(&self) -> usize {
        self.unproven.load(Ordering::Relaxed)
    }

    /// Returns how many of these bytes may be sent, in whole packets of this size.
    pub(super) fn send(&self, peer: SocketAddr, bytes: usize, packet: usize) -> usize {
        if self.unproven.load(Ordering::Relaxed) == 0 {
            return bytes;
        }
        let mut state = self.lock();
        let Some(budget) = state.by_address.get_mut(&peer) else { return bytes };
        let most = budget.received * TIMES;
        let before = budget.sent;
        budget.sent += bytes as u64;
        if before >= most || budget.sent <= most {
            // Beyond it quinn would be silent if the client had not shown its address.
            return bytes;
        }
        let left = usize::try_from(most - before).unwrap_or(usize::MAX);
        left.checked_div(packet).map_or(0, |packets| packets * packet)
    }
}

/// A client that has not shown its address.
#[derive(Debug)]
pub(super) struct Unproven {
    budgets: Arc<Budgets>,
    peer: SocketAddr,
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.budgets.unproven.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.budgets.lock();
        if let Some(budget) = state.by_address.get_mut(&self.peer) {
            budget.handshakes -= 1;
            if budget.handshakes == 0 {
                state.by_address.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_beyond_three_times_the_bytes_is_dropped_once() {
        let budgets = Arc::new(Budgets::default());
        let [peer, other] = ["192.0.2.1:1", "192.0.2.2:1"].map(|text| text.parse().unwrap());
        assert_eq!(budgets.send(peer, 9000, 1200), 9000, "no handshake");
        budgets.receive(peer, 1250, true);
        let handshake = budgets.begin(peer);
        assert_eq!(budgets.unproven(), 1);
        assert_eq!(budgets.send(peer, 2400, 1200), 2400);
        assert_eq!(budgets.send(peer, 1351, 1351), 0, "3,751 bytes for 1,250");
        assert_eq!(budgets.send(other, 9000, 1200), 9000);
        // quinn goes on: the client has shown its address.
        assert_eq!(budgets.send(peer, 1200, 1200), 1200);
        budgets.receive(peer, 1000, false);
        assert_eq!(budgets.send(peer, 1799, 1000), 1799, "exactly three times");
        budgets.receive(peer, 500, false);
        assert_eq!(budgets.send(peer, 2400, 1200), 1200, "one of two packets");
        drop(handshake);
        assert_eq!(budgets.send(peer, 9000, 1200), 9000);
        assert!(budgets.lock().by_address.is_empty());
    }

    #[test]
    fn first_packets_of_many_addresses_take_bounded_memory() {
        let budgets = Arc::new(Budgets::default());
        for port in 1..=5000 {
            budgets.receive(SocketAddr::from(([192, 0, 2, 1], port)), 1300, true);
        }
        assert!(budgets.lock().waiting.len() <= WAITING);
        // A forgotten one counts with the least that it can have sent.
        let handshake = budgets.begin(SocketAddr::from(([192, 0, 2, 1], 1)));
        assert_eq!(budgets.send(handshake.peer, 3600, 1200), 3600);
        assert_eq!(budgets.unproven(), 1);
    }
}
