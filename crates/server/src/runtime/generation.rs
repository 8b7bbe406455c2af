//! One boot of one release: its applications with their workers and their files in the run folder, and the requests that they may still receive.
//!
//! Invariants
//! - A generation takes every request that it was chosen for: it drains only when no guard is left.
//! - Its applications come and go together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pool::{BootFiles, Model, Pool};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::applications::{self, Planned};
use crate::app::boot::OwnFiles;
use crate::app::plan::Plan;
use crate::app::preload::{Learned, Listing};
use crate::failure::Failure;
use crate::ops::format::counted;
use crate::ops::workers::Served;
use crate::subsystems::generation_guard::GenerationGuard;

/// The runner of PHP for one application before a reload.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// The number of workers that the load needed.
    pub workers: usize,
    /// The model; `None` if the previous server does not send it.
    pub model: Option<Model>,
    /// The scripts beside the front controller that wait for their requests, by their paths in the URL space.
    pub entries: Vec<String>,
    /// Where to learn which files its requests have included.
    pub listing: Option<Listing>,
}

/// A booted release.
#[derive(Debug)]
pub(crate) struct Generation {
    /// The number, counted from 1 since the start of the server.
    pub number: u64,
    /// The one at PATH first; at least one.
    pub applications: Vec<Booted>,
    left: CancellationToken,
}

/// An application of a generation.
#[derive(Debug)]
pub(crate) struct Booted {
    /// The plan it was booted from.
    pub planned: Planned,
    /// PHP, unless only files are served.
    pub pool: Option<Pool>,
    /// Kept until the pool is drained: workers that are replaced read their files again.
    pub own_files: Option<OwnFiles>,
    /// Files that its boot has included, if they are watched.
    pub boot_files: Option<Arc<BootFiles>>,
    /// The plan of the boot that failed, if another model runs in its place until a later boot succeeds.
    pub retried: Option<Plan>,
    /// The preloaded files, if `php.preload` is set.
    pub preload: Option<Learned>,
}

impl Booted {
    /// The line that explains what runs.
    pub(crate) fn explanation(&self) -> String {
        let version = self.pool.as_ref().map(|pool| pool.status().php_version);
        self.planned.plan.explain(version.as_deref())
    }

    /// Returns the application as operators see it.
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
            preload: self.preload.as_ref().map(|learned| learned.report.clone()),
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
    /// Returns a generation and the first guard that keeps it from draining.
    pub(crate) fn new(number: u64, applications: Vec<Booted>) -> (Self, GenerationGuard) {
        let left = CancellationToken::new();
        let guard = GenerationGuard::new(left.clone());
        (Self { number, applications, left }, guard)
    }

    /// The application at PATH.
    pub(crate) fn main(&self) -> Option<&Booted> {
        self.applications.first().filter(|first| first.planned.is_main())
    }

    /// Returns whether names are needed to tell applications apart.
    fn several(&self) -> bool {
        self.applications.iter().any(|booted| !booted.planned.is_main())
    }

    /// Explains in one line what runs.
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
        format!("{}: {}", counted(all.len(), "application"), all.join(", "))
    }

    /// A failure of one of its applications, which is named where there are several.
    pub(crate) fn about(&self, booted: &Booted, failure: Failure) -> Failure {
        if self.several() { failure.of_application(&booted.planned.name) } else { failure }
    }

    /// Returns what runs PHP for the application of that name.
    pub(crate) fn running(&self, name: &str) -> Option<Running> {
        let mut all = self.applications.iter();
        let booted = all.find(|booted| &*booted.planned.name == name)?;
        let plan = &booted.planned.plan;
        let model = plan.php.as_ref().map(|php| php.model);
        let pool = booted.pool.as_ref()?;
        let entries = pool.entry_scripts();
        let entries = entries.iter().filter_map(|script| plan.script_name(script)).collect();
        let listing = booted.preload.as_ref().zip(booted.own_files.as_ref());
        let listing = listing.map(|(_, own)| Listing::of(pool, plan, own));
        Some(Running { workers: pool.status().wanted, model, entries, listing })
    }

    /// Returns the folders of all applications, each once.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        applications::folders(self.applications.iter().map(|booted| &booted.planned))
    }

    /// Returns the applications as operators see them.
    pub(crate) fn served(&self) -> Vec<Served> {
        self.applications.iter().map(Booted::served).collect()
    }

    /// Returns the applications whose boot is to be tried again, with the plan for it.
    pub(crate) fn to_retry(&self) -> impl Iterator<Item = Planned> {
        self.applications.iter().filter_map(|booted| {
            let plan = booted.retried.clone()?;
            Some(Planned { plan, ..booted.planned.clone() })
        })
    }

    /// Moves the applications to a new generation in which `successors` replace those of their names. The replaced ones stay in this
    /// generation, and drain with it.
    pub(crate) fn succeeded_by(&mut self, mut successors: Vec<Booted>) -> (Self, GenerationGuard) {
        let mut all = Vec::new();
        for booted in std::mem::take(&mut self.applications) {
            let same = |other: &Booted| other.planned.name == booted.planned.name;
            match successors.iter().position(same) {
                Some(place) => {
                    all.push(successors.swap_remove(place));
                    self.applications.push(booted);
                }
                None => all.push(booted),
            }
        }
        Self::new(self.number + 1, all)
    }

    /// Waits until no guard is left, answers the requests that came, and ends. After `patience` it kills what still runs.
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
