//! The HTTP front of a server: its listeners, its traffic and its clients.

mod cache;
mod clients;
pub(crate) mod descriptors;
pub(crate) mod dev;
pub(crate) mod front;

use std::sync::Arc;

use front_http::{AnswerCache, Connections};

use crate::ops::problems::{Level, Problems};
use crate::ops::status::{Status, Traffic};
use crate::ops::subsystem::Subsystem;

/// The share of requests that may fail without a problem.
const TOLERATED: f64 = 0.01;

/// The HTTP front as operators see it.
#[derive(Debug)]
pub(crate) struct Http {
    traffic: Arc<front_http::Traffic>,
    connections: Arc<Connections>,
    cache: Option<Arc<AnswerCache>>,
}

impl Http {
    /// Returns the view of a front.
    pub(crate) fn new(
        traffic: Arc<front_http::Traffic>,
        connections: Arc<Connections>,
        cache: Option<Arc<AnswerCache>>,
    ) -> Self {
        Self { traffic, connections, cache }
    }

    /// Returns the answer cache, if it is on.
    pub(crate) fn cache(&self) -> Option<Arc<AnswerCache>> {
        self.cache.clone()
    }
}

impl Subsystem for Http {
    fn status(&self, status: &mut Status) {
        status.traffic = Some(Traffic::of(&self.traffic));
        status.history = self.traffic.history();
        status.clients = Some(clients::status_of(&self.connections));
        status.cache = self.cache.as_deref().map(AnswerCache::report);
    }

    fn metrics(&self) {
        clients::set_metrics(&self.connections);
        if let Some(cache) = &self.cache {
            cache::set_metrics(&cache.report());
        }
    }

    fn problems(&self, status: &Status, problems: &mut Problems) {
        problems_of(status, problems);
    }
}

/// Adds the problems of traffic and of clients.
pub(crate) fn problems_of(status: &Status, problems: &mut Problems) {
    if let Some(traffic) = &status.traffic {
        of_traffic(traffic, problems);
    }
    if let Some(clients) = &status.clients {
        clients::problems_of(clients, problems);
    }
    if let Some(cache) = &status.cache {
        cache::problems_of(cache, problems);
    }
}

fn of_traffic(traffic: &Traffic, problems: &mut Problems) {
    if traffic.per_second <= 0.0 {
        return;
    }
    let part = traffic.errors_per_second / traffic.per_second;
    if part > TOLERATED {
        let text = format!(
            "{:.0} % of the last minute's requests failed (status 500 and above).",
            (part * 100.0).max(1.0)
        );
        problems.add(Level::Error, text);
    }
}
