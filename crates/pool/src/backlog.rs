//! The queue of requests that wait for a worker: first come, first served, with a rule for which to drop. Sans-I/O.
//!
//! Invariants
//! - The oldest request is served first, whichever client sent it.
//! - If one must be dropped, it is the newest of the client with the most requests. No client displaces others by
//!   sending more requests than they do.
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
    /// Number of the next place.
    next: u64,
}

/// One waiting request.
#[derive(Debug)]
pub(crate) struct Place<T> {
    /// Identifies the place. Numbers increase from the oldest to the newest.
    pub number: u64,
    pub since: Instant,
    pub client: Client,
    pub waiter: T,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { line: VecDeque::new(), of_client: HashMap::new(), next: 0 }
    }
}

/// Functions that choose a request to remove take `may`: requests for which it returns `false` stay.
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

    /// Adds the newest request. Returns the number of its place.
    pub(crate) fn push(&mut self, since: Instant, client: Client, waiter: T) -> u64 {
        let number = self.next;
        self.next += 1;
        *self.of_client.entry(client).or_default() += 1;
        self.line.push_back(Place { number, since, client, waiter });
        number
    }

    /// Returns the waiter at a place, if it still waits.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.position(number)?;
        self.line.get_mut(at).map(|place| &mut place.waiter)
    }

    /// Removes the request at a place, if it still waits.
    pub(crate) fn take(&mut self, number: u64) -> Option<Place<T>> {
        let at = self.position(number)?;
        self.remove(at)
    }

    /// Returns the oldest request for which `is_wanted` holds, and the number of its place.
    pub(crate) fn first(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<(u64, &mut T)> {
        let place = self.line.iter_mut().find(|place| is_wanted(&place.waiter))?;
        Some((place.number, &mut place.waiter))
    }

    /// Removes the oldest request.
    pub(crate) fn pop(&mut self, mut may: impl FnMut(&mut T) -> bool) -> Option<Place<T>> {
        let at = self.line.iter_mut().position(|place| may(&mut place.waiter))?;
        self.remove(at)
    }

    /// Removes the oldest request if it has waited for `limit`.
    pub(crate) fn pop_expired(
        &mut self,
        now: Instant,
        limit: Duration,
        mut may: impl FnMut(&mut T) -> bool,
    ) -> Option<Place<T>> {
        let expired = |place: &Place<T>| now.saturating_duration_since(place.since) >= limit;
        let number = self.line.partition_point(expired);
        let at = self.line.range_mut(..number).position(|place| may(&mut place.waiter))?;
        self.remove(at)
    }

    /// Removes the newest request of the client with the most, to make room for one of `newcomer`. Does so only if
    /// `newcomer` has fewer, its new request included.
    pub(crate) fn make_room(
        &mut self,
        newcomer: Client,
        mut may: impl FnMut(&mut T) -> bool,
    ) -> Option<Place<T>> {
        let own = self.of_client.get(&newcomer).copied().unwrap_or_default();
        let (&greedy, &most) = self.of_client.iter().max_by_key(|(_, number)| **number)?;
        if most <= own + 1 {
            return None;
        }
        let mut newest = self.line.iter_mut().rev();
        let at = newest.position(|place| place.client == greedy && may(&mut place.waiter))?;
        self.remove(self.line.len() - 1 - at)
    }

    /// Removes the newest requests until at most `room` are left, first from the clients with the most.
    pub(crate) fn trim(
        &mut self,
        room: usize,
        mut may: impl FnMut(&mut T) -> bool,
    ) -> Vec<Place<T>> {
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
        for mut place in self.line.drain(..) {
            let number = kept.entry(place.client).or_default();
            if (*number < share.max(1) && stay.len() < room) || !may(&mut place.waiter) {
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

    fn position(&self, number: u64) -> Option<usize> {
        self.line.binary_search_by_key(&number, |place| place.number).ok()
    }

    fn remove(&mut self, at: usize) -> Option<Place<T>> {
        let place = self.line.remove(at)?;
        self.left(place.client);
        Some(place)
    }

    fn left(&mut self, client: Client) {
        if let Some(number) = self.of_client.get_mut(&client) {
            *number -= 1;
            if *number == 0 {
                self.of_client.remove(&client);
            }
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

    /// Lets any request be removed.
    fn any(_waiter: &mut usize) -> bool {
        true
    }

    fn line(of: &[u8]) -> Backlog<usize> {
        let mut backlog = Backlog::default();
        for (at, number) in of.iter().enumerate() {
            backlog.push(Instant::now(), client(*number), at);
        }
        backlog
    }

    fn order(backlog: &mut Backlog<usize>) -> Vec<usize> {
        std::iter::from_fn(|| backlog.pop(any)).map(|place| place.waiter).collect()
    }

    #[test]
    fn the_newest_of_the_client_with_most_makes_room_and_nobody_else() {
        let mut backlog = line(&[1, 1, 2, 1, 2]);
        assert_eq!(backlog.make_room(client(3), any).unwrap().waiter, 3);
        // Two each: a client with one request gains nothing by displacing one of theirs.
        assert!(backlog.make_room(client(2), any).is_none());
        assert!(backlog.make_room(client(1), any).is_none());
        assert!(backlog.make_room(client(3), any).is_some());
        assert_eq!(backlog.len(), 3);
        assert!(line(&[1, 1, 1]).make_room(client(1), any).is_none(), "its own are first come");
    }

    #[test]
    fn what_is_trimmed_is_the_newest_of_those_with_most() {
        let mut backlog = line(&[1, 1, 1, 1, 2, 1, 3, 1, 2]);
        let gone: Vec<usize> = backlog.trim(5, any).into_iter().map(|place| place.waiter).collect();
        assert_eq!(gone, [2, 3, 5, 7]);
        assert_eq!(order(&mut backlog), [0, 1, 4, 6, 8]);
        let mut many = line(&[1, 2, 3, 4]);
        assert_eq!(many.trim(2, any).len(), 2);
        assert_eq!(
            order(&mut many),
            [0, 1],
            "the oldest stay when there are more clients than places"
        );
    }

    #[test]
    fn what_may_not_be_removed_stays() {
        let odd = |waiter: &mut usize| *waiter % 2 == 1;
        let mut backlog = line(&[1, 1, 1, 1, 1, 2]);
        assert_eq!(backlog.make_room(client(2), odd).unwrap().waiter, 3);
        assert_eq!(backlog.pop(odd).unwrap().waiter, 1);
        let later = Instant::now() + Duration::from_secs(1);
        assert_eq!(backlog.pop_expired(later, Duration::from_secs(1), odd).unwrap().waiter, 5);
        assert!(backlog.pop_expired(later, Duration::from_secs(1), odd).is_none());
        assert!(backlog.trim(1, odd).is_empty());
        assert_eq!(order(&mut backlog), [0, 2, 4]);
    }

    #[test]
    fn a_place_is_found_by_its_number_while_it_waits() {
        let mut backlog = line(&[1, 2, 1]);
        assert_eq!(backlog.first(|waiter| *waiter > 0).unwrap(), (1, &mut 1));
        assert_eq!(backlog.take(1).unwrap().waiter, 1);
        assert!(backlog.take(1).is_none() && backlog.get_mut(1).is_none());
        assert_eq!(*backlog.get_mut(2).unwrap(), 2);
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
                    0 => drop(backlog.pop(|waiter| *waiter != room)),
                    1 => {
                        let before = backlog.len();
                        let gone = backlog.make_room(client(number), any).map_or(0, |_| 1);
                        prop_assert_eq!(backlog.len() + gone, before);
                    }
                    2 => {
                        let before = backlog.len();
                        let gone = backlog.trim(room, any).len();
                        prop_assert_eq!(backlog.len() + gone, before);
                        prop_assert!(backlog.len() <= room);
                        // No request is dropped needlessly.
                        prop_assert!(gone == 0 || backlog.len() * 2 >= room.min(before));
                    }
                    3 => drop(backlog.take(u64::try_from(room).unwrap())),
                    _ => drop(backlog.push(Instant::now(), client(number), at)),
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
