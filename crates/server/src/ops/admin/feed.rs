//! The dashboard's figures once a second, as Server-Sent Events.
//!
//! Invariants
//! - One sampling for all readers, and none while there is no reader.
//! - A reader that takes nothing for [`WAITING`] seconds loses its connection: it delays no other reader, and costs no memory beyond that.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

/// The interval of samples.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// The most readers at once; a further one is refused. It is less than the limit of connections, so that `/metrics` is always reachable.
pub(super) const READERS: usize = 16;
/// Samples that may wait for one reader, beside what the system's buffers hold.
const WAITING: usize = 8;

/// A reader of the dashboard.
#[derive(Debug)]
pub(super) struct Reader {
    events: mpsc::Sender<Bytes>,
    /// Ends its connection.
    cut: CancellationToken,
}

/// A reader with its `place`, and the answer through which it reads. `cut` is to end its connection.
pub(super) fn open(
    cut: CancellationToken,
    place: OwnedSemaphorePermit,
) -> (Reader, Response<Events>) {
    let (events, receiver) = mpsc::channel(WAITING);
    let mut response = Response::new(Events { receiver, _place: place });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (Reader { events, cut }, response)
}

/// Returns one event that carries `json`, which has no line breaks.
pub(super) fn event(json: &str) -> Bytes {
    debug_assert!(!json.contains(['\n', '\r']), "a line break would end the field");
    Bytes::from(format!("event: state\ndata: {json}\n\n"))
}

impl Reader {
    /// Sends a sample. Returns false if the reader has disconnected, or is cut because it does not read.
    pub(super) fn send(&self, event: &Bytes) -> bool {
        match self.events.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::debug!("a reader of the dashboard does not read: cut");
                self.cut.cancel();
                false
            }
        }
    }
}

/// The body of an answer that goes on.
#[derive(Debug)]
pub(super) struct Events {
    receiver: mpsc::Receiver<Bytes>,
    /// One of [`READERS`] permits.
    _place: OwnedSemaphorePermit,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    fn place() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    #[test]
    fn a_stalled_feed_reader_is_disconnected_and_a_gone_one_forgotten() {
        let cut = CancellationToken::new();
        let (reader, response) = open(cut.clone(), place());
        let event = event("{}");
        let sent = (0..100).take_while(|_| reader.send(&event)).count();
        assert_eq!(sent, WAITING);
        assert!(cut.is_cancelled());
        drop(response);

        let cut = CancellationToken::new();
        let (reader, response) = open(cut.clone(), place());
        drop(response);
        assert!(!reader.send(&event));
        assert!(!cut.is_cancelled());
    }
}
