//! Selects the connections to close when clients wait and every place is taken.
//!
//! Invariants
//! - It uses neither sockets nor clocks: it receives connections that wait for their clients, and orders them.
//! - Connections of addresses above their share come first, then those of addresses with many incomplete requests,
//!   then the oldest.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// A connection without a complete request is kept for this long, because a client on a slow network needs the time
/// for its handshake and first head.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Up to this many incomplete requests an address counts as an ordinary client: a browser opens some connections in
/// advance.
const FEW: usize = 4;

/// A connection that waits for its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) id: u64,
    /// Address of the client; `None` on a unix socket, and before a PROXY protocol header.
    pub(crate) client: Option<IpAddr>,
    /// The connection waits for its first request or for the rest of one; it is not idle between two requests.
    pub(crate) unfinished: bool,
    pub(crate) waited: Duration,
}

/// The order in which connections are closed; the first variant goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The address has this many connections above its share.
    AboveShare(Reverse<usize>),
    /// The address has this many newer incomplete requests.
    Unfinished(Reverse<usize>),
    Ordinary,
}

/// Returns the ids of the connections to close, at most `most`. `excess` is the number of connections that an address
/// has above its share.
pub(crate) fn choose(
    mut candidates: Vec<Candidate>,
    mut excess: HashMap<IpAddr, usize>,
    most: usize,
) -> Vec<u64> {
    candidates.retain(|candidate| !candidate.unfinished || candidate.waited >= GRACE);
    candidates.sort_unstable_by_key(|candidate| Reverse(candidate.waited));
    let mut unfinished: HashMap<IpAddr, usize> = HashMap::new();
    for client in candidates.iter().filter(|one| one.unfinished).filter_map(|one| one.client) {
        *unfinished.entry(client).or_default() += 1;
    }
    let mut ranked: Vec<(Rank, Reverse<Duration>, u64)> = candidates
        .iter()
        .map(|candidate| {
            let rank = rank(candidate, &mut excess, &mut unfinished);
            (rank, Reverse(candidate.waited), candidate.id)
        })
        .collect();
    if ranked.len() > most {
        ranked.select_nth_unstable(most);
        ranked.truncate(most);
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, id)| id).collect()
}

/// Called for the oldest candidates first; each reduces the excess of its address by one.
fn rank(
    candidate: &Candidate,
    excess: &mut HashMap<IpAddr, usize>,
    unfinished: &mut HashMap<IpAddr, usize>,
) -> Rank {
    let Some(client) = candidate.client else { return Rank::Ordinary };
    let later = unfinished.get_mut(&client).filter(|_| candidate.unfinished).map(|count| {
        *count -= 1;
        *count
    });
    if let Some(excess) = excess.get_mut(&client).filter(|excess| **excess > 0) {
        let rank = Rank::AboveShare(Reverse(*excess));
        *excess -= 1;
        return rank;
    }
    match later {
        Some(later) if later >= FEW => Rank::Unfinished(Reverse(later)),
        _ => Rank::Ordinary,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn candidate(id: u64, client: u8, unfinished: bool, seconds: u64) -> Candidate {
        let client = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, client)));
        Candidate { id, client, unfinished, waited: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_longest_idle_goes_first() {
        let all = vec![
            candidate(1, 1, false, 5),
            candidate(2, 2, false, 70),
            candidate(3, 3, true, 60),
            candidate(4, 4, false, 0),
        ];
        assert_eq!(choose(all.clone(), HashMap::new(), 2), [2, 3]);
        assert_eq!(choose(all, HashMap::new(), 9), [2, 3, 1, 4]);
    }

    #[test]
    fn a_started_head_is_not_evicted() {
        assert_eq!(choose(vec![candidate(1, 1, true, 0)], HashMap::new(), 9), [] as [u64; 0]);
        assert_eq!(choose(vec![candidate(1, 1, false, 0)], HashMap::new(), 9), [1]);
    }

    #[test]
    fn unfinished_requests_of_one_address_go_before_older_idle_connections_of_others() {
        let mut all: Vec<_> = (1..=7).map(|id| candidate(id, 1, true, 10 - id)).collect();
        all.push(candidate(8, 2, false, 70));
        all.push(candidate(9, 3, true, 9));
        // The oldest of the first address, down to a few; then by age.
        assert_eq!(choose(all, HashMap::new(), 6), [1, 2, 3, 8, 9, 4]);
    }

    #[test]
    fn connections_above_an_addresss_share_are_evicted_first() {
        let mut all: Vec<_> = (1..=5).map(|id| candidate(id, 1, false, id)).collect();
        all.push(candidate(6, 2, false, 70));
        let excess = HashMap::from([(all[0].client.unwrap(), 2)]);
        assert_eq!(choose(all, excess, 4), [5, 4, 6, 3]);
    }

    #[test]
    fn addresses_far_above_their_share_are_evicted_first() {
        let all: Vec<_> =
            (0..6).map(|id| candidate(id, if id < 3 { 1 } else { 2 }, false, 1)).collect();
        let excess = HashMap::from([(all[0].client.unwrap(), 1), (all[3].client.unwrap(), 3)]);
        let chosen = choose(all, excess, 4);
        assert!(chosen[..2].iter().all(|id| *id >= 3), "{chosen:?}");
        assert_eq!(chosen.iter().filter(|id| **id >= 3).count(), 3, "{chosen:?}");
    }

    #[test]
    fn unknown_addresses_are_evicted_by_age() {
        let unknown = Candidate { client: None, ..candidate(1, 1, true, 3) };
        let all = vec![unknown, candidate(2, 2, false, 4)];
        assert_eq!(choose(all, HashMap::new(), 9), [2, 1]);
    }
}
