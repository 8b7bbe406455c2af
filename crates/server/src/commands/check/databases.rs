//! Databases: connections that would stay open across requests in the model `snapshot`, and reasons against it.

use std::num::NonZeroUsize;

use pool::Model;

use super::{Report, Topic};
use crate::app::detect::Kind;
use crate::app::plan::Plan;
use crate::config::most_workers;
use crate::config::{DotEnv, Environment, Settings};

/// Checks which connections would be kept.
pub(crate) fn look(
    report: &mut Report,
    settings: &Settings,
    plan: Option<&Plan>,
    environment: &Environment,
) {
    let Some(plan) = plan else { return };
    if plan.php.as_ref().is_none_or(|php| php.model != Model::Snapshot) {
        return;
    }
    if !settings.databases.keep {
        return report.fine(
            Topic::Databases,
            "nothing is kept (`databases.keep`): each request opens its own connections",
        );
    }
    let application = &plan.application;
    let variables = DotEnv::read(&application.folder, settings, environment);
    let (kept, database) = match application.kind {
        Kind::Laravel => (
            "Laravel's default connection, and Redis of sessions, cache and queue,",
            of_laravel(&variables),
        ),
        Kind::Symfony => ("Doctrine's connections", of_symfony(&variables)),
        _ => ("what hearth_on_worker_start() opens", None),
    };
    let workers = most_workers(settings);
    let of = database.as_ref().map(|of| format!(" ({})", of.shown)).unwrap_or_default();
    report.fine(
        Topic::Databases,
        format!(
            "{kept} would stay open across requests{of}: {} at most of each server on this machine, to be compared with its `max_connections` (Redis: `maxclients`)",
            connections(workers)
        ),
    );
    if database.is_some_and(|of| of.may_encrypt) {
        report.warning(
            Topic::Databases,
            "PostgreSQL's clients encrypt over TCP whenever the server offers it, and encrypted connections are not kept: each request would log in",
            "connect by the unix socket, say `sslmode=disable` where the network is safe, or see docs/guide/databases.md",
        );
    }
}

fn connections(workers: NonZeroUsize) -> String {
    match workers.get() {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    }
}

/// The default connection of `.env`, without any part that could be a secret.
struct Database {
    shown: String,
    /// PostgreSQL over TCP, with encryption not switched off.
    may_encrypt: bool,
}

impl Database {
    fn new(driver: &str, host: &str, sslmode: Option<&str>) -> Self {
        let remote = !host.is_empty() && !host.starts_with('/');
        let is_postgres = matches!(driver, "pgsql" | "postgres" | "postgresql" | "pdo_pgsql");
        let may_encrypt = is_postgres && remote && sslmode != Some("disable");
        let shown = if remote { format!("{driver} at {host}") } else { driver.to_owned() };
        Self { shown, may_encrypt }
    }

    /// `driver://user:password@host:port/name?sslmode=…`
    fn of_url(url: &str) -> Option<Self> {
        let (driver, rest) = url.split_once("://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let mode = query.split('&').find_map(|pair| pair.strip_prefix("sslmode="));
        Some(Self::new(driver, host, mode))
    }
}

/// Reads the variables as config/database.php of a new application does.
fn of_laravel(variables: &DotEnv<'_>) -> Option<Database> {
    let url = ["DATABASE_URL", "DB_URL"].iter().find_map(|name| variables.get(name));
    let driver = variables.get("DB_CONNECTION");
    if let Some(of) = url.filter(|url| !url.is_empty()).and_then(Database::of_url) {
        return Some(of);
    }
    let mode = variables.get("DB_SSLMODE");
    Some(Database::new(driver?, variables.get("DB_HOST").unwrap_or_default(), mode))
}

/// Reads the variables as Doctrine's recipe does.
fn of_symfony(variables: &DotEnv<'_>) -> Option<Database> {
    Database::of_url(variables.get("DATABASE_URL")?)
}
