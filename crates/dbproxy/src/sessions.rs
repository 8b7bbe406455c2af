//! The sessions at one server: how many there may be, who has one, who waits, and which wait for somebody.
//!
//! Invariants
//! - Used and idle ones together are never more than the limit. One that is being ended is one of them until the server has hung up, or has had
//!   [`GOODBYE`] for it: whoever ends it has a place meanwhile.
//! - Clients that wait are served in the order in which they came.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::Refused;
use crate::server::Stream;

/// How long a goodbye may take, with the server's own.
const GOODBYE: Duration = Duration::from_secs(1);

/// Ends a connection in order, and waits until the server has done so, too: until then it counts there.
pub(crate) async fn hang_up(mut stream: Stream, goodbye: &[u8]) {
    let goodbye = async {
        stream.write_all(goodbye).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    // The server may be gone: then there is nobody to say it to.
    drop(tokio::time::timeout(GOODBYE, goodbye).await);
}

/// A session that somebody is logged in to.
#[derive(Debug)]
pub(crate) struct Session {
    pub stream: Stream,
    /// What is equal in all clients that may have it: user, database, what they said when they connected.
    pub key: Vec<u8>,
    /// What the server said at the login, and clients are to hear.
    pub welcome: Vec<u8>,
    /// What the session says of itself when it is new.
    pub identity: Vec<u8>,
    /// With something that the server says to each client, and no reset says again: nobody else can have it.
    pub begins: bool,
    /// What the protocol says before it hangs up.
    pub goodbye: &'static [u8],
    pub opened: Instant,
}

impl Session {
    /// Ends it in order.
    pub(crate) async fn close(self) {
        hang_up(self.stream, self.goodbye).await;
    }

    /// Nothing has come from the server since it was left: neither an end nor words of its own.
    fn is_quiet(&mut self) -> bool {
        self.stream.read(&mut [0]).now_or_never().is_none()
    }
}

/// The right to a session.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Idle {
    session: Session,
    since: Instant,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Sessions {
    limit: usize,
    wait: Duration,
    idle_limit: Duration,
    age: Option<Duration>,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    waiting: AtomicUsize,
}

/// Counts somebody for as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sessions {
    pub(crate) fn new(limit: usize, wait: Duration, idle: Duration, age: Option<Duration>) -> Self {
        Self {
            limit,
            wait,
            idle_limit: idle,
            age,
            places: Arc::new(Semaphore::new(limit)),
            idle: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits until there may be one more client with a session.
    pub(crate) async fn place(&self) -> Result<Place, Refused> {
        let _waiting = Waiting::new(&self.waiting);
        let permit = tokio::time::timeout(self.wait, Arc::clone(&self.places).acquire_owned());
        match permit.await {
            Ok(Ok(permit)) => Ok(Place { _permit: permit }),
            _ => Err(self.busy()),
        }
    }

    pub(crate) fn busy(&self) -> Refused {
        Refused::Busy { sessions: self.limit, waited: self.wait }
    }

    /// A session that another has left, for whoever has a place. The last one left comes first: it is the likeliest to be alive.
    pub(crate) async fn left(&self, key: &[u8]) -> Option<Session> {
        loop {
            let mut session = {
                let mut idle = self.idle();
                let at = idle.iter().rposition(|idle| idle.session.key == key)?;
                idle.remove(at).session
            };
            if session.is_quiet() && !self.is_old(&session) {
                return Some(session);
            }
            session.close().await;
        }
    }

    /// Ends as many idle ones as one more would be too many. Whoever calls has a place, and opens one.
    pub(crate) async fn make_room(&self) {
        loop {
            let oldest = {
                let mut idle = self.idle();
                if idle.is_empty() || idle.len() + self.used() <= self.limit {
                    return;
                }
                idle.remove(0)
            };
            oldest.session.close().await;
        }
    }

    /// Keeps a session for the next client. Before the place is given up, or that client would open another.
    pub(crate) fn leave(&self, session: Session) -> Option<Session> {
        if self.is_old(&session) {
            return Some(session);
        }
        self.idle().push(Idle { session, since: Instant::now() });
        None
    }

    /// Takes out those that nobody has wanted for too long, each with a place until it is closed. Where clients have all the places they stay: who
    /// needs room ends them.
    pub(crate) fn stale(&self) -> Vec<(Place, Session)> {
        let mut idle = self.idle();
        let mut ended = Vec::new();
        let mut at = 0;
        while at < idle.len() {
            let Idle { session, since } = &mut idle[at];
            let is_stale =
                since.elapsed() > self.idle_limit || self.is_old(session) || !session.is_quiet();
            if !is_stale {
                at += 1;
                continue;
            }
            let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else { break };
            ended.push((Place { _permit: permit }, idle.remove(at).session));
        }
        ended
    }

    /// Takes out all that are idle, when no client comes any more.
    pub(crate) fn all(&self) -> Vec<Session> {
        self.idle().drain(..).map(|idle| idle.session).collect()
    }

    /// How many there may be.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Sessions that clients have.
    pub(crate) fn used(&self) -> usize {
        self.limit - self.places.available_permits()
    }

    /// Sessions that nobody has.
    pub(crate) fn unused(&self) -> usize {
        self.idle().len()
    }

    /// Clients in line.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn is_old(&self, session: &Session) -> bool {
        self.age.is_some_and(|age| session.opened.elapsed() > age)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::either::Either;

    use super::*;

    #[tokio::test]
    async fn a_session_that_is_being_ended_has_a_place_until_the_server_has_hung_up() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
        let (mut other, _) = server.accept().await.unwrap();
        let sessions = Sessions::new(1, Duration::ZERO, Duration::ZERO, None);
        let opened = Instant::now();
        let (key, welcome, identity) = (Vec::new(), Vec::new(), Vec::new());
        let stream = Either::Left(stream);
        let begins = false;
        let session = Session { stream, key, welcome, identity, begins, goodbye: b"bye", opened };
        assert!(sessions.leave(session).is_none());
        // It is used at once, or ended by whoever has the place.
        let place = sessions.place().await.unwrap();
        assert!(sessions.stale().is_empty());
        drop(place);
        let (place, session) = sessions.stale().pop().expect("it is idle for longer than nothing");
        assert_eq!((sessions.used(), sessions.unused()), (1, 0));
        let mut ending = tokio::task::JoinSet::new();
        ending.spawn(async move {
            session.close().await;
            drop(place);
        });
        let mut said = [0; 4];
        assert_eq!(other.read(&mut said).await.unwrap(), 3);
        assert_eq!(other.read(&mut said).await.unwrap(), 0);
        let is_free = sessions.place().await.is_ok();
        assert!(!is_free || ending.try_join_next().is_some(), "the server has not hung up");
        drop(other);
        while ending.join_next().await.is_some() {}
        assert!(sessions.place().await.is_ok());
    }
}
