//! The stream of one subscriber.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::hub::{Mercure, unix};
use super::selector::Matching;
use super::state::Interest;
use super::update::Update;

/// A subscriber that does not take a write for this long is disconnected.
const STALL: Duration = Duration::from_secs(30);

/// A subscriber that has not taken all kept updates after this time is disconnected, because it holds them in memory. It
/// comes back with the id of the last one.
const REPLAY: Duration = Duration::from_mins(5);

/// A subscriber whose head has been answered. It leaves when this is dropped.
#[derive(Debug)]
pub struct Subscriber {
    pub(super) hub: Arc<Mercure>,
    pub(super) number: u64,
    pub(super) interest: Arc<Interest>,
    /// Kept updates after the last one that it has; not all are for it.
    pub(super) missed: Vec<(Arc<Update>, Bytes)>,
    pub(super) events: mpsc::Receiver<Bytes>,
    pub(super) expires: Option<u64>,
}

impl Subscriber {
    /// Writes updates and heartbeats until the subscriber, its token or the hub ends.
    pub async fn write(mut self, socket: impl AsyncRead + AsyncWrite) {
        let (mut from, mut to) = tokio::io::split(socket);
        let mut ignored = [0; 64];
        let heartbeat = self.hub.options.heartbeat;
        let left = |at: u64| Duration::from_secs(at.saturating_sub(unix()));
        // One that is too far away for a clock is none.
        let end = self.expires.and_then(|at| Instant::now().checked_add(left(at)));
        let replayed = Instant::now() + REPLAY;
        // The first comment flushes the head through proxies.
        let mut next = Some(Bytes::from_static(b":\n"));
        let mut wanted = Vec::new();
        for (update, event) in std::mem::take(&mut self.missed) {
            if self.interest.takes(update.private, &mut Matching::new(&update.topics)) {
                wanted.push(event);
            }
            tokio::task::consume_budget().await;
        }
        let mut missed = wanted.into_iter();
        loop {
            if next.is_none() {
                next = missed.next();
            }
            let replays = missed.len() > 0;
            if replays && (self.events.is_closed() || replayed <= Instant::now())
                || end.is_some_and(|end| end <= Instant::now())
            {
                return;
            }
            if let Some(event) = next.take() {
                let written = tokio::time::timeout(STALL, to.write_all(&event)).await;
                if !matches!(written, Ok(Ok(()))) {
                    return;
                }
                continue;
            }
            let beat = Instant::now() + heartbeat;
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => next = Some(event),
                    None => return,
                },
                () = sleep_until(beat), if !heartbeat.is_zero() => next = Some(Bytes::from_static(b":\n")),
                () = sleep_until(end.unwrap_or(beat)), if end.is_some() => return,
                // A subscriber sends nothing, so this ends when it leaves.
                read = from.read(&mut ignored) => if !matches!(read, Ok(1..)) {
                    return;
                },
            }
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.hub.leave(self.number);
    }
}
