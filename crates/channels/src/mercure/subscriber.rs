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
        let end =
            self.expires.map(|at| Instant::now() + Duration::from_secs(at.saturating_sub(unix())));
        // The first comment flushes the head through proxies.
        let mut next = Some(Bytes::from_static(b":\n"));
        let mut missed = std::mem::take(&mut self.missed).into_iter();
        loop {
            if next.is_none()
                && let Some((update, event)) = missed.next()
            {
                if self.interest.takes(update.private, &mut Matching::new(&update.topics)) {
                    next = Some(event);
                } else {
                    tokio::task::consume_budget().await;
                    continue;
                }
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
