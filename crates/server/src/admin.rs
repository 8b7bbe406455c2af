//! The admin address: `/metrics` for Prometheus, `/status` for programs, `/up` for load balancers, `/` for people.
//!
//! Invariants
//! - It answers from before PHP starts until the pool is empty, so `/up` can say "not yet" and "no longer".
//! - It reads; only the console of realtime can change something: send an event.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use pool::{DatabaseServer, DatabaseStatus, PoolStatus, WorkerState};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::failure::Failure;
use crate::realtime::Realtime;
use crate::state::{Draining, Reloads};
pub(crate) use crate::state::{Serving, State};
use crate::{connectors, egress, log, realtime};

/// Connections at once; further ones wait in the system's queue. An operator needs a handful.
const CONNECTIONS: usize = 64;
/// How long a client may take to send a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often histograms are folded, so that they do not grow between scrapes.
const UPKEEP: Duration = Duration::from_secs(5);
/// Seconds; from a plain PHP page to a report that somebody waits for.
const DURATION_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The bound admin address.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: TcpListener,
    metrics: PrometheusHandle,
    state: Arc<State>,
}

impl Admin {
    /// Binds the address that the settings name, if any, and says where it is.
    pub(crate) async fn as_set(
        settings: &Settings,
        state: &Arc<State>,
    ) -> Result<Option<Self>, Failure> {
        let Some(address) = settings.admin.listen else { return Ok(None) };
        let bound = Self::bind(address, Arc::clone(state)).await?;
        if let Ok(address) = bound.address() {
            log::say(&format!("admin on http://{address}"));
        }
        Ok(Some(bound))
    }

    /// Binds the address and starts recording metrics.
    pub(crate) async fn bind(address: SocketAddr, state: Arc<State>) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::caused_by(
                format!("cannot listen on {address} (admin)"),
                &error,
                "choose another address with `--admin`, or port 0 for any free one",
            )
        })?;
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
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "admin address is not loopback: anyone who reaches it can read it");
        }
        Ok(Self { listener, metrics, state })
    }

    /// The address bound, its port the real one.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `end` is cancelled.
    pub(crate) async fn serve(self, end: CancellationToken) {
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        loop {
            tokio::select! {
                () = end.cancelled() => break,
                _ = upkeep.tick() => self.metrics.run_upkeep(),
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((socket, _peer)) => {
                        let (metrics, state) = (self.metrics.clone(), Arc::clone(&self.state));
                        connections.spawn(speak(socket, move |request| {
                            let (metrics, state) = (metrics.clone(), Arc::clone(&state));
                            async move {
                                let path = request.uri().path();
                                if path == "/realtime" || path.starts_with("/realtime/") {
                                    let serving = state.serving();
                                    let realtime = serving.as_ref().and_then(|serving| serving.realtime.as_ref());
                                    realtime::answer_console(request, realtime).await
                                } else {
                                    answer(&request, Some(&metrics), &state).map(http_body_util::BodyExt::boxed_unsync)
                                }
                            }
                        }));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "admin connection not accepted");
                        // Out of descriptors, most likely: do not spin.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }
}

/// Answers the requests of one connection.
pub(crate) async fn speak<S, B, F>(socket: S, answer: impl Fn(Request<hyper::body::Incoming>) -> F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + 'static,
    F: Future<Output = Response<B>>,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "admin connection ended early");
    }
}

/// What reads. Without `metrics` none are recorded.
pub(crate) fn answer<B>(
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
        "/up" => match state.phase() {
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
        "/" => typed(StatusCode::OK, "text/html; charset=utf-8", page(&Status::of(state))),
        _ => {
            text(StatusCode::NOT_FOUND, "here are /, /up, /status, /metrics and /realtime\n".into())
        }
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
struct Status {
    version: &'static str,
    pid: u32,
    state: &'static str,
    uptime_seconds: u64,
    listeners: Vec<String>,
    application: Option<String>,
    model: Option<&'static str>,
    generation: Option<u64>,
    pool: Option<PoolStatus>,
    draining: Vec<Draining>,
    reloads: Reloads,
    egress: Option<egress::Status>,
    connectors: Vec<connectors::Status>,
    realtime: Option<realtime::Status>,
}

impl Status {
    fn of(state: &State) -> Self {
        let serving = state.serving();
        let serving = serving.as_deref();
        let (generation, draining) = state.generations();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            state: state.phase(),
            uptime_seconds: state.uptime().as_secs(),
            listeners: serving.map(|serving| serving.listeners.clone()).unwrap_or_default(),
            application: serving.map(|serving| serving.explanation.clone()),
            model: serving.and_then(|serving| serving.model),
            generation,
            pool: state.pool(),
            draining,
            reloads: state.reloads(),
            egress: serving.and_then(|serving| serving.egress.as_ref()).map(egress::Watch::status),
            connectors: serving
                .map(|serving| serving.connectors.iter().map(connectors::Status::of).collect())
                .unwrap_or_default(),
            realtime: serving.and_then(|serving| serving.realtime.as_deref()).map(Realtime::status),
        }
    }
}

fn describe_metrics() {
    egress::describe_metrics();
    connectors::describe_metrics();
    realtime::describe_metrics();
    metrics::describe_gauge!("hearth_workers", "PHP workers by what they do");
    metrics::describe_gauge!("hearth_backlog", "Requests waiting for a worker");
    metrics::describe_gauge!("hearth_workers_resident_bytes", "Resident memory of all PHP workers");
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
    let serving = state.serving();
    if let Some(watch) = serving.as_ref().and_then(|serving| serving.egress.as_ref()) {
        egress::set_metrics(watch);
    }
    if let Some(realtime) = serving.as_ref().and_then(|serving| serving.realtime.as_ref()) {
        realtime::set_metrics(realtime);
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
    let Some(mut status) = state.pool() else { return };
    // Processes are processes, whatever generation they are of.
    status.workers.extend(draining.into_iter().flat_map(|draining| draining.pool.workers));
    for (worker_state, name) in WORKER_STATES {
        let count = status.workers.iter().filter(|worker| worker.state == *worker_state).count();
        metrics::gauge!("hearth_workers", "state" => *name).set(count as f64);
    }
    let resident: u64 = status.workers.iter().map(|worker| worker.resident_bytes).sum();
    metrics::gauge!("hearth_workers_resident_bytes").set(resident as f64);
    metrics::gauge!("hearth_backlog").set(status.backlog as f64);
    metrics::counter!("hearth_worker_requests_total").absolute(status.requests);
    metrics::counter!("hearth_worker_crashes_total").absolute(status.crashes);
    metrics::counter!("hearth_worker_recycled_total").absolute(status.recycled);
    metrics::counter!("hearth_worker_retired_total").absolute(status.retired);
    metrics::counter!("hearth_worker_timeouts_total").absolute(status.timeouts);
    let databases = &status.databases;
    metrics::gauge!("hearth_database_connections_kept").set(databases.kept as f64);
    metrics::gauge!("hearth_database_reset_seconds").set(databases.reset_seconds);
    metrics::counter!("hearth_database_resets_total").absolute(databases.resets);
    metrics::counter!("hearth_database_retired_total").absolute(databases.retired);
    for server in &databases.servers {
        set_database_gauges(server);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_database_gauges(server: &DatabaseServer) {
    let labels =
        [("db.system", server.protocol.to_lowercase()), ("peer", server.connection.clone())];
    metrics::gauge!("hearth_database_server_connections_kept", &labels).set(server.kept as f64);
    metrics::gauge!("hearth_database_server_connections_refused", &labels)
        .set(server.refused as f64);
    metrics::counter!("hearth_database_server_resets_total", &labels).absolute(server.resets);
    metrics::counter!("hearth_database_server_retired_total", &labels)
        .absolute(server.retired.values().sum());
    for (name, part) in [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)] {
        if let Some(time) = server.reset_times.quantile(part) {
            let [system, peer] = labels.clone();
            metrics::gauge!(
                "hearth_database_server_reset_quantile_seconds",
                &[system, peer, ("quantile", name.to_owned())]
            )
            .set(time.as_secs_f64());
        }
    }
}

fn retired(pool: &PoolStatus) -> String {
    match &pool.last_retirement {
        Some(reason) => format!("{}; the last: {reason}", pool.retired),
        None => pool.retired.to_string(),
    }
}

fn generations(generation: u64, status: &Status) -> String {
    let mut text = generation.to_string();
    if status.reloads.under_way {
        text.push_str(", the next one boots");
    }
    if !status.draining.is_empty() {
        write!(text, ", {} draining", status.draining.len()).expect("a String takes all");
    }
    if let Some(why) = &status.reloads.last_failure {
        write!(text, "; the last reload failed: {why}").expect("a String takes all");
    }
    text
}

/// One line for each server, and one for all.
fn databases(status: &DatabaseStatus) -> String {
    let mut lines = vec![format!(
        "{} connections kept, {} resets, {} workers retired",
        status.kept, status.resets, status.retired
    )];
    lines.extend(status.servers.iter().map(database));
    lines.join("\n")
}

fn database(server: &DatabaseServer) -> String {
    let DatabaseServer { connection, protocol, kept, resets, .. } = server;
    let mut line = format!("{connection} ({protocol}): {kept} kept, {resets} resets");
    let times = &server.reset_times;
    if let (Some(p50), Some(p99)) = (times.quantile(0.5), times.quantile(0.99)) {
        let [p50, p99, longest] = [p50, p99, times.longest()].map(|time| time.as_secs_f64() * 1e6);
        _ = write!(line, " (p50 {p50:.0} µs, p99 {p99:.0} µs, longest {longest:.0} µs)");
    }
    if let Some(why) = &server.refused_because {
        _ = write!(line, "; {} not kept: {why}", server.refused);
    }
    for (why, count) in &server.retired {
        _ = write!(line, "; {count} workers retired: {why}");
    }
    line
}

/// `/`: the same numbers for people, without a script.
fn page(status: &Status) -> String {
    let mut rows = vec![
        ("State", status.state.to_owned()),
        ("Uptime", format!("{} s", status.uptime_seconds)),
        ("Listeners", status.listeners.join(", ")),
        ("Application", status.application.clone().unwrap_or_default()),
        ("Model", status.model.unwrap_or("none").to_owned()),
    ];
    if let Some(generation) = status.generation {
        rows.push(("Generation", generations(generation, status)));
    }
    if let Some(pool) = &status.pool {
        let count = |state| pool.workers.iter().filter(|worker| worker.state == state).count();
        rows.extend([
            ("PHP", pool.php_version.clone()),
            (
                "Workers",
                format!(
                    "{} ({} busy, {} idle)",
                    pool.workers.len(),
                    count(WorkerState::Busy),
                    count(WorkerState::Idle)
                ),
            ),
            ("Backlog", pool.backlog.to_string()),
            ("Requests", pool.requests.to_string()),
            ("Crashes", pool.crashes.to_string()),
            ("Recycled", pool.recycled.to_string()),
            ("Retired", retired(pool)),
            ("Databases", databases(&pool.databases)),
        ]);
    }
    rows.extend(status.connectors.iter().map(|connector| ("Connector", connector.line())));
    let rows = rows
        .iter()
        .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>", escaped(value)))
        .collect::<Vec<_>>()
        .join("\n");
    let console =
        if status.realtime.is_some() { "<a href=\"/realtime\">Channels</a> · " } else { "" };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" content=\"5\">\n\
         <title>Hearth</title>\n<style>body {{ font: 1rem/1.5 system-ui; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }} \
         td {{ white-space: pre-line }} th {{ text-align: left; padding-right: 2rem; vertical-align: top }}</style>\n<h1>Hearth {}</h1>\n<table>\n{rows}\n</table>\n\
         <p>{console}<a href=\"/status\">/status</a> · <a href=\"/metrics\">/metrics</a> · <a href=\"/up\">/up</a></p>\n</html>\n",
        status.version
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
