//! The guard that keeps a generation of workers taking requests.

use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};

/// Keeps a generation from draining. The generation drains when the last of its guards is dropped.
#[derive(Clone, Debug)]
pub(crate) struct GenerationGuard {
    _guard: Arc<DropGuard>,
}

impl GenerationGuard {
    /// Returns a guard that cancels `left` when it and its clones have been dropped.
    pub(crate) fn new(left: CancellationToken) -> Self {
        Self { _guard: Arc::new(left.drop_guard()) }
    }
}
