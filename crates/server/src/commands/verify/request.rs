//! A recorded request, and the order in which requests are replayed.
//!
//! Knows nothing of sockets, files and models.

use std::fmt::Write as _;

use bytes::Bytes;

/// A request that is replayed: from a log, a HAR file or the crawl.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Recorded {
    /// The method, in capitals.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The host that it was for, if the source names one.
    pub host: Option<String>,
    /// Header fields that are sent again, in lower case. None about connections, lengths, encodings and cookies.
    pub headers: Vec<(String, String)>,
    /// Cookies that the recorded client sent and that no recorded response had set.
    pub cookies: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl Recorded {
    /// Returns a GET of this path and query.
    pub(super) fn get(target: impl Into<String>) -> Self {
        Self { method: "GET".to_owned(), target: target.into(), ..Self::default() }
    }

    /// Returns whether RFC 9110 calls its method safe.
    pub(super) fn is_safe(&self) -> bool {
        matches!(&*self.method, "GET" | "HEAD" | "OPTIONS")
    }

    /// Describes it in one line.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{} {}", self.method, self.target);
        if !self.body.is_empty() {
            write!(line, " ({} bytes)", self.body.len()).expect("a String takes all");
        }
        line
    }
}

/// Returns the indices of `count` distinct requests in the order of the replay: as recorded first, then shuffled again and again, until
/// there are `total`.
pub(super) fn replay_order(count: usize, total: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count.min(total)).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    while count > 0 && order.len() < total {
        let mut pass: Vec<usize> = (0..count).collect();
        random.shuffle(&mut pass);
        pass.truncate(total - order.len());
        order.append(&mut pass);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pass_is_as_recorded_and_the_others_are_shuffled_by_the_seed() {
        let order = replay_order(10, 30, 7);
        let first: Vec<usize> = (0..10).collect();
        assert_eq!(order.len(), 30);
        assert_eq!(order[..10], first);
        for pass in order.chunks(10) {
            let mut sorted = pass.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, first, "each pass has every request once");
        }
        assert_ne!(order[10..20], first);
        assert_ne!(order.get(10..20), order.get(20..30));
        assert_eq!(order, replay_order(10, 30, 7), "the same seed, the same order");
        assert_ne!(order, replay_order(10, 30, 8));
        assert_eq!(replay_order(10, 4, 1), [0, 1, 2, 3]);
        assert_eq!(replay_order(0, 4, 1), Vec::<usize>::new());
    }
}
