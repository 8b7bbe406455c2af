//! Connectors to databases: whether each of them gets in, whether there are sessions enough, and whether the server takes as many.

use std::num::NonZeroUsize;
use std::path::Path;

use dbproxy::{Connector, TryError};
use pool::Model;

use super::{Report, Topic};
use crate::app::plan::Plan;
use crate::config::most_workers;
use crate::config::{NamedConnector, Settings};
use crate::subsystems::connectors::{failure, options, places};
use crate::system::async_runtime;

/// Logs in by each connector, once.
pub(crate) fn look(report: &mut Report, settings: &Settings, plan: Option<&Plan>) {
    let named = &settings.databases.connectors.0;
    if named.is_empty() {
        return;
    }
    let runtime = match async_runtime::start(NonZeroUsize::MIN) {
        Ok(runtime) => runtime,
        Err(failure) => return report.failure(Topic::System, &failure),
    };
    let workers = most_workers(settings);
    let php = plan.and_then(|plan| plan.php.as_ref());
    let keeps = settings.databases.keep && php.is_some_and(|php| php.model == Model::Snapshot);
    for one in named {
        let options = options(one, settings, Path::new("/"), None);
        let server = format!("{}:{}", options.host, options.port);
        match runtime.block_on(Connector::try_out(&options)) {
            Ok(capacity) => tell_capacity(report, one, &server, capacity),
            Err(TryError::Bind(error)) => {
                report.failure(Topic::Databases, &failure(&one.name, &error));
            }
            Err(TryError::Refused(refused)) => report.problem(
                Topic::Databases,
                format!("connector `{}`: {refused}", one.name),
                format!("correct `[databases.connectors.{}]`, or the server", one.name),
            ),
        }
        if keeps && places(one.sessions, workers) == 0 {
            report.warning(
                Topic::Databases,
                format!(
                    "connector `{}` has {} for {workers} workers: connections are not kept, each request borrows one",
                    one.name,
                    sessions(one.sessions)
                ),
                format!(
                    "`sessions = {}` or more keeps them, twice as many also while `hearth reload` runs",
                    workers.get() + 1
                ),
            );
        } else if keeps {
            let each = one.sessions.get() / (workers.get() + 1);
            report.fine(
                Topic::Databases,
                format!(
                    "connector `{}`: each of {workers} workers keeps its connections through it, where it opens {each} or fewer; \
                     `sessions = {}` for {}",
                    one.name,
                    (each + 1) * (workers.get() + 1),
                    each + 1
                ),
            );
        } else if one.sessions < workers {
            report.warning(
                Topic::Databases,
                format!(
                    "connector `{}` has {} for {workers} workers: a client without a free one waits {:?}, then gets an error",
                    one.name,
                    sessions(one.sessions),
                    one.wait
                ),
                "raise `sessions`, or lower `php.workers` or `php.workers_max`",
            );
        }
    }
}

/// A server that lets us in: whether it takes as many connections as the connector may open.
fn tell_capacity(report: &mut Report, one: &NamedConnector, server: &str, capacity: Option<u64>) {
    let NamedConnector { name, sessions, .. } = one;
    let Some(capacity) = capacity else {
        return report.fine(Topic::Databases, format!("connector `{name}`: {server} lets us in"));
    };
    report.fine(
        Topic::Databases,
        format!("connector `{name}`: {server} lets us in, {sessions} of the {capacity} connections that it takes"),
    );
    if sessions.get() as u64 > capacity {
        report.warning(
            Topic::Databases,
            format!("connector `{name}` may open {sessions} sessions, and {server} takes {capacity} connections in all"),
            "lower `sessions`, or raise the server's `max_connections` (Redis: `maxclients`)",
        );
    }
}

fn sessions(count: NonZeroUsize) -> String {
    match count.get() {
        1 => "1 session".to_owned(),
        count => format!("{count} sessions"),
    }
}
