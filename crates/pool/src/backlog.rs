//! The queue of requests that wait for a worker: first come, first served, with a rule for which to drop. Sans-I/O.
//!
//! Invariants
//! - The oldest request is served first, whichever client sent it.
//! - If one must be dropped, it is the newest of the client with the most requests, so no client displaces others by
//!   sending more than they do.
//! - A client is an IPv4 address, or the first 64 bits of an IPv6 address, which is what one site has.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

/// The key by which requests of one client are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    pub(crate) fn of(address: IpAddr) -> Self {
        const SITE: u128 = !0 << 64;
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & SITE).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// The waiting requests in order of arrival.
#[derive(Debug)]
pub(crate) struct Backlog<T> {
    line: VecDeque<Place<T>>,
    of_client: HashMap<Client, usize>,
}

/// One waiting request.
#[derive(Debug)]
pub(crate) struct Place<T> {
    pub since: Instant,
    pub client: Client,
    pub waiter: T,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { line: VecDeque::new(), of_client: HashMap::new() }
    }
}

impl<T> Backlog<T> {
    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Returns since when the first request has been waiting.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.line.front().map(|place| place.since)
    }

    pub(crate) fn push(&mut self, since: Instant, client: Client, waiter: T) {
        *self.of_client.entry(client).or_default() += 1;
        self.line.push_back(Place { since, client, waiter });
    }

    pub(crate) fn pop(&mut self) -> Option<Place<T>> {
        let place = self.line.pop_front()?;
        self.left(place.client);
        Some(place)
    }

    /// Removes the first request if it has waited for `limit`.
    pub(crate) fn pop_expired(&mut self, now: Instant, limit: Duration) -> Option<Place<T>> {
        let since = self.since()?;
        if now.saturating_duration_since(since) < limit { None } else { self.pop() }
    }

    /// Removes requests that have stopped waiting.
    pub(crate) fn forget(&mut self, gone: impl Fn(&T) -> bool) {
        let of_client = &mut self.of_client;
        self.line.retain(|place| {
            let stays = !gone(&place.waiter);
            if !stays {
                leave(of_client, place.client);
            }
            stays
        });
    }

    /// Removes the newest request of the client with the most, to make room for one of `newcomer`, if that client has
    /// fewer, the new one included.
    pub(crate) fn make_room(&mut self, newcomer: Client) -> Option<Place<T>> {
        let own = self.of_client.get(&newcomer).copied().unwrap_or_default();
        let (&greedy, &most) = self.of_client.iter().max_by_key(|(_, number)| **number)?;
        if most <= own + 1 {
            return None;
        }
        let at = self.line.iter().rposition(|place| place.client == greedy)?;
        let place = self.line.remove(at)?;
        self.left(greedy);
        Some(place)
    }

    /// Removes the newest requests until at most `room` are left, first from the clients with the most.
    pub(crate) fn trim(&mut self, room: usize) -> Vec<Place<T>> {
        if self.line.len() <= room {
            return Vec::new();
        }
        // Computes an equal maximum for all clients.
        let mut numbers: Vec<usize> = self.of_client.values().copied().collect();
        numbers.sort_unstable();
        let (mut left, mut share) = (room, 0);
        for (at, number) in numbers.iter().enumerate() {
            let equal = left / (numbers.len() - at);
            share = equal.max(share);
            left = left.saturating_sub((*number).min(equal));
        }
        let mut kept: HashMap<Client, usize> = HashMap::new();
        let (mut stay, mut go) = (VecDeque::new(), Vec::new());
        for place in self.line.drain(..) {
            let number = kept.entry(place.client).or_default();
            if *number < share.max(1) && stay.len() < room {
                *number += 1;
                stay.push_back(place);
            } else {
                go.push(place);
            }
        }
        kept.retain(|_, number| *number > 0);
        self.line = stay;
        self.of_client = kept;
        go
    }

    fn left(&mut self, client: Client) {
        leave(&mut self.of_client, client);
    }
}

fn leave(of_client: &mut HashMap<Client, usize>, client: Client) {
    if let Some(number) = of_client.get_mut(&client) {
        *number -= 1;
        if *number == 0 {
            of_client.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(number: u8) -> Client {
        Client::of(IpAddr::from([10, 0, 0, number]))
    }

    fn line(of: &[u8]) -> Backlog<usize> {
        let mut backlog = Backlog::default();
        for (at, number) in of.iter().enumerate() {
            backlog.push(Instant::now(), client(*number), at);
        }
        backlog
    }

    fn order(backlog: &mut Backlog<usize>) -> Vec<usize> {
        std::iter::from_fn(|| backlog.pop()).map(|place| place.waiter).collect()
    }

    #[test]
    fn the_newest_of_the_client_with_most_makes_room_and_nobody_else() {
        let mut backlog = line(&[1, 1, 2, 1, 2]);
        assert_eq!(backlog.make_room(client(3)).unwrap().waiter, 3);
        // Two each: a client with one request gains nothing by displacing one of theirs.
        assert!(backlog.make_room(client(2)).is_none());
        assert!(backlog.make_room(client(1)).is_none());
        assert!(backlog.make_room(client(3)).is_some());
        assert_eq!(backlog.len(), 3);
        assert!(line(&[1, 1, 1]).make_room(client(1)).is_none(), "its own are first come");
    }

    #[test]
    fn what_is_trimmed_is_the_newest_of_those_with_most() {
        let mut backlog = line(&[1, 1, 1, 1, 2, 1, 3, 1, 2]);
        let gone: Vec<usize> = backlog.trim(5).into_iter().map(|place| place.waiter).collect();
        assert_eq!(gone, [2, 3, 5, 7]);
        assert_eq!(order(&mut backlog), [0, 1, 4, 6, 8]);
        let mut many = line(&[1, 2, 3, 4]);
        assert_eq!(many.trim(2).len(), 2);
        assert_eq!(
            order(&mut many),
            [0, 1],
            "the oldest stay when there are more clients than places"
        );
    }

    #[test]
    fn a_site_with_ipv6_is_one_client() {
        let of = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_line_and_the_order_stays(
            steps in prop::collection::vec((0_u8..5, 0_u8..6, 0_usize..40), 1..120),
        ) {
            let mut backlog: Backlog<usize> = Backlog::default();
            for (at, (step, number, room)) in steps.into_iter().enumerate() {
                match step {
                    0 => drop(backlog.pop()),
                    1 => {
                        let before = backlog.len();
                        let gone = backlog.make_room(client(number)).map_or(0, |_| 1);
                        prop_assert_eq!(backlog.len() + gone, before);
                    }
                    2 => {
                        let before = backlog.len();
                        let gone = backlog.trim(room).len();
                        prop_assert_eq!(backlog.len() + gone, before);
                        prop_assert!(backlog.len() <= room);
                        // No request is dropped needlessly.
                        prop_assert!(gone == 0 || backlog.len() * 2 >= room.min(before));
                    }
                    3 => backlog.forget(|waiter| waiter % 3 == 0),
                    _ => backlog.push(Instant::now(), client(number), at),
                }
                let mut counted: HashMap<Client, usize> = HashMap::new();
                for place in &backlog.line {
                    *counted.entry(place.client).or_default() += 1;
                }
                prop_assert_eq!(&counted, &backlog.of_client);
                prop_assert!(backlog.line.iter().map(|place| place.waiter).is_sorted());
            }
        }
    }
}
