//! The egress broker: alone (`hearth egress`) and inside `hearth serve`. What the broker calls things and what people call them meets
//! only here.
//!
//! Invariants
//! - PHP is told of a socket only when it is there.
//! - Each user that PHP runs as has a socket and a token of its own, and connections of its own: those of the engine have the caller's number in
//!   their keys.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egress::{
    DoorOptions, DoorReport, DoorWatch, Engine, HttpDoor, Key, OriginReport, Scheme, SocketError,
};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use traces::Tracer;

use crate::app::user::PhpUser;
use crate::config::{self, Environment, OriginUrl, Raw, Settings};
use crate::failure::Failure;
use crate::ops::admin::{Serving, State};
use crate::ops::log;
use crate::ops::notify;
use crate::runtime::process;
use crate::runtime::upgrade;
use crate::subsystems::traces::Collector;
use crate::system::run_dir::let_pass;

/// The environment variable by which PHP finds the socket.
pub(crate) const VARIABLE: &str = "HEARTH_EGRESS";
/// The environment variable by which PHP of another user knows as whom the broker runs: it sends its calls to nobody else's process.
pub(crate) const OWNER_VARIABLE: &str = "HEARTH_EGRESS_OWNER";
/// Where a broker alone listens unless it is told otherwise.
const SOCKET: &str = "/run/hearth/egress.sock";
/// The name of the socket in a folder.
const SOCKET_NAME: &str = "egress.sock";
/// Beside it: who may read this may call (egress's door).
const TOKEN_NAME: &str = "egress.token";
/// Beside it: the origins of the last run.
const MEMORY_NAME: &str = "egress.origins";
/// Origins with metrics of their own, the most called ones; the others are one. Their names come from callers.
const ORIGINS: usize = 100;
/// How long a name waits for a thread that looks it up. Behind names whose servers are gone it would be half a minute.
const LOOKUP_PATIENCE: Duration = Duration::from_millis(100);

/// A broker that listens.
#[derive(Debug)]
pub(crate) struct Broker {
    /// That of the settings first.
    doors: Vec<Door>,
    engine: Engine,
    prewarm: Vec<Key>,
    memory: PathBuf,
}

/// A socket of a broker, for one user's calls.
#[derive(Debug)]
struct Door {
    http: HttpDoor,
    entrance: Entrance,
    _folder: Option<OwnFolder>,
}

/// A folder for one door and nothing else; goes with it.
#[derive(Debug)]
struct OwnFolder(PathBuf);

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // Where it is not empty another broker lives there by now.
        drop(std::fs::remove_dir(&self.0));
    }
}

/// What others know of a door.
#[derive(Clone, Debug)]
struct Entrance {
    /// Whose PHP it is for; none: our own user's.
    user: Option<PhpUser>,
    socket: PathBuf,
    /// Where the socket belongs, if it was made beside that of another broker.
    place: PathBuf,
    watch: DoorWatch,
}

/// Whom a broker is for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Users<'u> {
    /// As whom PHP runs, where that is another one than ours.
    pub first: Option<&'u PhpUser>,
    /// Further ones: each has a folder of its own beside.
    pub others: &'u [PhpUser],
}

impl<'u> Users<'u> {
    /// One, or our own.
    pub(crate) fn one(user: Option<&'u PhpUser>) -> Self {
        Self { first: user, others: &[] }
    }

    /// Each once, by number.
    fn numbers(self) -> Vec<u32> {
        let own = || rustix::process::geteuid().as_raw();
        let mut numbers = vec![self.first.map_or_else(own, |user| user.identity.user)];
        for user in self.others {
            if !numbers.contains(&user.identity.user) {
                numbers.push(user.identity.user);
            }
        }
        numbers
    }
}

/// Tells what a broker does.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// That of the settings first.
    entrances: Vec<Entrance>,
    engine: Engine,
}

impl Broker {
    /// Makes the socket. `socket`: where, unless the settings say it. `succeeds`: another one lives there, whose place this one takes: it is
    /// made beside it. `users`: who is to call. `admin`: where this server's admin address listens, which is not called.
    pub(crate) fn bind(
        settings: &Settings,
        socket: &Path,
        users: Users<'_>,
        succeeds: bool,
        admin: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let egress = &settings.egress;
        let place = egress.socket.0.as_deref().unwrap_or(socket);
        if let Some(ca) = &egress.ca.0 {
            check_authorities(ca, CA)?;
        }
        let options = egress::Options {
            http1_connections: egress.connections.get(),
            http2_connections: egress.http2_connections.get(),
            waiting: egress.callers.get(),
            idle: egress.idle_timeout,
            age: egress.connection_age,
            // Whoever is declined looks up himself.
            lookup_patience: Some(LOOKUP_PATIENCE),
            ca: egress.ca.0.clone(),
            deny: egress.deny.clone(),
            deny_sockets: admin.into_iter().collect(),
            ..egress::Options::default()
        };
        let mut doors = vec![Door::bind(settings, place, users.first, true, succeeds)?];
        for user in users.others {
            let place = place.with_file_name(user.folder()).join(SOCKET_NAME);
            doors.push(Door::bind(settings, &place, Some(user), false, succeeds)?);
        }
        let memory = std::path::absolute(place).unwrap_or_else(|_cause| place.to_owned());
        let memory = memory.with_file_name(MEMORY_NAME);
        let of_all = |origin| users.numbers().into_iter().map(move |uid| key(uid, origin));
        let mut prewarm: Vec<Key> = egress.prewarm.iter().flat_map(of_all).collect();
        match egress::recall(&memory) {
            Ok(remembered) => {
                let new = remembered.into_iter().filter(|key| !prewarm.contains(key));
                prewarm.extend(new.collect::<Vec<_>>());
            }
            Err(error) => {
                tracing::warn!(path = %memory.display(), %error, "origins of the last run not read");
            }
        }
        Ok(Self { doors, engine: Engine::new(options), prewarm, memory })
    }

    /// Has each call have a span.
    pub(crate) fn trace(&mut self, tracer: Option<&Tracer>) {
        if let Some(tracer) = tracer {
            for door in &mut self.doors {
                door.http.trace(tracer.clone());
            }
        }
    }

    /// For the admin address, and for those who tell PHP of it.
    pub(crate) fn watch(&self) -> Watch {
        let entrances = self.doors.iter().map(|door| door.entrance.clone()).collect();
        Watch { entrances, engine: self.engine.clone() }
    }

    /// Takes calls until `drain` is cancelled, and finishes those that have begun.
    pub(crate) async fn serve(self, drain: CancellationToken) {
        self.engine.prewarm(self.prewarm);
        let mut serving = JoinSet::new();
        for door in self.doors {
            serving.spawn(door.serve(self.engine.clone(), drain.clone()));
        }
        while serving.join_next().await.is_some() {}
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

impl Door {
    /// `named`: it is the one that the settings speak of.
    fn bind(
        settings: &Settings,
        place: &Path,
        user: Option<&PhpUser>,
        named: bool,
        succeeds: bool,
    ) -> Result<Self, Failure> {
        let egress = &settings.egress;
        let place = &std::path::absolute(place).unwrap_or_else(|_cause| place.to_owned());
        let folder = place.parent().filter(|_| !named);
        let folder =
            folder.map(|folder| make_folder(folder, user).map(|()| OwnFolder(folder.to_owned())));
        let folder = folder.transpose()?;
        let beside = succeeds.then(|| upgrade::beside(place));
        if let Some(folder) = beside.as_deref().and_then(Path::parent) {
            make_folder(folder, user)?;
        }
        let identity = user.map(|user| &user.identity);
        let group = egress.group.0.filter(|_| named).map(|group| group.0);
        let allowed = egress.allow_users.iter().filter(|_| named).map(|user| user.0);
        let http = HttpDoor::bind(DoorOptions {
            socket: beside.as_deref().unwrap_or(place).to_owned(),
            group: group.or_else(|| identity.map(|php| php.group)),
            allow_users: allowed.chain(identity.map(|php| php.user)).collect(),
            callers: egress.callers.get(),
            connect: egress.connect_timeout,
            queue: egress.queue_timeout,
        })
        .map_err(|error| Failure::caused(&error, hint(&error)))?;
        let entrance = Entrance {
            user: user.cloned(),
            socket: http.path().to_owned(),
            place: place.to_owned(),
            watch: http.watch(),
        };
        Ok(Self { http, entrance, _folder: folder })
    }

    async fn serve(self, engine: Engine, drain: CancellationToken) {
        let Self { http, _folder, .. } = self;
        http.serve(engine, drain).await;
    }
}

/// A folder for a socket, in which PHP's user finds it by its name.
fn make_folder(folder: &Path, user: Option<&PhpUser>) -> Result<(), Failure> {
    let failed = |what: &str, error: &std::io::Error| {
        let what = format!("{what} {}", folder.display());
        Failure::caused_by(what, error, "choose another folder with `egress.socket`")
    };
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(|error| failed("cannot make", &error))?;
    if user.is_some() {
        let_pass(folder).map_err(|error| failed("cannot let PHP into", &error))?;
    }
    Ok(())
}

/// The setting that names authorities, and its flag.
pub(crate) const CA: &str = "`egress.ca` (`--ca`)";

/// Said at the start, not by each call that cannot be verified. `setting`: what names the file, for the hint.
pub(crate) fn check_authorities(path: &Path, setting: &str) -> Result<(), Failure> {
    const BEGINNING: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let hint = format!("correct {setting}, or leave it out for the system's authorities");
    let text = std::fs::read(path).map_err(|error| {
        Failure::caused_by(format!("cannot read {}", path.display()), &error, &*hint)
    })?;
    if text.windows(BEGINNING.len()).any(|window| window == BEGINNING) {
        return Ok(());
    }
    Err(Failure::failed(format!("{} holds no certificate in PEM form", path.display()), hint))
}

/// A call of a user's that wants nothing in particular.
fn key(uid: u32, origin: &OriginUrl) -> Key {
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

/// The token of the broker at a socket.
pub(crate) fn token_of(socket: &Path) -> PathBuf {
    socket.with_file_name(TOKEN_NAME)
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
    process::attend_alone(settings, async |state, drain| {
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
    let admin = state.admin_address();
    let mut broker = Broker::bind(settings, Path::new(SOCKET), Users::default(), false, admin)?;
    let collector = Collector::start(settings, environment, "egress")?;
    broker.trace(collector.tracer());
    state.trace(collector.tracer());
    let watch = broker.watch();
    let listener = format!("unix:{}", watch.socket().display());
    state.ready(Serving {
        applications: Vec::new(),
        listeners: vec![listener.clone()],
        explanation: "egress broker".to_owned(),
        egress: Some(watch),
        connectors: Vec::new(),
        realtime: None,
        traffic: None,
        connections: None,
        tls: None,
    });
    log::say(&format!("ready on {listener}"));
    notify::notify(environment.notify_socket(), "READY=1").await;
    let draining = async {
        drain.cancelled().await;
        state.draining();
        notify::notify(environment.notify_socket(), "STOPPING=1").await;
        tracing::info!("draining");
        tokio::time::sleep(settings.server.shutdown_patience).await;
    };
    tokio::select! {
        () = broker.serve(drain.clone()) => tracing::info!("drained"),
        () = draining => tracing::warn!("calls were cut: they took longer than `server.shutdown_patience`"),
    }
    collector.end().await;
    Ok(())
}

/// The broker inside a server. It ends after everything that calls through it.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    tasks: JoinSet<()>,
    drain: CancellationToken,
    /// Begins spans, if anybody wants some.
    tracer: Option<Tracer>,
}

impl Inside {
    /// Of a server that has spans begun there, if anywhere.
    pub(crate) fn traced(tracer: Option<&Tracer>) -> Self {
        Self { tracer: tracer.cloned(), ..Self::default() }
    }

    /// The same in the place of this one, which is returned.
    pub(crate) fn replace(&mut self) -> Self {
        let successor = Self::traced(self.tracer.as_ref());
        std::mem::replace(self, successor)
    }

    /// Has the broker take calls.
    pub(crate) fn start(&mut self, mut broker: Broker) {
        broker.trace(self.tracer.as_ref());
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
    pub socket: PathBuf,
    pub callers: usize,
    pub calls: u64,
    pub declined: Vec<Unanswered>,
    pub failed: Vec<Unanswered>,
    pub origins: Vec<Origin>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Unanswered {
    pub reason: &'static str,
    pub calls: u64,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Origin {
    #[serde(rename = "origin")]
    pub url: String,
    pub calls: u64,
    pub reused: u64,
    pub connects: u64,
    pub handshakes: u64,
    pub handshakes_saved: u64,
    pub repeated: u64,
    pub closed: u64,
    pub passed_over: u64,
    pub unasked: u64,
    pub waiting: usize,
    pub connections: usize,
}

impl Watch {
    /// Socket and token that were made beside those of another broker, and where they belong.
    pub(crate) fn beside(&self) -> Vec<(PathBuf, PathBuf)> {
        let made_beside =
            self.entrances.iter().filter(|door| door.socket.parent() != door.place.parent());
        let pair = |Entrance { socket, place, .. }: &Entrance| {
            [(token_of(socket), token_of(place)), (socket.clone(), place.clone())]
        };
        made_beside.flat_map(pair).collect()
    }

    /// The path of the socket that the settings speak of, absolute.
    pub(crate) fn socket(&self) -> &Path {
        &self.entrances.first().expect("there is one").socket
    }

    /// Where others look for it: a successor's socket was made beside it.
    pub(crate) fn place(&self) -> &Path {
        &self.entrances.first().expect("there is one").place
    }

    /// The socket for calls of that user's PHP; none: our own, which may use any.
    pub(crate) fn socket_of(&self, user: Option<&PhpUser>) -> Option<&Path> {
        if user.is_none() {
            return Some(self.socket());
        }
        let is_for = |entrance: &&Entrance| PhpUser::same(entrance.user.as_ref(), user);
        Some(&*self.entrances.iter().find(is_for)?.socket)
    }

    /// What it does now.
    pub(crate) fn status(&self) -> Status {
        let doors: Vec<DoorReport> =
            self.entrances.iter().map(|entrance| entrance.watch.report()).collect();
        let unanswered = |fate| {
            let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
            let all = doors.iter().flat_map(|door| &door.unanswered);
            for (_, reason, calls) in all.filter(|(is, ..)| *is == fate) {
                *sums.entry(reason).or_default() += calls;
            }
            sums.into_iter().map(|(reason, calls)| Unanswered { reason, calls }).collect()
        };
        let mut origins: Vec<Origin> = self.engine.report().into_iter().map(Origin::of).collect();
        origins.sort_by_key(|origin| std::cmp::Reverse(origin.calls));
        if origins.len() > ORIGINS {
            let mut others = Origin { url: "others".to_owned(), ..Origin::default() };
            origins.drain(ORIGINS..).for_each(|origin| others.add(&origin));
            origins.push(others);
        }
        Status {
            socket: self.socket().to_owned(),
            callers: doors.iter().map(|door| door.callers).sum(),
            calls: doors.iter().map(|door| door.calls).sum(),
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
            closed: stats.closed,
            passed_over: stats.passed_over,
            unasked: stats.unasked,
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
        self.closed += other.closed;
        self.passed_over += other.passed_over;
        self.unasked += other.unasked;
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
    metrics::describe_counter!(
        "hearth_egress_closed_total",
        "Kept HTTP/1.1 connections that the origin closed, while idle or under a call, by origin"
    );
    metrics::describe_counter!(
        "hearth_egress_passed_over_total",
        "Calls that must not be sent twice and used no kept connection, because the origin might have closed it, by origin"
    );
    metrics::describe_counter!(
        "hearth_egress_unasked_total",
        "HTTP/1.1 connections closed because the origin sent what no request had asked for, by origin"
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
        counter("hearth_egress_closed_total", origin.closed);
        counter("hearth_egress_passed_over_total", origin.passed_over);
        counter("hearth_egress_unasked_total", origin.unasked);
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
