//! Traces: where they go, whether somebody listens there, and what of OpenTelemetry's variables is not followed.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::{Report, Topic};
use crate::config::{CollectorUrl, Environment, OfOpenTelemetry, Settings};
use crate::subsystems::traces::unusable_authorities;

/// How long an address of the collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at `[traces]`, if somebody wants some.
pub(crate) fn look(report: &mut Report, settings: &Settings, environment: &Environment) {
    let variables = OfOpenTelemetry::read(environment);
    for ignored in &variables.ignored {
        let message = format!("not followed: {ignored}");
        report.warning(Topic::Traces, message, "set what you want under `[traces]`");
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
        Ok(()) => report.fine(Topic::Traces, format!("they go to {}", endpoint.url)),
        Err(error) => report.warning(
            Topic::Traces,
            format!("they go to {}, and nobody answers there: {error}", endpoint.url),
            "start the collector, or correct `traces.endpoint`; requests are answered all the same",
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
