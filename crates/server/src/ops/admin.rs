//! The admin address: `/metrics` for Prometheus, `/status` for programs, `/up` for load balancers, `/` for people, and `/events` for
//! their page.
//!
//! Invariants
//! - It answers from before PHP starts until the pool is empty, so `/up` can say "not yet" and "no longer".
//! - It reads; only the console of realtime can change something, send an event, and there is no console without a token.
//! - Who may ask is `guard`'s to say, before anything else is looked at.

mod feed;
mod guard;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use pool::{DatabaseServer, MemoryStatus, Model, PoolStatus, WorkerState};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use self::feed::{Events, Reader};
pub(crate) use self::guard::{is_console, may_listen};
use crate::app::fallback::Fallback;
use crate::app::fallback_cost::Costs;
use crate::config::{Settings, Token};
use crate::failure::Failure;
use crate::ops::dashboard::{self, Problem};
use crate::ops::log;
use crate::ops::state::{AdminSocket, Draining, Reloads, Served, in_one};
pub(crate) use crate::ops::state::{Serving, State};
use crate::runtime::footprint::Footprint;
use crate::subsystems::clients;
use crate::subsystems::connectors;
use crate::subsystems::egress;
use crate::subsystems::realtime;
use crate::subsystems::realtime::Realtime;
use crate::subsystems::tls;
use crate::subsystems::traces as collector;

/// Connections at once; further ones wait in the system's queue. An operator needs a handful.
const CONNECTIONS: usize = 64;
/// How long a client may take to send a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long those who are connected may take once the address is no longer ours.
const GOODBYE: Duration = Duration::from_secs(1);
/// How often histograms are folded, so that they do not grow between scrapes.
const UPKEEP: Duration = Duration::from_secs(5);
/// Seconds; from a plain PHP page to a report that somebody waits for.
const DURATION_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The bound admin address.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: TcpListener,
    desk: Desk,
    joining: mpsc::Receiver<Reader>,
}

/// What answers; each connection has one.
#[derive(Clone, Debug)]
struct Desk {
    metrics: PrometheusHandle,
    state: Arc<State>,
    token: Option<Token>,
    /// Where readers of the dashboard join.
    readers: mpsc::Sender<Reader>,
    /// A permit for each of them.
    places: Arc<Semaphore>,
}

/// A socket is bound to this address; any port will do for port 0.
fn is_at(listener: &std::net::TcpListener, wanted: Option<SocketAddr>) -> bool {
    let (Some(wanted), Ok(bound)) = (wanted, listener.local_addr()) else { return false };
    bound.ip() == wanted.ip() && [0, bound.port()].contains(&wanted.port())
}

impl Admin {
    /// Takes the socket that was given, if it is where the settings want it or a service manager has put it, or binds the address that they
    /// name, if any, and says where it is.
    pub(crate) async fn as_set(
        settings: &Settings,
        given: Option<AdminSocket>,
        state: &Arc<State>,
    ) -> Result<Option<Self>, Failure> {
        let token = settings.admin.token.clone();
        let wanted = settings.admin.listen;
        let given = given.filter(|given| given.passed || is_at(&given.listener, wanted));
        let bound = match (given, wanted) {
            (Some(AdminSocket { listener, .. }), _) => {
                Self::on(listener, token, Arc::clone(state))?
            }
            (None, Some(address)) => Self::bind(address, token, Arc::clone(state)).await?,
            (None, None) => return Ok(None),
        };
        if let Ok(address) = bound.address() {
            log::say(&format!("admin on http://{address}"));
        }
        Ok(Some(bound))
    }

    /// Takes a socket that listens and starts recording metrics.
    fn on(
        listener: std::net::TcpListener,
        token: Option<Token>,
        state: Arc<State>,
    ) -> Result<Self, Failure> {
        let take = || {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
        };
        let (address, listener) = take().map_err(|error: std::io::Error| {
            Failure::caused_by(
                "cannot take the socket of the admin address",
                &error,
                "pass another one",
            )
        })?;
        may_listen(address, token.as_ref())?;
        Self::recording(listener, token, state)
    }

    /// Binds the address and starts recording metrics.
    pub(crate) async fn bind(
        address: SocketAddr,
        token: Option<Token>,
        state: Arc<State>,
    ) -> Result<Self, Failure> {
        may_listen(address, token.as_ref())?;
        let listener =
            TcpListener::bind(address).await.map_err(|error| not_bound(address, &error))?;
        Self::recording(listener, token, state)
    }

    fn recording(
        listener: TcpListener,
        token: Option<Token>,
        state: Arc<State>,
    ) -> Result<Self, Failure> {
        let metrics = PrometheusBuilder::new()
            .set_buckets_for_metric(
                Matcher::Full("hearth_request_duration_seconds".into()),
                DURATION_BUCKETS,
            )
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| {
                Failure::caused_by("cannot record metrics", &error, "please report this")
            })?;
        describe_metrics();
        let (readers, joining) = mpsc::channel(feed::READERS);
        let places = Arc::new(Semaphore::new(feed::READERS));
        Ok(Self { listener, desk: Desk { metrics, state, token, readers, places }, joining })
    }

    /// Its socket once more, for a process that is to take this one's place.
    pub(crate) fn share(&self) -> std::io::Result<std::net::TcpListener> {
        Ok(self.listener.as_fd().try_clone_to_owned()?.into())
    }

    /// The address bound, its port the real one.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `end` completes, and then those who are connected, within [`GOODBYE`].
    pub(crate) async fn serve(self, end: impl Future<Output = ()>) {
        let Self { listener, desk, mut joining } = self;
        let (mut end, ending) = (pin!(end), CancellationToken::new());
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        let mut beat = tokio::time::interval(feed::BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut readers: Vec<Reader> = Vec::new();
        loop {
            tokio::select! {
                () = &mut end => break,
                _ = upkeep.tick() => desk.metrics.run_upkeep(),
                _ = beat.tick(), if !readers.is_empty() => {
                    let event = feed::event(&dashboard::parts_as_json(&desk.view()));
                    readers.retain(|reader| reader.tell(&event));
                }
                Some(reader) = joining.recv() => {
                    readers.push(reader);
                    beat.reset_immediately();
                }
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((socket, _peer)) => {
                        let (desk, cut) = (desk.clone(), CancellationToken::new());
                        let ends = (cut.clone(), ending.clone());
                        let attended = speak(socket, ends, move |request| {
                            let (desk, cut) = (desk.clone(), cut.clone());
                            async move { desk.answer(request, cut).await }
                        });
                        drop(connections.spawn(attended));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "admin connection not accepted");
                        // Out of descriptors, most likely: do not spin.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        // Whoever comes from now on is answered by a successor, or by nobody.
        drop(listener);
        ending.cancel();
        // Those who look at the dashboard have no end of their own.
        drop((readers, joining));
        let rest = async { while connections.join_next().await.is_some() {} };
        if timeout(GOODBYE, rest).await.is_err() {
            tracing::debug!("admin connections cut: their clients ask nothing, or take no answer");
        }
    }
}

/// Why there is no admin address.
pub(crate) fn not_bound(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::caused_by(
        format!("cannot listen on {address} (admin)"),
        error,
        "choose another address with `--admin`, or port 0 for any free one",
    )
}

/// Answers the requests of one connection until `cut` is cancelled. Once `ending` is, the request that it has is the last one; one that has
/// not brought any may bring its first.
pub(crate) async fn speak<S, B, F>(
    socket: S,
    (cut, ending): (CancellationToken, CancellationToken),
    answer: impl Fn(Request<hyper::body::Incoming>) -> F,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + 'static,
    F: Future<Output = Response<B>>,
{
    let asked = CancellationToken::new();
    let service = service_fn(|request| {
        asked.cancel();
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    // hyper closes one that has not brought a request at once, also when its first is on the way.
    let last = async {
        ending.cancelled().await;
        asked.cancelled().await;
    };
    let ended = tokio::select! {
        () = cut.cancelled() => return,
        ended = connection.as_mut() => ended,
        () = last => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                () = cut.cancelled() => return,
                ended = connection.as_mut() => ended,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "admin connection ended early");
    }
}

impl Desk {
    /// `cut` ends the connection that the request came on.
    async fn answer<B>(&self, request: Request<B>, cut: CancellationToken) -> Answer
    where
        B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
    {
        let path = request.uri().path();
        let mut answer = match guard::check(path, request.headers(), self.token.as_ref()) {
            Err(refused) => {
                let mut response = text(refused.status(), refused.text().into());
                if refused.status() == StatusCode::UNAUTHORIZED {
                    response.headers_mut().insert(WWW_AUTHENTICATE, guard::CHALLENGE);
                }
                response.map(BodyExt::boxed_unsync)
            }
            Ok(()) if is_console(path) => console(request, &self.state).await,
            Ok(()) if path == "/events" && request.method() == Method::GET => self.events(cut),
            Ok(()) => look(&request, Some(&self.metrics), &self.state).map(BodyExt::boxed_unsync),
        };
        // Nothing here is to be shown in, or taken for, anything else.
        let fields = [
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ];
        for (name, value) in fields {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    /// The figures of the dashboard, from now on.
    fn events(&self, cut: CancellationToken) -> Answer {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let text = text(StatusCode::SERVICE_UNAVAILABLE, "too many look already\n".into());
            return text.map(BodyExt::boxed_unsync);
        };
        let (reader, response) = feed::open(cut, place);
        match self.readers.try_send(reader) {
            Ok(()) => response.map(Events::boxed_unsync),
            Err(_full) => {
                let text = text(StatusCode::SERVICE_UNAVAILABLE, "the server ends\n".into());
                text.map(BodyExt::boxed_unsync)
            }
        }
    }
    /// What the dashboard shows.
    fn view(&self) -> dashboard::View {
        view(&self.state)
    }
}

fn view(state: &State) -> dashboard::View {
    let serving = state.serving();
    let traffic = serving.as_ref().and_then(|serving| serving.traffic.as_ref());
    dashboard::View {
        status: Status::of(state),
        history: traffic.map(|traffic| traffic.history()).unwrap_or_default(),
    }
}

/// Answers the paths of the debug console.
pub(crate) async fn console<B>(request: Request<B>, state: &State) -> Answer
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
{
    let serving = state.serving();
    let realtime = serving.as_ref().and_then(|serving| serving.realtime.as_ref());
    realtime::answer_console(request, realtime).await
}

/// What reads. Without `metrics` none are recorded.
pub(crate) fn look<B>(
    request: &Request<B>,
    metrics: Option<&PrometheusHandle>,
    state: &State,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        guard::OPEN => match state.phase() {
            "ready" => text(StatusCode::OK, "ok\n".into()),
            phase => text(StatusCode::SERVICE_UNAVAILABLE, format!("{phase}\n")),
        },
        "/metrics" => match metrics {
            Some(metrics) => {
                set_gauges(state);
                typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics.render())
            }
            None => text(StatusCode::NOT_FOUND, "metrics are recorded for `admin.listen`\n".into()),
        },
        "/status" => {
            let status = serde_json::to_string_pretty(&Status::of(state))
                .expect("the status has only plain types");
            typed(StatusCode::OK, "application/json", status + "\n")
        }
        "/" => {
            let page = dashboard::page(&view(state));
            let mut response = typed(StatusCode::OK, "text/html; charset=utf-8", page);
            let policy = HeaderValue::from_static(dashboard::policy());
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            response
        }
        _ => text(
            StatusCode::NOT_FOUND,
            "here are /, /events, /up, /status, /metrics and /realtime\n".into(),
        ),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body)
}

pub(crate) fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: String,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `/status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub version: &'static str,
    pub pid: u32,
    pub state: &'static str,
    pub uptime_seconds: u64,
    pub listeners: Vec<String>,
    pub application: Option<String>,
    pub model: Option<&'static str>,
    pub generation: Option<u64>,
    /// What is wrong now, the worst first.
    pub problems: Vec<Problem>,
    pub traffic: Option<Traffic>,
    pub clients: Option<clients::Status>,
    /// Of all applications together.
    pub pool: Option<PoolStatus>,
    pub applications: Vec<OfApplication>,
    pub draining: Vec<Draining>,
    pub reloads: Reloads,
    pub egress: Option<egress::Status>,
    pub connectors: Vec<connectors::Status>,
    pub realtime: Option<realtime::Status>,
    pub certificates: Vec<tls::Status>,
    pub acme: Option<tls::AcmeStatus>,
}

/// One application, its figures.
#[derive(Debug, Serialize)]
pub(crate) struct OfApplication {
    pub name: String,
    /// The requests that are for it.
    pub claims: Vec<String>,
    pub application: String,
    pub model: Option<&'static str>,
    /// It runs in the place of another.
    pub fallback: Option<Fallback>,
    /// What `fork` and `request` cost, in words, where that decided between them.
    pub costs: Option<String>,
    /// PSS of all its processes together.
    pub pss_bytes: Option<u64>,
    /// Memory for each further worker, and once for all.
    pub footprint: Option<Footprint>,
    pub php_version: String,
    /// Workers there are to be by now, the least and the most.
    pub wanted: usize,
    pub least: usize,
    pub most: usize,
    /// Workers that can take a request or have one.
    pub ready: usize,
    pub busy: usize,
    pub backlog: usize,
    pub overloaded: bool,
    pub requests: u64,
    pub refused: u64,
    pub crashes: u64,
    pub timeouts: u64,
    pub slow_requests: u64,
}

impl OfApplication {
    fn of(served: &Served, pool: &PoolStatus) -> Self {
        let busy = pool.workers.iter().filter(|worker| worker.state == WorkerState::Busy);
        Self {
            name: served.name.to_string(),
            claims: served.claims.clone(),
            application: served.explanation.clone(),
            model: served.model,
            fallback: served.fallback.clone(),
            costs: served
                .fallback
                .as_ref()
                .and_then(|fallback| fallback.costs.as_ref())
                .map(Costs::text),
            pss_bytes: pool.memory.pss_bytes,
            footprint: Footprint::of(
                pool,
                served.model.and_then(Model::named).is_some_and(Model::is_one_shot),
            ),
            php_version: pool.php_version.clone(),
            wanted: pool.wanted,
            least: pool.least,
            most: pool.most,
            ready: pool.ready(),
            busy: busy.count(),
            backlog: pool.backlog,
            overloaded: pool.overloaded,
            requests: pool.requests,
            refused: pool.refused,
            crashes: pool.crashes,
            timeouts: pool.timeouts,
            slow_requests: pool.slow_requests,
        }
    }
}

/// What the HTTP front answers: since the start, and in the last minute.
#[derive(Debug, Serialize)]
pub(crate) struct Traffic {
    pub requests: u64,
    pub errors: u64,
    pub per_second: f64,
    pub errors_per_second: f64,
    pub p50_seconds: Option<f64>,
    pub p95_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
}

impl Traffic {
    fn of(traffic: &front_http::Traffic) -> Self {
        let last = traffic.last(front_http::STEPS_A_MINUTE);
        let seconds = |took: Option<Duration>| took.map(|took| took.as_secs_f64());
        Self {
            requests: traffic.requests(),
            errors: traffic.errors(),
            per_second: last.per_second(),
            errors_per_second: last.errors_per_second(),
            p50_seconds: seconds(last.p50),
            p95_seconds: seconds(last.p95),
            p99_seconds: seconds(last.p99),
        }
    }
}

impl Status {
    fn of(state: &State) -> Self {
        let serving = state.serving();
        let serving = serving.as_deref();
        let (generation, draining) = state.generations();
        let traffic = serving.and_then(|serving| serving.traffic.as_deref());
        let pools = state.pools();
        let applications = serving.map(|serving| &*serving.applications).unwrap_or_default();
        let none = PoolStatus::default();
        let applications = applications
            .iter()
            .map(|served| OfApplication::of(served, pools.get(&served.name).unwrap_or(&none)));
        let mut status = Self {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            state: state.phase(),
            uptime_seconds: state.uptime().as_secs(),
            listeners: serving.map(|serving| serving.listeners.clone()).unwrap_or_default(),
            application: serving.map(|serving| serving.explanation.clone()),
            model: serving.and_then(|serving| serving.applications.first()?.model),
            generation,
            problems: Vec::new(),
            traffic: traffic.map(Traffic::of),
            clients: serving
                .and_then(|serving| serving.connections.as_deref())
                .map(clients::Status::of),
            applications: applications.collect(),
            pool: in_one(pools),
            draining,
            reloads: state.reloads(),
            egress: serving.and_then(|serving| serving.egress.as_ref()).map(egress::Watch::status),
            connectors: serving
                .map(|serving| serving.connectors.iter().map(connectors::Status::of).collect())
                .unwrap_or_default(),
            realtime: serving.and_then(|serving| serving.realtime.as_deref()).map(Realtime::status),
            certificates: serving
                .and_then(|serving| serving.tls.as_ref())
                .map(tls::Watch::status)
                .unwrap_or_default(),
            acme: serving.and_then(|serving| serving.tls.as_ref()).and_then(tls::Watch::acme),
        };
        status.problems = dashboard::problems(&status);
        status
    }
}

fn describe_metrics() {
    clients::describe_metrics();
    collector::describe_metrics();
    egress::describe_metrics();
    connectors::describe_metrics();
    realtime::describe_metrics();
    tls::describe_metrics();
    metrics::describe_gauge!("hearth_workers", "PHP workers by what they do");
    metrics::describe_gauge!(
        "hearth_workers_wanted",
        "PHP workers that there are to be by now, between `php.workers` and `php.workers_max`"
    );
    metrics::describe_counter!(
        "hearth_workers_grown_total",
        "Workers added because requests waited"
    );
    metrics::describe_counter!(
        "hearth_workers_shrunk_total",
        "Workers that ended because they were not needed for `php.workers_idle_timeout`"
    );
    metrics::describe_gauge!("hearth_backlog", "Requests waiting for a worker");
    metrics::describe_counter!(
        "hearth_backlog_refused_total",
        "Requests answered with 503: no worker became free in time, or none would have"
    );
    metrics::describe_counter!(
        "hearth_backlog_waited_total",
        "Requests that got a worker after having waited for it"
    );
    metrics::describe_gauge!(
        "hearth_backlog_waited_seconds",
        "How long all of those have waited, added up since the start"
    );
    metrics::describe_gauge!(
        "hearth_overloaded",
        "1 while requests are refused because more come than are answered (`php.backlog_target`)"
    );
    metrics::describe_gauge!("hearth_workers_resident_bytes", "Resident memory of all PHP workers");
    metrics::describe_gauge!(
        "hearth_workers_pss_bytes",
        "Memory of all PHP workers, of a shared page each one's part (PSS); NaN where /proc does not show it"
    );
    metrics::describe_gauge!(
        "hearth_workers_private_bytes",
        "Memory of PHP's processes that no other process maps; NaN where /proc does not show it"
    );
    metrics::describe_gauge!(
        "hearth_workers_shared_bytes",
        "Memory of PHP's processes that more than one process maps, counted once; NaN where /proc does not show it"
    );
    metrics::describe_gauge!(
        "hearth_zygote_pss_bytes",
        "Memory of the processes that workers are forked from (PSS)"
    );
    metrics::describe_gauge!(
        "hearth_snapshot_shared_bytes",
        "Bytes of the file that all snapshots of a generation share"
    );
    metrics::describe_gauge!("hearth_generation", "The generation of workers that takes requests");
    metrics::describe_gauge!(
        "hearth_generations_draining",
        "Generations that finish what they have"
    );
    metrics::describe_counter!("hearth_reloads_total", "Reloads by outcome: done, failed");
    metrics::describe_gauge!("hearth_uptime_seconds", "Seconds since the server started");
    metrics::describe_counter!("hearth_worker_requests_total", "Requests dispatched to PHP");
    metrics::describe_counter!(
        "hearth_worker_crashes_total",
        "Workers that ended without being told to"
    );
    metrics::describe_counter!("hearth_worker_recycled_total", "Workers replaced on purpose");
    metrics::describe_counter!(
        "hearth_worker_retired_total",
        "Workers that ended because they could not be put back as they were"
    );
    metrics::describe_gauge!(
        "hearth_database_connections_kept",
        "Connections of databases that stay open across requests"
    );
    metrics::describe_counter!(
        "hearth_database_resets_total",
        "Sessions of databases put back after a request"
    );
    metrics::describe_gauge!(
        "hearth_database_reset_seconds",
        "Time from writing those resets to the servers' proof, added up since the start"
    );
    metrics::describe_counter!(
        "hearth_database_retired_total",
        "Workers that ended because of a kept connection"
    );
    metrics::describe_gauge!(
        "hearth_database_server_connections_kept",
        "Connections to this server that stay open across requests"
    );
    metrics::describe_gauge!(
        "hearth_database_server_connections_refused",
        "Connections to this server that workers could not keep: /status has the reason"
    );
    metrics::describe_counter!(
        "hearth_database_server_resets_total",
        "Sessions of this server put back after a request"
    );
    metrics::describe_counter!(
        "hearth_database_server_retired_total",
        "Workers that ended because of a connection to this server: /status has the reasons"
    );
    metrics::describe_gauge!(
        "hearth_database_server_reset_quantile_seconds",
        "What putting a session of this server back took, from the reset to the proof, since the start"
    );
    metrics::describe_counter!(
        "hearth_worker_timeouts_total",
        "Requests that lost their worker to the time limit"
    );
    metrics::describe_counter!(
        "hearth_worker_slow_requests_total",
        "Requests that PHP worked on for longer than `log.slow_requests`"
    );
    metrics::describe_histogram!(
        "hearth_request_duration_seconds",
        "From a request's head to the end of its answer"
    );
}

const WORKER_STATES: &[(WorkerState, &str)] = &[
    (WorkerState::Booting, "booting"),
    (WorkerState::Idle, "idle"),
    (WorkerState::Busy, "busy"),
    (WorkerState::Stopping, "stopping"),
];

/// What the pool counts itself is copied at the moment of the scrape.
#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_gauges(state: &State) {
    metrics::gauge!("hearth_uptime_seconds").set(state.uptime().as_secs_f64());
    if let Some(tracer) = state.tracer() {
        collector::set_metrics(tracer);
    }
    let serving = state.serving();
    if let Some(watch) = serving.as_ref().and_then(|serving| serving.egress.as_ref()) {
        egress::set_metrics(watch);
    }
    if let Some(watch) = serving.as_ref().and_then(|serving| serving.tls.as_ref()) {
        tls::set_metrics(watch);
    }
    if let Some(realtime) = serving.as_ref().and_then(|serving| serving.realtime.as_ref()) {
        realtime::set_metrics(realtime);
    }
    if let Some(connections) = serving.as_ref().and_then(|serving| serving.connections.as_ref()) {
        clients::set_metrics(connections);
    }
    if let Some(serving) = &serving {
        connectors::set_metrics(&serving.connectors);
    }
    let (generation, draining) = state.generations();
    if let Some(generation) = generation {
        let reloads = state.reloads();
        metrics::gauge!("hearth_generation").set(generation as f64);
        metrics::gauge!("hearth_generations_draining").set(draining.len() as f64);
        metrics::counter!("hearth_reloads_total", "outcome" => "done").absolute(reloads.done);
        metrics::counter!("hearth_reloads_total", "outcome" => "failed").absolute(reloads.failed);
    }
    let mut pools = state.pools();
    // Processes are processes, whatever generation they are of.
    for worker in draining.into_iter().flat_map(|draining| draining.pool.workers) {
        if let Some(name) = &worker.application
            && let Some(pool) = pools.get_mut(name.as_str())
        {
            pool.workers.push(worker);
        }
    }
    for (name, status) in &pools {
        set_pool_gauges(name, status);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_pool_gauges(name: &Arc<str>, status: &PoolStatus) {
    let labels = [("application", name.to_string())];
    for (worker_state, state) in WORKER_STATES {
        let count = status.workers.iter().filter(|worker| worker.state == *worker_state).count();
        let [application] = labels.clone();
        let labels = [application, ("state", (*state).to_owned())];
        metrics::gauge!("hearth_workers", &labels).set(count as f64);
    }
    let gauge = |name: &'static str, value: f64| metrics::gauge!(name, &labels).set(value);
    let counter = |name: &'static str, value| metrics::counter!(name, &labels).absolute(value);
    let resident: u64 = status.workers.iter().map(|worker| worker.resident_bytes).sum();
    gauge("hearth_workers_resident_bytes", resident as f64);
    set_memory_gauges(&status.memory, &gauge);
    gauge("hearth_workers_wanted", status.wanted as f64);
    counter("hearth_workers_grown_total", status.grown);
    counter("hearth_workers_shrunk_total", status.shrunk);
    gauge("hearth_backlog", status.backlog as f64);
    counter("hearth_backlog_refused_total", status.refused);
    counter("hearth_backlog_waited_total", status.waited);
    gauge("hearth_backlog_waited_seconds", status.waited_seconds);
    gauge("hearth_overloaded", f64::from(u8::from(status.overloaded)));
    counter("hearth_worker_requests_total", status.requests);
    counter("hearth_worker_crashes_total", status.crashes);
    counter("hearth_worker_recycled_total", status.recycled);
    counter("hearth_worker_retired_total", status.retired);
    counter("hearth_worker_timeouts_total", status.timeouts);
    counter("hearth_worker_slow_requests_total", status.slow_requests);
    let databases = &status.databases;
    gauge("hearth_database_connections_kept", databases.kept as f64);
    gauge("hearth_database_reset_seconds", databases.reset_seconds);
    counter("hearth_database_resets_total", databases.resets);
    counter("hearth_database_retired_total", databases.retired);
    for server in &databases.servers {
        set_database_gauges(name, server);
    }
}

/// A gauge that was set once cannot be taken back: unknown is NaN.
#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_memory_gauges(memory: &MemoryStatus, gauge: &impl Fn(&'static str, f64)) {
    let bytes = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
    let zygotes: u64 = memory.zygotes.iter().map(|zygote| zygote.pss_bytes).sum();
    gauge(
        "hearth_workers_pss_bytes",
        bytes(memory.pss_bytes.map(|all| all.saturating_sub(zygotes))),
    );
    gauge("hearth_workers_private_bytes", bytes(memory.private_bytes));
    gauge("hearth_workers_shared_bytes", bytes(memory.shared_bytes));
    gauge("hearth_zygote_pss_bytes", bytes(memory.pss_bytes.map(|_| zygotes)));
    gauge("hearth_snapshot_shared_bytes", memory.snapshot_shared_bytes.unwrap_or(0) as f64);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_database_gauges(application: &Arc<str>, server: &DatabaseServer) {
    let labels = [
        ("application", application.to_string()),
        ("db.system", server.protocol.to_lowercase()),
        ("peer", server.connection.clone()),
    ];
    metrics::gauge!("hearth_database_server_connections_kept", &labels).set(server.kept as f64);
    metrics::gauge!("hearth_database_server_connections_refused", &labels)
        .set(server.refused as f64);
    metrics::counter!("hearth_database_server_resets_total", &labels).absolute(server.resets);
    metrics::counter!("hearth_database_server_retired_total", &labels)
        .absolute(server.retired.values().sum());
    for (name, part) in [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)] {
        if let Some(time) = server.reset_times.quantile(part) {
            let [application, system, peer] = labels.clone();
            metrics::gauge!(
                "hearth_database_server_reset_quantile_seconds",
                &[application, system, peer, ("quantile", name.to_owned())]
            )
            .set(time.as_secs_f64());
        }
    }
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
