//! The sessions at one server: the limit, the used and idle ones, and the waiting clients.
//!
//! Invariants
//! - Used and idle sessions together never exceed the limit. A closing session counts until the server has closed, or
//!   [`GOODBYE`] has passed: the task that closes it holds a place in the meantime.
//! - Waiting clients are served in order of arrival.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::Refused;
use crate::server::Stream;

/// Time limit for closing a connection, including the server's side.
const GOODBYE: Duration = Duration::from_secs(1);

/// Closes a connection properly, and waits until the server has closed too, because it counts there until then.
pub(crate) async fn hang_up(mut stream: Stream, goodbye: &[u8]) {
    let goodbye = async {
        stream.write_all(goodbye).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    // The server may be gone already.
    drop(tokio::time::timeout(GOODBYE, goodbye).await);
}

/// A logged-in session.
#[derive(Debug)]
pub(crate) struct Session {
    pub stream: Stream,
    /// Key of the session: equal for all clients that may share it (user, database, connection parameters).
    pub key: Vec<u8>,
    /// The server's login messages for clients.
    pub welcome: Vec<u8>,
    /// Identity of the session when it is new.
    pub identity: Vec<u8>,
    /// Commands that a reset sends to make the settings of the login again.
    pub restore: Vec<u8>,
    /// The server runs something at each login that no reset repeats, so the session cannot be reused.
    pub begins: bool,
    /// The closing command of the protocol.
    pub goodbye: &'static [u8],
    pub opened: Instant,
}

impl Session {
    /// Closes it properly.
    pub(crate) async fn close(self) {
        hang_up(self.stream, self.goodbye).await;
    }

    /// Returns whether the server has sent nothing since the session was left, neither an end nor data.
    fn is_quiet(&mut self) -> bool {
        self.stream.read(&mut [0]).now_or_never().is_none()
    }
}

/// The right to use a session.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Idle {
    session: Session,
    since: Instant,
}

/// All sessions.
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

/// Counts a waiting client while it lives.
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

    /// Waits until another client may have a session.
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

    /// Returns a session that another client has left, for the owner of a place. The one left last comes first,
    /// because it is most likely alive.
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

    /// Closes idle sessions so that a new one does not exceed the limit. The caller holds a place, and opens a
    /// session.
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

    /// Keeps a session for the next client. Must be called before the place is released; otherwise that client would
    /// open another.
    pub(crate) fn leave(&self, session: Session) -> Option<Session> {
        if self.is_old(&session) {
            return Some(session);
        }
        self.idle().push(Idle { session, since: Instant::now() });
        None
    }

    /// Removes sessions that were idle for too long, each with a place until it is closed. If clients hold all places
    /// the sessions stay; a client that needs room closes them.
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

    /// Removes all idle sessions, when no further client arrives.
    pub(crate) fn all(&self) -> Vec<Session> {
        self.idle().drain(..).map(|idle| idle.session).collect()
    }

    /// Returns the maximum number of sessions.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of used sessions.
    pub(crate) fn used(&self) -> usize {
        self.limit - self.places.available_permits()
    }

    /// Returns the number of idle sessions.
    pub(crate) fn unused(&self) -> usize {
        self.idle().len()
    }

    /// Returns the number of waiting clients.
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
    async fn a_closing_session_occupies_its_slot() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
        let (mut other, _) = server.accept().await.unwrap();
        let sessions = Sessions::new(1, Duration::ZERO, Duration::ZERO, None);
        let opened = Instant::now();
        let (key, welcome, identity) = (Vec::new(), Vec::new(), Vec::new());
        let stream = Either::Left(stream);
        let (begins, restore, goodbye) = (false, Vec::new(), b"bye");
        let session = Session { stream, key, welcome, identity, restore, begins, goodbye, opened };
        assert!(sessions.leave(session).is_none());
        // It is used at once, or closed by the owner of the place.
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
