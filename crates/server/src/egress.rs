//! The egress broker: alone (`hearth egress`) and inside `hearth serve`. What the broker calls things and what people call them meets
//! only here.
//!
//! Invariants
//! - PHP is told of a socket only when it is there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egress::{DoorOptions, DoorWatch, Engine, HttpDoor, Key, OriginReport, Scheme, SocketError};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{Serving, State};
use crate::config::{self, Environment, OriginUrl, Raw, Settings};
use crate::failure::Failure;
use crate::process;
use crate::{log, notify};

/// The environment variable by which PHP finds the socket.
pub(crate) const VARIABLE: &str = "HEARTH_EGRESS";
/// Where a broker alone listens unless it is told otherwise.
const SOCKET: &str = "/run/hearth/egress.sock";
/// The name of the socket in a folder.
const SOCKET_NAME: &str = "egress.sock";
/// Beside it: the origins of the last run.
const MEMORY_NAME: &str = "egress.origins";
/// Origins with metrics of their own, the most called ones; the others are one. Their names come from callers.
const ORIGINS: usize = 100;

/// A broker that listens.
#[derive(Debug)]
pub(crate) struct Broker {
    door: HttpDoor,
    engine: Engine,
    prewarm: Vec<Key>,
    memory: PathBuf,
}

/// Tells what a broker does.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    socket: PathBuf,
    door: DoorWatch,
    engine: Engine,
}

impl Broker {
    /// Makes the socket. `socket`: where, unless the settings say it.
    pub(crate) fn bind(settings: &Settings, socket: &Path) -> Result<Self, Failure> {
        let egress = &settings.egress;
        let socket = egress.socket.0.as_deref().unwrap_or(socket);
        if let Some(ca) = &egress.ca.0 {
            check_authorities(ca)?;
        }
        let options = egress::Options {
            http1_connections: egress.connections.get(),
            http2_connections: egress.http2_connections.get(),
            waiting: egress.callers.get(),
            idle: egress.idle_timeout,
            age: egress.connection_age,
            ca: egress.ca.0.clone(),
            deny: egress.deny.clone(),
            ..egress::Options::default()
        };
        let door = HttpDoor::bind(DoorOptions {
            socket: socket.to_owned(),
            group: egress.group.0.map(|group| group.0),
            allow_users: egress.allow_users.iter().map(|user| user.0).collect(),
            callers: egress.callers.get(),
            connect: egress.connect_timeout,
            queue: egress.queue_timeout,
        })
        .map_err(|error| Failure::caused(&error, hint(&error)))?;
        let memory = door.path().with_file_name(MEMORY_NAME);
        let mut prewarm: Vec<Key> = egress.prewarm.iter().map(key).collect();
        match egress::recall(&memory) {
            Ok(remembered) => {
                let new = remembered.into_iter().filter(|key| !prewarm.contains(key));
                prewarm.extend(new.collect::<Vec<_>>());
            }
            Err(error) => {
                tracing::warn!(path = %memory.display(), %error, "origins of the last run not read");
            }
        }
        Ok(Self { door, engine: Engine::new(options), prewarm, memory })
    }

    /// The path of the socket, absolute.
    pub(crate) fn socket(&self) -> &Path {
        self.door.path()
    }

    /// For the admin address.
    pub(crate) fn watch(&self) -> Watch {
        Watch {
            socket: self.door.path().to_owned(),
            door: self.door.watch(),
            engine: self.engine.clone(),
        }
    }

    /// Takes calls until `drain` is cancelled, and finishes those that have begun.
    pub(crate) async fn serve(self, drain: CancellationToken) {
        self.engine.prewarm(self.prewarm);
        self.door.serve(self.engine.clone(), drain).await;
        let origins = self.engine.remembered();
        if !origins.is_empty()
            && let Err(error) = egress::remember(&self.memory, &origins)
        {
            // The next start makes its first handshakes itself: nothing is lost.
            tracing::warn!(path = %self.memory.display(), %error, "origins not remembered");
        }
        self.engine.close().await;
    }
}

/// Said at the start, not by each call that cannot be verified.
pub(crate) fn check_authorities(path: &Path) -> Result<(), Failure> {
    const BEGINNING: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let hint = "correct `egress.ca` (`--ca`), or leave it out for the system's authorities";
    let text = std::fs::read(path).map_err(|error| {
        Failure::caused_by(format!("cannot read {}", path.display()), &error, hint)
    })?;
    if text.windows(BEGINNING.len()).any(|window| window == BEGINNING) {
        return Ok(());
    }
    Err(Failure::failed(format!("{} holds no certificate in PEM form", path.display()), hint))
}

/// A call of our own user's, that wants nothing in particular.
fn key(origin: &OriginUrl) -> Key {
    let uid = rustix::process::geteuid().as_raw();
    Key::plain(uid, origin.scheme, origin.host.as_str(), origin.port)
}

fn hint(error: &SocketError) -> String {
    match error {
        SocketError::Taken { .. } => {
            "end the other broker, or choose a folder of its own with `egress.socket`".into()
        }
        SocketError::NotOurs { .. } => "remove it, or choose another path with `egress.socket`".into(),
        _ => "choose a path of at most 100 bytes in a folder that exists and may be written, with `egress.socket`".into(),
    }
}

/// The socket of a broker that lives, where one is to be expected by the settings.
pub(crate) fn expected_socket(settings: &Settings) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = if let Some(named) = &settings.egress.socket.0 {
        vec![named.clone()]
    } else {
        let of_server = settings.server.run_dir.0.as_deref().map(socket_in);
        of_server.into_iter().chain([PathBuf::from(SOCKET)]).collect()
    };
    let lives = |path: &PathBuf| std::os::unix::net::UnixStream::connect(path).is_ok();
    candidates.into_iter().find(lives).filter(|_| settings.egress.enabled)
}

/// `egress.sock` in the private folder of a server.
pub(crate) fn socket_in(folder: &Path) -> PathBuf {
    folder.join(SOCKET_NAME)
}

/// `hearth egress`: the broker alone, until a signal ends it.
pub(crate) fn run(
    config: Option<&Path>,
    flags: Vec<(&'static str, Raw)>,
    environment: &Environment,
) -> Result<(), Failure> {
    let settings = config::load(&environment.current_dir, config, flags, environment)?;
    log::start(&settings, environment)?;
    process::run(&settings, alone(&settings, environment))
}

async fn alone(settings: &Settings, environment: &Environment) -> Result<(), Failure> {
    process::attend(settings, async |state, drain| {
        serve_and_drain(settings, environment, state, drain).await
    })
    .await
}

async fn serve_and_drain(
    settings: &Settings,
    environment: &Environment,
    state: &State,
    drain: &CancellationToken,
) -> Result<(), Failure> {
    let broker = Broker::bind(settings, Path::new(SOCKET))?;
    let listener = format!("unix:{}", broker.socket().display());
    state.ready(Serving {
        pool: None,
        listeners: vec![listener.clone()],
        model: None,
        explanation: "egress broker".to_owned(),
        egress: Some(broker.watch()),
        connectors: Vec::new(),
        realtime: None,
    });
    log::say(&format!("ready on {listener}"));
    notify::notify(environment.notify_socket(), "READY=1");
    let draining = async {
        drain.cancelled().await;
        state.draining();
        notify::notify(environment.notify_socket(), "STOPPING=1");
        tracing::info!("draining");
        tokio::time::sleep(settings.server.shutdown_patience).await;
    };
    tokio::select! {
        () = broker.serve(drain.clone()) => tracing::info!("drained"),
        () = draining => tracing::warn!("calls were cut: they took longer than `server.shutdown_patience`"),
    }
    Ok(())
}

/// The broker inside a server. It ends after everything that calls through it.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    tasks: JoinSet<()>,
    drain: CancellationToken,
}

impl Inside {
    /// Has the broker take calls.
    pub(crate) fn start(&mut self, broker: Broker) {
        self.tasks.spawn(broker.serve(self.drain.clone()));
    }

    /// Finishes the calls that run, for as long as `patience` lasts.
    pub(crate) async fn drain(mut self, patience: Duration) {
        self.drain.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, ended).await.is_err() {
            tracing::warn!(
                "outgoing calls were cut: they took longer than `server.shutdown_patience`"
            );
        }
    }
}

/// The broker's part of `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    socket: PathBuf,
    callers: usize,
    calls: u64,
    declined: Vec<Unanswered>,
    failed: Vec<Unanswered>,
    origins: Vec<Origin>,
}

#[derive(Debug, Serialize)]
struct Unanswered {
    reason: &'static str,
    calls: u64,
}

#[derive(Debug, Default, Serialize)]
struct Origin {
    #[serde(rename = "origin")]
    url: String,
    calls: u64,
    reused: u64,
    connects: u64,
    handshakes: u64,
    handshakes_saved: u64,
    repeated: u64,
    waiting: usize,
    connections: usize,
}

impl Watch {
    /// The path of the socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it does now.
    pub(crate) fn status(&self) -> Status {
        let door = self.door.report();
        let unanswered = |fate| {
            let of_fate = door.unanswered.iter().filter(move |(is, ..)| *is == fate);
            of_fate.map(|(_, reason, calls)| Unanswered { reason, calls: *calls }).collect()
        };
        let mut origins: Vec<Origin> = self.engine.report().into_iter().map(Origin::of).collect();
        origins.sort_by_key(|origin| std::cmp::Reverse(origin.calls));
        if origins.len() > ORIGINS {
            let mut others = Origin { url: "others".to_owned(), ..Origin::default() };
            origins.drain(ORIGINS..).for_each(|origin| others.add(&origin));
            origins.push(others);
        }
        Status {
            socket: self.socket.clone(),
            callers: door.callers,
            calls: door.calls,
            declined: unanswered(egress::Fate::Declined),
            failed: unanswered(egress::Fate::Failed),
            origins,
        }
    }
}

impl Origin {
    fn of(report: OriginReport) -> Self {
        let stats = report.stats;
        Self {
            url: url(report.scheme, &report.host, report.port),
            calls: stats.calls,
            reused: stats.reused,
            connects: stats.connects,
            handshakes: stats.handshakes,
            handshakes_saved: stats.handshakes_saved,
            repeated: stats.repeated,
            waiting: stats.waiting,
            connections: stats.connections,
        }
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.reused += other.reused;
        self.connects += other.connects;
        self.handshakes += other.handshakes;
        self.handshakes_saved += other.handshakes_saved;
        self.repeated += other.repeated;
        self.waiting += other.waiting;
        self.connections += other.connections;
    }
}

fn url(scheme: Scheme, host: &str, port: u16) -> String {
    let mut url = format!("{}://", scheme.word());
    let host_written =
        if host.contains(':') { write!(url, "[{host}]") } else { write!(url, "{host}") };
    let port_written = if port == scheme.default_port() { Ok(()) } else { write!(url, ":{port}") };
    host_written.and(port_written).expect("a String takes all");
    url
}

/// The broker's metrics, described.
pub(crate) fn describe_metrics() {
    metrics::describe_gauge!(
        "hearth_egress_callers",
        "Outgoing calls under way through the broker"
    );
    metrics::describe_counter!("hearth_egress_calls_total", "Outgoing calls, by origin");
    metrics::describe_counter!(
        "hearth_egress_reused_total",
        "Outgoing calls over a connection that was there, by origin"
    );
    metrics::describe_gauge!(
        "hearth_egress_reuse_ratio",
        "Share of an origin's calls that went over a connection that was there"
    );
    metrics::describe_counter!("hearth_egress_connects_total", "Connections made, by origin");
    metrics::describe_counter!("hearth_egress_handshakes_total", "TLS handshakes, by origin");
    metrics::describe_counter!(
        "hearth_egress_handshakes_saved_total",
        "TLS handshakes that calls did without, by origin"
    );
    metrics::describe_counter!(
        "hearth_egress_repeated_total",
        "Calls made again because the first attempt had not been processed, by origin"
    );
    metrics::describe_gauge!(
        "hearth_egress_waiting",
        "Calls that wait for a connection, by origin"
    );
    metrics::describe_gauge!("hearth_egress_connections", "Open outgoing connections, by origin");
    metrics::describe_counter!(
        "hearth_egress_unanswered_total",
        "Outgoing calls without an answer, by fate (declined: the caller makes it directly; failed) and reason"
    );
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
/// Copies the numbers at the moment of the scrape.
pub(crate) fn set_metrics(watch: &Watch) {
    let status = watch.status();
    metrics::gauge!("hearth_egress_callers").set(status.callers as f64);
    for (fate, unanswered) in [("declined", &status.declined), ("failed", &status.failed)] {
        for Unanswered { reason, calls } in unanswered {
            metrics::counter!("hearth_egress_unanswered_total", "fate" => fate, "reason" => *reason)
                .absolute(*calls);
        }
    }
    for origin in status.origins {
        let name = origin.url;
        let counter = |metric: &'static str, value| {
            metrics::counter!(metric, "origin" => name.clone()).absolute(value);
        };
        counter("hearth_egress_calls_total", origin.calls);
        counter("hearth_egress_reused_total", origin.reused);
        counter("hearth_egress_connects_total", origin.connects);
        counter("hearth_egress_handshakes_total", origin.handshakes);
        counter("hearth_egress_handshakes_saved_total", origin.handshakes_saved);
        counter("hearth_egress_repeated_total", origin.repeated);
        let gauge = |metric: &'static str, value| {
            metrics::gauge!(metric, "origin" => name.clone()).set(value);
        };
        let ratio =
            if origin.calls == 0 { 0.0 } else { origin.reused as f64 / origin.calls as f64 };
        gauge("hearth_egress_reuse_ratio", ratio);
        gauge("hearth_egress_waiting", origin.waiting as f64);
        gauge("hearth_egress_connections", origin.connections as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_in_urls() {
        assert_eq!(url(Scheme::Https, "a.test", 443), "https://a.test");
        assert_eq!(url(Scheme::Http, "::1", 8080), "http://[::1]:8080");
    }
}
