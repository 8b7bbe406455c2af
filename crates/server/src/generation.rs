//! One boot of one release of the application: its workers, its files in the run folder, and who may still come to it.
//!
//! Invariants
//! - A generation takes every request that it was chosen for: it drains only when nobody is left who could bring one.

use std::sync::Arc;
use std::time::Duration;

use pool::{Model, Pool};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::plan::Plan;
use crate::serve::OwnFiles;

/// Who has one may bring requests. The generation drains when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Stay {
    _guard: Arc<DropGuard>,
}

/// A booted release.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Counted from 1, since the start of the server.
    pub number: u64,
    /// What runs.
    pub plan: Plan,
    /// PHP, unless only files are served.
    pub pool: Option<Pool>,
    /// Kept until the pool is drained: workers that are replaced read their files again.
    pub own_files: Option<OwnFiles>,
    left: CancellationToken,
}

impl Generation {
    /// What has been booted, and the first who may bring requests.
    pub(crate) fn new(
        number: u64,
        plan: Plan,
        pool: Option<Pool>,
        own_files: Option<OwnFiles>,
    ) -> (Self, Stay) {
        let left = CancellationToken::new();
        let stay = Stay { _guard: Arc::new(left.clone().drop_guard()) };
        (Self { number, plan, pool, own_files, left }, stay)
    }

    /// The name of its model.
    pub(crate) fn model(&self) -> Option<&'static str> {
        self.plan.php.as_ref().map(|php| php.model).map(Model::name)
    }

    /// The line that explains what runs.
    pub(crate) fn explanation(&self) -> String {
        self.plan.explain(self.pool.as_ref().map(|pool| pool.status().php_version).as_deref())
    }

    /// Waits until nobody can bring a request any more, answers those that were brought, and ends. After `patience` what still runs is
    /// killed.
    pub(crate) async fn retire(self, patience: Duration) {
        let deadline = Instant::now() + patience;
        if tokio::time::timeout_at(deadline, self.left.cancelled()).await.is_err() {
            tracing::debug!(generation = self.number, "requests were still on their way to it");
        }
        self.end(deadline).await;
    }

    /// Answers the requests that were brought, until `deadline`, and ends.
    pub(crate) async fn end(self, deadline: Instant) {
        if let Some(pool) = &self.pool {
            pool.drain(deadline.saturating_duration_since(Instant::now())).await;
        }
        drop(self.own_files);
    }
}
