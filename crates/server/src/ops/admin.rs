//! The admin address: `/metrics` for Prometheus, `/status` for programs, `/up` for load balancers, `/` for people, and `/events` for
//! their page.
//!
//! Invariants
//! - It answers from before PHP starts until the pool is empty, so `/up` can say "not yet" and "no longer".
//! - It reads. Only the console of realtime can send an event and `/cache/purge` remove stored answers, both with a token only.
//! - `guard` decides which requests are answered, before anything else.
//! - Clients without the token delay no other one: see `clients`.

mod clients;
mod feed;
mod guard;
pub(crate) mod purge;

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use self::clients::{Client, Clients};
use self::feed::{Events, Reader};
pub(crate) use self::guard::{is_console, may_listen};
use crate::config::{Settings, Token};
use crate::failure::Failure;
use crate::ops::dashboard;
use crate::ops::log;
use crate::ops::state::State;
use crate::ops::upgrades::AdminSocket;

/// Connections at once. A further one takes the place of one without the token; if there is none, it waits in the system's queue. An operator needs a
/// handful.
const CONNECTIONS: usize = 64;
/// The time that a client may take to send a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that open connections may take once the address is no longer ours.
const GOODBYE: Duration = Duration::from_secs(1);
/// The interval at which histograms are folded, so that they do not grow between scrapes.
const UPKEEP: Duration = Duration::from_secs(5);
/// Seconds, from a plain PHP page to a slow report.
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

/// The request handler; each connection has a clone.
#[derive(Clone, Debug)]
struct Desk {
    metrics: PrometheusHandle,
    state: Arc<State>,
    token: Option<Token>,
    /// The queue of new readers of the dashboard.
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
    /// Takes the given socket if it is at the address of the settings or a service manager has passed it; otherwise binds that address, if
    /// any, and logs it.
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
            log::line(&format!("admin on http://{address}"));
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
        metrics::describe_histogram!(
            "hearth_request_duration_seconds",
            "From a request's head to the end of its answer"
        );
        let (readers, joining) = mpsc::channel(feed::READERS);
        let places = Arc::new(Semaphore::new(feed::READERS));
        Ok(Self { listener, desk: Desk { metrics, state, token, readers, places }, joining })
    }

    /// Returns a copy of its socket, for a process that is to take this one's place.
    pub(crate) fn share(&self) -> std::io::Result<std::net::TcpListener> {
        Ok(self.listener.as_fd().try_clone_to_owned()?.into())
    }

    /// The address bound, its port the real one.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `end` completes, and then open connections within [`GOODBYE`].
    pub(crate) async fn serve(self, end: impl Future<Output = ()>) {
        let Self { listener, desk, mut joining } = self;
        let (mut end, ending) = (pin!(end), CancellationToken::new());
        let (mut connections, mut clients) = (JoinSet::new(), Clients::default());
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
                    readers.retain(|reader| reader.send(&event));
                }
                Some(reader) = joining.recv() => {
                    readers.push(reader);
                    beat.reset_immediately();
                }
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < CONNECTIONS || clients.can_make_room() => match accepted {
                    Ok((socket, _peer)) => {
                        if connections.len() >= CONNECTIONS && clients.make_room() {
                            let _cut = connections.join_next().await;
                        }
                        let attended = desk.clone().attend(socket, clients.add(), ending.clone());
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
        // From now on a successor answers new connections, if there is one.
        drop(listener);
        ending.cancel();
        // Readers of the dashboard have no end of their own.
        drop((readers, joining));
        let rest = async { while connections.join_next().await.is_some() {} };
        if timeout(GOODBYE, rest).await.is_err() {
            tracing::debug!("admin connections cut: their clients ask nothing, or take no answer");
        }
    }
}

/// Returns the failure of an admin address that cannot be bound.
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
    /// Answers the requests of one connection.
    async fn attend<S>(self, socket: S, client: Arc<Client>, ending: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let last = ending.child_token();
        let answered = speak(socket, (client.cut.clone(), last.clone()), |request| {
            let (desk, client) = (self.clone(), Arc::clone(&client));
            async move { desk.answer(request, &client).await }
        });
        tokio::select! {
            () = answered => {}
            () = client.limit(&last) => {}
        }
    }

    /// `client` is the connection that the request came on.
    async fn answer<B>(&self, request: Request<B>, client: &Client) -> Answer
    where
        B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>
            + Send
            + 'static,
    {
        let path = request.uri().path();
        let checked = guard::check(path, request.headers(), self.token.as_ref());
        if checked.is_ok() && path != guard::OPEN {
            if self.token.is_some() {
                client.shows_token();
            }
            if guard::is_of_events(path) {
                client.takes_events();
            }
        }
        let mut answer = match checked {
            Err(refused) => {
                let mut response = text(refused.status(), refused.text().into());
                if refused.status() == StatusCode::UNAUTHORIZED {
                    response.headers_mut().insert(WWW_AUTHENTICATE, guard::CHALLENGE);
                }
                response.map(BodyExt::boxed_unsync)
            }
            Ok(()) if is_console(path) => console(request, &self.state).await,
            Ok(()) if path == guard::EVENTS && request.method() == Method::GET => {
                self.events(client.cut.clone())
            }
            Ok(()) if path == guard::PURGE && request.method() == Method::POST => {
                purge::answer(request.uri().query(), &self.state).map(BodyExt::boxed_unsync)
            }
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
    /// Returns what the dashboard shows.
    fn view(&self) -> dashboard::View {
        view(&self.state)
    }
}

fn view(state: &State) -> dashboard::View {
    let mut status = state.status();
    let history = std::mem::take(&mut status.history);
    dashboard::View { status, history }
}

/// Answers the paths of the debug console.
pub(crate) async fn console<B>(request: Request<B>, state: &State) -> Answer
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>
        + Send
        + 'static,
{
    let console = state.serving().and_then(|serving| serving.console.clone());
    let Some(console) = console else {
        let told = "there is no realtime here: see docs/guide/realtime.md\n";
        return text(StatusCode::NOT_FOUND, told.into()).map(BodyExt::boxed_unsync);
    };
    console.answer(request.map(|body| body.map_err(std::io::Error::other).boxed_unsync())).await
}

/// Answers requests that only read. Without `metrics` none are recorded.
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
        guard::OPEN => match state.lifecycle.phase() {
            // It answers: a balancer that took it out would make a slow site an unreachable one.
            "ready" if state.is_degraded() => text(StatusCode::OK, "degraded\n".into()),
            "ready" => text(StatusCode::OK, "ok\n".into()),
            phase => text(StatusCode::SERVICE_UNAVAILABLE, format!("{phase}\n")),
        },
        "/metrics" => match metrics {
            Some(metrics) => {
                state.subsystems().iter().for_each(|subsystem| subsystem.metrics());
                typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics.render())
            }
            None => text(StatusCode::NOT_FOUND, "metrics are recorded for `admin.listen`\n".into()),
        },
        "/status" => {
            let status = serde_json::to_string_pretty(&state.status())
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
            "here are /, /events, /up, /status, /metrics, /cache/purge and /realtime\n".into(),
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

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
