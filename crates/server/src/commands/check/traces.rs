//! Traces: their collector, whether it is reachable, and the variables of OpenTelemetry that are ignored.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{Report, Topic};
use crate::config::{CollectorUrl, Environment, OfOpenTelemetry, Settings};
use crate::subsystems::traces::unusable_authorities;

/// The time limit for an address of the collector.
const PATIENCE: Duration = Duration::from_secs(2);

/// Checks `[traces]`, if it is set.
pub(crate) fn look(report: &mut Report, settings: &Settings, environment: &Environment) {
    let variables = OfOpenTelemetry::read(environment);
    for ignored in &variables.ignored {
        let message = format!("not followed: {ignored}");
        report.warning(Topic::Traces, message, "set options under `[traces]`");
    }
    let traces = &settings.traces;
    let Some(endpoint) = &traces.endpoint else { return };
    match unusable_authorities(settings, &variables) {
        Ok(None) => {}
        Ok(Some(unusable)) => {
            let hint = "correct the variable, or name the authorities with `traces.ca`";
            return report.warning(Topic::Traces, format!("nothing is traced: {unusable}"), hint);
        }
        Err(failure) => report.failure(Topic::Traces, &failure),
    }
    match connect(endpoint) {
        Ok(()) => report.fine(Topic::Traces, format!("sent to {}", endpoint.url)),
        Err(error) => report.warning(
            Topic::Traces,
            format!("sent to {}, which does not answer: {error}", endpoint.url),
            "start the collector, or correct `traces.endpoint`; requests are still answered",
        ),
    }
}

fn connect(endpoint: &CollectorUrl) -> std::io::Result<()> {
    let mut outcome = Err(std::io::ErrorKind::AddrNotAvailable.into());
    for address in (endpoint.host.as_str(), endpoint.port).to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, PATIENCE).map(drop);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
