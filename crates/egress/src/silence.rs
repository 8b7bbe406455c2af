//! Whether the other end of a connection was heard of since something was asked: the way there may have gone without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::io::InspectReader;

use crate::stream::Stream;

/// Who has waited for less is no witness: an answer may take as long to come from far away.
const WITNESS: Duration = Duration::from_millis(500);

/// A stream that tells when something comes.
pub(crate) type Heard = InspectReader<Stream, Box<dyn FnMut(&[u8]) + Send>>;

/// What is known of the other end.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// So often something came.
    heard: AtomicU64,
    suspected: AtomicBool,
    suspicion: Notify,
}

impl Silence {
    /// Listens to what comes there.
    pub(crate) fn hear(self: &Arc<Self>, stream: Stream) -> Heard {
        let silence = Arc::clone(self);
        let heard = move |_: &[u8]| {
            silence.heard.fetch_add(1, Relaxed);
        };
        InspectReader::new(stream, Box::new(heard))
    }

    /// Somebody asks, and waits until what this returns is dropped.
    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { silence: self, heard: self.heard.load(Relaxed), since: Instant::now() }
    }

    /// Somebody has waited in vain, and nothing came since.
    pub(crate) fn suspected(&self) -> bool {
        self.suspected.load(Relaxed)
    }

    /// Returns when there is a suspicion.
    pub(crate) async fn suspicion(&self) {
        self.suspicion.notified().await;
    }

    /// It has answered.
    pub(crate) fn lives(&self) {
        self.suspected.store(false, Relaxed);
    }
}

/// Somebody who has asked.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    silence: &'a Silence,
    heard: u64,
    since: Instant,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let silence = self.silence;
        if silence.heard.load(Relaxed) == self.heard && self.since.elapsed() >= WITNESS {
            silence.suspected.store(true, Relaxed);
            silence.suspicion.notify_one();
        }
    }
}
