//! PHP's workers as operators see them: those of the generation that takes requests, and those of generations that finish theirs.
//!
//! Invariants
//! - Numbers of the pool count since the start of the server, whatever generations have come and gone.

mod metrics;
mod problems;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pool::{Model, Pool, PoolStatus, WorkerState};

pub(crate) use self::problems::problems_of;
use crate::config::MAIN;
use crate::ops::fallback::Fallback;
use crate::ops::fallback_cost::Costs;
use crate::ops::footprint::Footprint;
use crate::ops::preloaded::Preloaded;
use crate::ops::problems::Problems;
use crate::ops::status::{Draining, OfApplication, Status};
use crate::ops::subsystem::Subsystem;

/// An application that is served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The name.
    pub name: Arc<str>,
    /// The requests that are for it.
    pub claims: Vec<String>,
    /// PHP, unless only files are served.
    pub pool: Option<Pool>,
    /// The name of the model, unless only files are served.
    pub model: Option<&'static str>,
    /// The fallback, if the model replaces another.
    pub fallback: Option<Fallback>,
    /// The line that explains what runs.
    pub explanation: String,
    /// The preloaded files, if `php.preload` is set.
    pub preload: Option<Preloaded>,
}

impl Served {
    /// Returns whether the application did not boot, and another model runs in its place.
    pub(crate) fn is_degraded(&self) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| fallback.degraded)
    }

    /// Returns the application's part of `/status`, with the figures of its pool.
    fn status(&self, pool: &PoolStatus) -> OfApplication {
        let busy = pool.workers.iter().filter(|worker| worker.state == WorkerState::Busy);
        OfApplication {
            name: self.name.to_string(),
            claims: self.claims.clone(),
            application: self.explanation.clone(),
            model: self.model,
            fallback: self.fallback.clone(),
            costs: self
                .fallback
                .as_ref()
                .and_then(|fallback| fallback.costs.as_ref())
                .map(Costs::text),
            preload: self.preload.clone(),
            pss_bytes: pool.memory.pss_bytes,
            footprint: Footprint::of(
                pool,
                self.model.and_then(Model::named).is_some_and(Model::is_one_shot),
            ),
            php_version: pool.php_version.clone(),
            wanted: pool.wanted,
            least: pool.least,
            most: pool.most,
            ready: pool.ready(),
            busy: busy.count(),
            backlog: pool.backlog,
            overloaded: pool.overloaded,
            requests: pool.requests,
            refused: pool.refused,
            crashes: pool.crashes,
            timeouts: pool.timeouts,
            slow_requests: pool.slow_requests,
        }
    }

    /// Returns the only application, which runs PHP.
    pub(crate) fn alone(pool: Pool, model: Option<&'static str>, explanation: String) -> Self {
        let claims = vec![front_http::Claim::everything().to_string()];
        Self {
            name: MAIN.into(),
            claims,
            pool: Some(pool),
            model,
            fallback: None,
            explanation,
            preload: None,
        }
    }
}

/// The pools of all applications in one; none where there are none.
pub(crate) fn in_one(pools: BTreeMap<Arc<str>, PoolStatus>) -> Option<PoolStatus> {
    pools.into_values().reduce(|mut sum, pool| {
        sum.add(pool);
        sum
    })
}

/// The pool of one application, with its name.
type NamedPool = (Arc<str>, Pool);

/// The workers of all generations.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    /// The number of the generation that takes requests.
    number: Option<u64>,
    /// The applications of that generation.
    current: Vec<Served>,
    /// Generations that finish the requests they have.
    draining: Vec<(u64, Vec<NamedPool>)>,
    /// The counters of pools that have ended, by application.
    past: BTreeMap<Arc<str>, PoolStatus>,
}

impl Generations {
    fn pools(&self) -> impl Iterator<Item = NamedPool> {
        let named = |served: &Served| Some((Arc::clone(&served.name), served.pool.clone()?));
        self.current.iter().filter_map(named)
    }
}

impl Workers {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().expect("no holder panics")
    }

    /// Shows these applications from now on. With a generation's number, the previous generation drains.
    pub(crate) fn show(&self, generation: Option<u64>, applications: Vec<Served>) {
        let mut generations = self.generations();
        if generation.is_some() {
            // A pool that the next generation keeps does not drain.
            let stays = |pool: &Pool| {
                applications
                    .iter()
                    .filter_map(|served| served.pool.as_ref())
                    .any(|kept| kept.is(pool))
            };
            let old: Vec<NamedPool> =
                generations.pools().filter(|(_, pool)| !stays(pool)).collect();
            if let Some(number) = generations.number.filter(|_| !old.is_empty()) {
                generations.draining.push((number, old));
            }
            generations.number = generation;
        }
        generations.current = applications;
    }

    /// Keeps the counters of a generation that has drained.
    pub(crate) fn drained(&self, generation: u64) {
        let mut generations = self.generations();
        let Generations { draining, past, .. } = &mut *generations;
        for (_, pools) in draining.extract_if(.., |(number, _)| *number == generation) {
            for (name, pool) in pools {
                past.entry(name).or_default().add_past(&pool.status());
            }
        }
    }

    /// Returns the status of each application: its workers in the generation that takes requests, and the counters of all generations. An
    /// application that has been removed has counters only.
    pub(crate) fn pools(&self) -> BTreeMap<Arc<str>, PoolStatus> {
        let generations = self.generations();
        let mut pools = generations.past.clone();
        for (name, pool) in generations.draining.iter().flat_map(|(_, pools)| pools) {
            pools.entry(Arc::clone(name)).or_default().add_past(&pool.status());
        }
        for (name, pool) in generations.pools() {
            let mut status = pool.status().of(&name);
            if let Some(past) = pools.get(&name) {
                status.add_past(past);
            }
            pools.insert(name, status);
        }
        pools
    }

    /// Returns the number of the generation that takes requests, and the generations that drain.
    fn draining(&self) -> (Option<u64>, Vec<Draining>) {
        let generations = self.generations();
        let draining = generations.draining.iter().map(|(generation, pools)| {
            let mut pool = PoolStatus::default();
            for (name, one) in pools {
                pool.add(one.status().of(name));
            }
            Draining { generation: *generation, pool }
        });
        (generations.number, draining.collect())
    }
}

impl Subsystem for Workers {
    fn status(&self, status: &mut Status) {
        (status.generation, status.draining) = self.draining();
        let pools = self.pools();
        let current = self.generations().current.clone();
        let none = PoolStatus::default();
        let of = |served: &Served| served.status(pools.get(&served.name).unwrap_or(&none));
        status.model = current.first().and_then(|first| first.model);
        status.applications = current.iter().map(of).collect();
        status.degraded = current.iter().any(Served::is_degraded);
        status.pool = in_one(pools);
    }

    fn metrics(&self) {
        let (generation, draining) = self.draining();
        if let Some(generation) = generation {
            let degraded = self.generations().current.iter().any(Served::is_degraded);
            metrics::set_generations(generation, draining.len(), degraded);
        }
        let mut pools = self.pools();
        // Processes are processes, whatever generation they are of.
        for worker in draining.into_iter().flat_map(|draining| draining.pool.workers) {
            if let Some(name) = &worker.application
                && let Some(pool) = pools.get_mut(name.as_str())
            {
                pool.workers.push(worker);
            }
        }
        for (name, status) in &pools {
            metrics::set_pool(name, status);
        }
        for served in &self.generations().current {
            if let Some(preload) = &served.preload {
                preload.set_metrics(&served.name);
            }
        }
    }

    fn problems(&self, status: &Status, problems: &mut Problems) {
        problems_of(status, problems);
    }
}
