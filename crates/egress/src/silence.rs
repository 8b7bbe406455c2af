//! Whether a connection's peer has sent anything since a call waited: the path to it may be broken without a sign.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::io::InspectReader;

use crate::stream::Stream;

/// A shorter wait proves nothing: a response may take that long from far away.
const WITNESS: Duration = Duration::from_millis(500);

/// A stream that counts arrivals.
pub(crate) type Watched = InspectReader<Stream, Box<dyn FnMut(&[u8]) + Send>>;

/// The state of the peer.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// The number of arrivals.
    arrivals: AtomicU64,
    suspected: AtomicBool,
    suspicion: Notify,
}

impl Silence {
    /// Wraps a stream, and counts what arrives.
    pub(crate) fn watch(self: &Arc<Self>, stream: Stream) -> Watched {
        let silence = Arc::clone(self);
        let arrivals = move |_: &[u8]| {
            silence.arrivals.fetch_add(1, Relaxed);
        };
        InspectReader::new(stream, Box::new(arrivals))
    }

    /// Registers a call that waits, until the returned guard is dropped.
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { silence: self, arrivals: self.arrivals.load(Relaxed), since: Instant::now() }
    }

    /// Reports that a call has waited, and no byte arrived since.
    pub(crate) fn suspected(&self) -> bool {
        self.suspected.load(Relaxed)
    }

    /// Returns when the peer is suspected to be gone.
    pub(crate) async fn suspicion(&self) {
        self.suspicion.notified().await;
    }

    /// Clears the suspicion: the peer has answered.
    pub(crate) fn lives(&self) {
        self.suspected.store(false, Relaxed);
    }
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    silence: &'a Silence,
    arrivals: u64,
    since: Instant,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let silence = self.silence;
        if silence.arrivals.load(Relaxed) == self.arrivals && self.since.elapsed() >= WITNESS {
            silence.suspected.store(true, Relaxed);
            silence.suspicion.notify_one();
        }
    }
}
