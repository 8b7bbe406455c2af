//! The engine: origins by key, and calls on their connections.

use crate::{Answer, Call, CallError, Fate, Interim, Key, Options, OriginReport, Reason};

/// Owns the outgoing connections. A clone is another handle of the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    options: std::sync::Arc<Options>,
}

impl Engine {
    /// Opens nothing yet.
    pub fn new(options: Options) -> Self {
        Self { options: std::sync::Arc::new(options) }
    }

    /// Makes one call. Interim answers (100, 103) are handed to `interim` as they come, before the answer.
    ///
    /// # Cancel safety
    /// Dropped, the call is cancelled: its HTTP/2 stream is reset, its HTTP/1.1 connection closed.
    pub async fn call(
        &self,
        call: Call,
        interim: impl FnMut(Interim<'_>) + Send,
    ) -> Result<Answer, CallError> {
        let _wired_next = (call, interim, &self.options);
        Err(CallError {
            fate: Fate::Declined,
            reason: Reason::Unsupported,
            curl: 0,
            message: "there is no engine yet".to_owned(),
        })
    }

    /// Opens one connection for each key, in the background, a few at a time.
    pub fn prewarm(&self, keys: Vec<Key>) {
        drop(keys);
    }

    /// The keys that are worth a connection at the next start, most used first: without secrets (client certificates, credentials).
    pub fn remembered(&self) -> Vec<Key> {
        Vec::new()
    }

    /// The numbers of every origin.
    pub fn report(&self) -> Vec<OriginReport> {
        Vec::new()
    }

    /// Closes connections that carry no call, and the others when their calls are over. Returns when all are closed.
    pub async fn close(&self) {}
}
