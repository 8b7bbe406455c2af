//! Connectors to databases: whether each of them gets in, and whether there are sessions enough.

use std::path::Path;

use connector::{Connector, TryError};

use super::{Report, Topic};
use crate::config::Settings;
use crate::connectors::{failure, options};
use crate::plan::processors;

/// Logs in by each connector, once.
pub(crate) fn look(report: &mut Report, settings: &Settings) {
    let named = &settings.databases.connectors.0;
    if named.is_empty() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return report.problem(
            Topic::Databases,
            "cannot start a runtime",
            "raise the limit of processes",
        );
    };
    let workers = settings.php.workers.0.unwrap_or_else(processors);
    for one in named {
        let options = options(one, settings, Path::new("/"));
        let server = format!("{}:{}", options.host, options.port);
        match runtime.block_on(Connector::try_out(&options)) {
            Ok(()) => report
                .fine(Topic::Databases, format!("connector `{}`: {server} lets us in", one.name)),
            Err(TryError::Bind(error)) => {
                report.failure(Topic::Databases, &failure(&one.name, &error));
            }
            Err(TryError::Refused(refused)) => report.problem(
                Topic::Databases,
                format!("connector `{}`: {refused}", one.name),
                format!("correct `[databases.connectors.{}]`, or the server", one.name),
            ),
        }
        if one.sessions < workers {
            report.warning(
                Topic::Databases,
                format!("connector `{}` has {} sessions for {workers} workers, each of which may keep one", one.name, one.sessions),
                "raise `sessions`, or lower `php.workers`",
            );
        }
    }
}
