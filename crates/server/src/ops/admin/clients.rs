//! The open connections of the admin address: which one gives its place to a new one, and when one has to end.
//!
//! Invariants
//! - A client without the token holds no place for longer than [`LONGEST`] and [`LAST_ANSWER`], and no new connection waits for it.
//! - A connection that has shown the token is not closed for another one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The time after which the request that a connection has is its last one.
const LONGEST: Duration = Duration::from_secs(10);
/// The time that the last answer may take to be read.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    longest: Duration,
    last_answer: Duration,
    /// Cancelled to end the connection at once.
    pub cut: CancellationToken,
    /// A request had the token.
    has_token: AtomicBool,
    /// A request was answered with events, which have no end.
    takes_events: AtomicBool,
}

impl Default for Client {
    fn default() -> Self {
        Self::lasting(LONGEST, LAST_ANSWER)
    }
}

impl Client {
    /// A connection with other time limits than [`LONGEST`] and [`LAST_ANSWER`].
    pub(super) fn lasting(longest: Duration, last_answer: Duration) -> Self {
        Self {
            longest,
            last_answer,
            cut: CancellationToken::new(),
            has_token: AtomicBool::new(false),
            takes_events: AtomicBool::new(false),
        }
    }

    /// Records a request that had the token.
    pub(super) fn shows_token(&self) {
        self.has_token.store(true, Ordering::Relaxed);
    }

    /// Records a request that is answered with events: the connection may last.
    pub(super) fn takes_events(&self) {
        self.takes_events.store(true, Ordering::Relaxed);
    }

    /// Returns whether no time limit ends the connection.
    pub(super) fn is_endless(&self) -> bool {
        self.takes_events.load(Ordering::Relaxed)
    }

    fn may_be_cut(&self) -> bool {
        !self.has_token.load(Ordering::Relaxed)
    }

    /// Ends a connection that lasts too long: cancels `last`, after which it gets one more answer, and then `cut`. Does not return.
    pub(super) async fn limit(&self, last: &CancellationToken) {
        for (time, end) in [(self.longest, last), (self.last_answer, &self.cut)] {
            tokio::time::sleep(time).await;
            if self.is_endless() {
                break;
            }
            end.cancel();
        }
        std::future::pending::<()>().await;
    }
}

/// All connections, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Clients(VecDeque<Weak<Client>>);

impl Clients {
    /// Returns the state of a new connection, which its task keeps.
    pub(super) fn add(&mut self) -> Arc<Client> {
        self.0.retain(|client| client.strong_count() > 0);
        let client = Arc::new(Client::default());
        self.0.push_back(Arc::downgrade(&client));
        client
    }

    fn without_token(&self) -> impl Iterator<Item = Arc<Client>> {
        self.0.iter().filter_map(Weak::upgrade).filter(|client| client.may_be_cut())
    }

    /// Returns whether a connection can be cut for a new one.
    pub(super) fn can_make_room(&self) -> bool {
        self.without_token().next().is_some()
    }

    /// Cuts the oldest connection that has not shown the token. Returns false if each one has.
    pub(super) fn make_room(&self) -> bool {
        let oldest = self.without_token().next();
        oldest.inspect(|client| client.cut.cancel()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_without_the_token_makes_room() {
        let mut clients = Clients::default();
        let [operator, first, second] = [(); 3].map(|()| clients.add());
        operator.shows_token();
        assert!(clients.can_make_room() && clients.make_room());
        let cut = || [&operator, &first, &second].map(|client| client.cut.is_cancelled());
        assert_eq!(cut(), [false, true, false]);
        drop(first);
        assert!(clients.make_room());
        assert!(second.cut.is_cancelled() && !operator.cut.is_cancelled());
        drop(second);
        assert!(!clients.can_make_room() && !clients.make_room());
    }

    #[tokio::test]
    async fn a_connection_is_limited_unless_it_takes_events() {
        let last = CancellationToken::new();
        let client = Client::lasting(Duration::ZERO, Duration::ZERO);
        tokio::select! {
            () = client.limit(&last) => {}
            () = client.cut.cancelled() => {}
        }
        assert!(last.is_cancelled() && client.cut.is_cancelled());

        let last = CancellationToken::new();
        let client = Client::lasting(Duration::ZERO, Duration::ZERO);
        client.takes_events();
        let limited = tokio::time::timeout(Duration::from_millis(20), client.limit(&last));
        limited.await.unwrap_err();
        assert!(!last.is_cancelled() && !client.cut.is_cancelled());
    }
}
