//! One boot of one release: its applications with their workers and their files in the run folder, and who may still come to them.
//!
//! Invariants
//! - A generation takes every request that it was chosen for: it drains only when nobody is left who could bring one.
//! - Its applications come and go together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pool::{Model, Pool};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::applications::Planned;
use crate::failure::Failure;
use crate::ops::state::Served;
use crate::runtime::server::OwnFiles;

/// Who has one may bring requests. The generation drains when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Stay {
    _guard: Arc<DropGuard>,
}

/// What runs PHP for one application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// As many as have turned out to be needed.
    pub workers: usize,
    /// Unknown of a server before this one that does not say it.
    pub model: Option<Model>,
}

/// A booted release.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Counted from 1, since the start of the server.
    pub number: u64,
    /// The one at PATH first; at least one.
    pub applications: Vec<Booted>,
    left: CancellationToken,
}

/// One application of it.
#[derive(Debug)]
pub(crate) struct Booted {
    /// What runs.
    pub planned: Planned,
    /// PHP, unless only files are served.
    pub pool: Option<Pool>,
    /// Kept until the pool is drained: workers that are replaced read their files again.
    pub own_files: Option<OwnFiles>,
}

impl Booted {
    /// The line that explains what runs.
    pub(crate) fn explanation(&self) -> String {
        let version = self.pool.as_ref().map(|pool| pool.status().php_version);
        self.planned.plan.explain(version.as_deref())
    }

    /// For those who look.
    fn served(&self) -> Served {
        let php = self.planned.plan.php.as_ref();
        Served {
            name: Arc::clone(&self.planned.name),
            claims: self.planned.claims(),
            pool: self.pool.clone(),
            model: php.map(|php| php.model).map(Model::name),
            fallback: php
                .and_then(|php| php.fallback.clone())
                .map(|fallback| fallback.of_application(&self.planned.name)),
            explanation: self.explanation(),
        }
    }

    /// Answers the requests that were brought, until `deadline`, and ends.
    async fn end(self, deadline: Instant) {
        if let Some(pool) = &self.pool {
            pool.drain(deadline.saturating_duration_since(Instant::now())).await;
        }
        drop(self.own_files);
    }
}

impl Generation {
    /// What has been booted, and the first who may bring requests.
    pub(crate) fn new(number: u64, applications: Vec<Booted>) -> (Self, Stay) {
        let left = CancellationToken::new();
        let stay = Stay { _guard: Arc::new(left.clone().drop_guard()) };
        (Self { number, applications, left }, stay)
    }

    /// The application at PATH.
    pub(crate) fn main(&self) -> Option<&Booted> {
        self.applications.first().filter(|first| first.planned.is_main())
    }

    /// Whether names are needed to tell them apart.
    fn several(&self) -> bool {
        self.applications.iter().any(|booted| !booted.planned.is_main())
    }

    /// What runs, in a line.
    pub(crate) fn explanation(&self) -> String {
        if let Some(alone) = self.main().filter(|_| !self.several()) {
            return alone.explanation();
        }
        let one = |booted: &Booted| {
            let Planned { name, plan, .. } = &booted.planned;
            let model = plan.php.as_ref().map_or("files", |php| php.model.name());
            format!("{name} ({model})")
        };
        let all: Vec<String> = self.applications.iter().map(one).collect();
        let noun = if all.len() == 1 { "application" } else { "applications" };
        format!("{} {noun}: {}", all.len(), all.join(", "))
    }

    /// A failure of one of its applications, which is named where there are several.
    pub(crate) fn about(&self, booted: &Booted, failure: Failure) -> Failure {
        if self.several() { failure.of_application(&booted.planned.name) } else { failure }
    }

    /// What runs PHP for the application of that name.
    pub(crate) fn running(&self, name: &str) -> Option<Running> {
        let mut all = self.applications.iter();
        let booted = all.find(|booted| &*booted.planned.name == name)?;
        let model = booted.planned.plan.php.as_ref().map(|php| php.model);
        Some(Running { workers: booted.pool.as_ref()?.status().wanted, model })
    }

    /// All folders that it runs from, each once.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let of = |booted: &Booted| booted.planned.plan.application.folder.clone();
        let mut folders: Vec<PathBuf> = self.applications.iter().map(of).collect();
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// For those who look.
    pub(crate) fn served(&self) -> Vec<Served> {
        self.applications.iter().map(Booted::served).collect()
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
        end(self.applications, deadline).await;
    }
}

/// Ends applications side by side.
pub(crate) async fn end(applications: Vec<Booted>, deadline: Instant) {
    let mut ending: JoinSet<()> =
        applications.into_iter().map(|booted| booted.end(deadline)).collect();
    while ending.join_next().await.is_some() {}
}
