//! Realtime: for which applications there would be channels, whether PHP publishes to them, and whether the system lets enough clients in.

use std::num::NonZeroUsize;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::{Report, Topic};
use crate::config::{Address, Auto, Environment, LookupTarget, NamedApp, Settings, WebhookTarget};
use crate::subsystems::realtime::{self, Broadcasting, Driver};
use crate::system::machine::processors;

/// The number of sockets of a small site at its busiest time: lower limits of the system cause a warning.
const SOCKETS: u64 = 10_000;

/// Checks realtime, if it is switched on.
pub(crate) fn look(
    report: &mut Report,
    folder: &Path,
    settings: &Settings,
    environment: &Environment,
) {
    let broadcasting = Broadcasting::read(folder, settings, environment);
    let apps = match realtime::of_served(settings, &broadcasting) {
        Ok(Some(apps)) => apps,
        Ok(None) => return missed(report, settings, &broadcasting),
        Err(failure) => return report.failure(Topic::Realtime, &failure),
    };
    report.fine(Topic::Realtime, realtime::explain(settings, &apps));
    lookup(report, settings);
    dotenv(report, settings, &broadcasting, &apps);
    limits(report);
}

/// Reports what `.env` asks for and does not get.
fn missed(report: &mut Report, settings: &Settings, broadcasting: &Broadcasting) {
    if settings.realtime.enabled == Auto(Some(false)) {
        return;
    }
    match broadcasting.driver {
        Some(Driver::Pusher) if broadcasting.apps.first().is_some_and(|app| app.api.is_none()) => {
            report.fine(
                Topic::Realtime,
                "off: .env broadcasts over Pusher itself. With PUSHER_HOST (and PUSHER_PORT, PUSHER_SCHEME) naming this server it would be here",
            );
        }
        Some(driver) => report.warning(
            Topic::Realtime,
            format!("off, although .env broadcasts over `{}`: its application is not complete there", driver.name()),
            "set REVERB_APP_ID, REVERB_APP_KEY and REVERB_APP_SECRET (or PUSHER_APP_ID and so on), or name an application with `--app`",
        ),
        None => {}
    }
}

/// Checks whether PHP has time to answer look-ups of applications.
fn lookup(report: &mut Report, settings: &Settings) {
    let Some(LookupTarget(WebhookTarget::Php(path))) = &settings.realtime.lookup else { return };
    let workers = settings.php.workers.0.unwrap_or_else(processors);
    if workers == NonZeroUsize::MIN {
        report.warning(
            Topic::Realtime,
            format!(
                "one worker answers all, {} too: a request that calls the HTTP API waits for a look-up that waits for it",
                path.0
            ),
            "set `php.workers` to 2 or more",
        );
    }
}

fn dotenv(
    report: &mut Report,
    settings: &Settings,
    broadcasting: &Broadcasting,
    apps: &[NamedApp],
) {
    for app in &broadcasting.apps {
        if app.clashes_with(apps) {
            report.warning(
                Topic::Realtime,
                format!(
                    "{}_APP_KEY or {0}_APP_SECRET in .env differs from the application's settings",
                    app.prefix.name()
                ),
                "make them the same, or clients and PHP will be refused",
            );
        }
    }
    let listen = || settings.http.listen.iter().map(|listen| &listen.address);
    let listeners: Vec<String> = listen().map(Address::to_string).collect();
    let any_port =
        listen().any(|address| matches!(address, Address::Tcp(address) if address.port() == 0));
    if let Some(other) = broadcasting.other_address(&listeners).filter(|_| !any_port) {
        report.warning(
            Topic::Realtime,
            format!("PHP publishes to {other}, and this server listens on {}", listeners.join(", ")),
            "correct the host and port in .env, add a `--listen`, or broadcast over the driver `hearth`, which needs neither",
        );
    }
}

fn limits(report: &mut Report) {
    let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if descriptors < SOCKETS {
        report.warning(
            Topic::Realtime,
            format!(
                "each client's socket is an open file, and the limit of those is {descriptors}"
            ),
            "raise the hard limit (`LimitNOFILE=` in systemd)",
        );
    }
    let queue = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    if let Some(queue) = queue.filter(|queue| *queue < 4096) {
        report.warning(
            Topic::Realtime,
            format!("net.core.somaxconn is {queue}: when all clients reconnect at once, further connections wait a second or more"),
            "sysctl -w net.core.somaxconn=65535",
        );
    }
}
