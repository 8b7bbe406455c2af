//! The division of the process's descriptors: clients leave enough for workers, the broker and the server's own files.
//!
//! Invariants
//! - Whatever clients do, workers of all generations can be started and replaced: their descriptors are kept back.
//! - It reads settings and a number, and decides: `hearth check` and the server come to the same result.

use std::os::fd::RawFd;

use rustix::process::{Resource, getrlimit};

use crate::config::Settings;
use crate::config::most_workers;

/// Listeners, logs, the runtime's own, zygotes, the control socket and the admin address.
const OWN: u64 = 64;
/// A worker's frames and the second handle of them, its output, its shared counters.
const WORKER: u64 = 5;
/// A caller of the broker has a descriptor, and most have one of a connection.
const CALLER: u64 = 2;
/// The broker's part is at most this part of all.
const BROKER_PART: u64 = 8;
/// The least share of descriptors for clients' connections.
const CLIENTS_PART: u64 = 4;

/// The limits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Descriptors that the process may have.
    pub limit: u64,
    /// Connections of clients at once: `http.connection_limit`, or fewer.
    pub connections: usize,
    /// The first descriptor that is kept back.
    pub ceiling: RawFd,
    /// The limit of descriptors for the configured number of connections.
    pub wanted: u64,
}

impl Budget {
    /// Returns the budget of a process that may have `limit` descriptors.
    pub(crate) fn of(settings: &Settings, limit: u64) -> Self {
        let all = settings.applications.iter().map(|named| &named.settings);
        let workers: usize = all.chain([settings]).map(|one| most_workers(one).get()).sum();
        let workers = workers as u64 * WORKER;
        let callers =
            if settings.egress.enabled { settings.egress.callers.get() as u64 } else { 0 };
        let broker = |limit: u64| (callers * CALLER).min(limit / BROKER_PART);
        // A second generation of workers boots while the first one finishes what it has.
        let kept = workers + broker(limit);
        let ceiling = limit.saturating_sub(kept).max(limit / 2);
        let connections = ceiling.saturating_sub(OWN + workers).max(limit / CLIENTS_PART).max(1);
        let set = settings.http.connection_limit.get();
        let least = set as u64 + OWN + 2 * workers;
        Self {
            limit,
            connections: set.min(usize::try_from(connections).unwrap_or(usize::MAX)),
            ceiling: RawFd::try_from(ceiling).unwrap_or(RawFd::MAX),
            // The broker's part grows with the limit.
            wanted: (least + callers * CALLER).min(least * BROKER_PART / (BROKER_PART - 1) + 1),
        }
    }

    /// Returns the budget of this process.
    pub(crate) fn now(settings: &Settings) -> Self {
        Self::of(settings, getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    /// Warns if fewer connections are possible than configured, with the reason.
    pub(crate) fn warn_if_short(&self, settings: &Settings) {
        let set = settings.http.connection_limit.get();
        if self.connections < set {
            tracing::warn!(
                connections = self.connections,
                connection_limit = set,
                open_files = self.limit,
                "fewer connections than `http.connection_limit`: the limit of open files allows no more beside workers and calls; raise it to {} (ulimit -n, LimitNOFILE=)",
                self.wanted
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(toml: &str, limit: u64) -> Budget {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hearth.toml"), toml).unwrap();
        let environment = crate::config::Environment::for_test(folder.path(), &[]);
        let settings = crate::config::load(folder.path(), None, Vec::new(), &environment).unwrap();
        Budget::of(&settings, limit)
    }

    #[test]
    fn with_enough_descriptors_the_setting_applies() {
        let toml = "[php]\nworkers = 4\n[http]\nconnection_limit = 10000\n";
        let all = budget(toml, 1 << 20);
        assert_eq!(all.connections, 10_000);
        assert_eq!(budget(toml, all.wanted).connections, 10_000);
        assert!(budget(toml, all.wanted - 100).connections < 10_000);
    }

    #[test]
    fn with_few_descriptors_workers_and_calls_have_reserves() {
        let few = budget("[php]\nworkers = 2\n", 256);
        // 256 without 10 for two workers and 32 for calls; then without 64 of its own and 10 for two workers.
        assert_eq!((few.ceiling, few.connections), (214, 140));
        let none = budget("[php]\nworkers = 2\n[egress]\nenabled = false\n", 256);
        assert_eq!((none.ceiling, none.connections), (246, 172));
    }

    #[test]
    fn clients_have_a_share_beside_any_number_of_workers() {
        let few = budget("[php]\nworkers = 1000\n", 256);
        assert_eq!((few.ceiling, few.connections), (128, 64));
    }
}
