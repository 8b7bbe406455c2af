//! Joins the HTTP front to the settings and to PHP's pool. The settings are translated to the front's options here only.
//!
//! Invariants
//! - Listeners are bound before PHP starts, so an address in use is known at once; nothing is accepted before the pool is there.

use std::collections::VecDeque;
use std::future::ready;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use front_http::{
    AccessLog, AccessLogFile, AccessLogTarget, AnswerCache, Application, BindError, Buffers,
    CacheOptions, Certificates, Connections, DiskOptions, Front, Given, Hosted, Listen, Options,
    Release, RequestBody, Routing, Switch, WebSockets,
};
use futures_util::TryFutureExt as _;
use futures_util::future::Either;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pool::{Cut, DispatchError, Pool, ResponseBody};
use tokio_util::sync::CancellationToken;
use traces::Tracer;

use crate::config::most_workers;
use crate::config::{self, Address, Settings};
use crate::failure::Failure;
use crate::subsystems::generation_guard::GenerationGuard;
use crate::subsystems::http::descriptors::Budget;
use crate::subsystems::http::dev::{self, Dev};
use crate::subsystems::realtime::Realtime;
use crate::system::places::StaleSockets;

/// Listeners that are bound and do not answer yet.
#[derive(Debug)]
pub(crate) struct Bound {
    front: Front<Php>,
    /// Sockets that were handed over and are not used.
    stale: StaleSockets,
}

/// Binds every listener, or takes the socket that listens there already. If a service manager has passed sockets (`activated`),
/// `http.listen` only selects the protocol of their ports.
pub(crate) async fn bind(
    settings: &Settings,
    certificates: Option<&Certificates>,
    tracer: Option<&Tracer>,
    (given, activated): (Vec<Given>, bool),
) -> Result<Bound, Failure> {
    // Files and scripts come with the first generation.
    let budget = Budget::now(settings);
    budget.warn_if_short(settings);
    let mut options = Options {
        tls: certificates.cloned(),
        tracer: tracer.cloned(),
        max_connections: budget.connections,
        descriptor_ceiling: Some(budget.ceiling),
        ..common(settings)
    };
    if activated {
        let known = std::mem::take(&mut options.listen);
        // The UDP socket of HTTP/3 comes with its TCP listener.
        for given in given.iter().filter(|given| !matches!(given, Given::Quic(_))) {
            options.listen.push(listen_on(given, &known, options.tls.is_some())?);
        }
    }
    let files: Vec<PathBuf> = given.iter().filter_map(file_of).collect();
    let front = Front::bind_with(options, given, Php::default())
        .await
        .map_err(|error| not_bound(&error, settings))?;
    let addresses = front.addresses();
    let is_listened_on = |file: &PathBuf| {
        addresses
            .iter()
            .any(|bound| matches!(bound, front_http::Bound::Unix { path, .. } if path == file))
    };
    let stale = StaleSockets::of(files.into_iter().filter(|file| !is_listened_on(file)));
    Ok(Bound { front, stale })
}

/// Returns the file of a unix socket that its new owner removes.
fn file_of(given: &Given) -> Option<PathBuf> {
    let goes = matches!(given, Given::Unix { takes_file_away: true, .. });
    match given.address() {
        Ok(Some(front_http::Address::Unix(path))) if goes => Some(path),
        _ => None,
    }
}

/// Returns the protocol of a passed socket: that of the address in the settings (`known`) with its port, else TLS if there is any.
fn listen_on(given: &Given, known: &[Listen], tls: bool) -> Result<Listen, Failure> {
    let port = |address: &front_http::Address| match address {
        front_http::Address::Tcp(address) => {
            address.rsplit_once(':').map(|(_, port)| port.to_owned())
        }
        front_http::Address::Unix(_) => None,
    };
    match given.address() {
        Ok(Some(address @ front_http::Address::Tcp(_))) => {
            let alike = known.iter().find(|listen| port(&listen.address) == port(&address));
            let (tls, redirect) = alike.map_or((tls, false), |alike| (alike.tls, alike.redirect));
            Ok(Listen { address, tls, redirect })
        }
        Ok(Some(address)) => Ok(Listen::plain(address)),
        Ok(None) => Err(Failure::misused(
            "a unix socket was passed that has no path",
            "name a path in `ListenStream=`",
        )),
        Err(error) => Err(Failure::caused_by(
            "a socket was passed that has no address",
            &error,
            "pass listening stream sockets",
        )),
    }
}

/// Returns the release of the only application.
pub(crate) fn release(options: &Options) -> Result<Release, Failure> {
    Release::new(options).map_err(|error| Failure::caused(&error, hint(&error)))
}

/// Returns a release without files, whose every request goes to the application.
pub(crate) fn release_of_nothing(settings: &Settings) -> Result<Release, Failure> {
    let (filename, name) = (PathBuf::from("/nonexistent/index.php"), "/index.php".to_owned());
    release(&Options { routing: Routing::Script { filename, name }, ..common(settings) })
}

/// Returns the release of several applications.
pub(crate) fn release_of(applications: &[Hosted]) -> Result<Release, Failure> {
    Release::of(applications).map_err(|error| Failure::caused(&error, hint(&error)))
}

impl Bound {
    /// Returns the addresses for clients, the first listener first.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.front.addresses().iter().map(ToString::to_string).collect()
    }

    /// Returns copies of its sockets, for a process that takes this one's place.
    pub(crate) fn share(&self) -> std::io::Result<Vec<Given>> {
        self.front.share()
    }

    /// Takes the sockets that were handed over and that the settings do not name, to be removed once the previous server is gone.
    pub(crate) fn stale(&mut self) -> StaleSockets {
        std::mem::take(&mut self.stale)
    }

    /// Returns the token to be cancelled when such a process accepts from them.
    pub(crate) fn succeeded(&self) -> CancellationToken {
        self.front.succeeded()
    }

    /// The file of the access log, where it goes into one.
    pub(crate) fn access_log(&self) -> Option<AccessLogFile> {
        self.front.access_log()
    }

    /// Returns the open WebSockets of applications.
    pub(crate) fn websockets(&self) -> Arc<WebSockets> {
        self.front.websockets()
    }

    /// Returns the recent traffic.
    pub(crate) fn traffic(&self) -> Arc<front_http::Traffic> {
        self.front.traffic()
    }

    /// The answer cache, if it is on.
    pub(crate) fn cache(&self) -> Option<Arc<AnswerCache>> {
        self.front.cache()
    }

    /// The connections of clients.
    pub(crate) fn connections(&self) -> Arc<Connections> {
        self.front.connections()
    }

    /// Adds channels on the same listeners.
    pub(crate) fn realtime(&mut self, realtime: Arc<Realtime>) {
        self.front.realtime(realtime);
    }

    /// Returns the switch by which a generation takes the requests.
    pub(crate) fn switch(&self) -> Switch<Php> {
        self.front.switch()
    }

    /// Answers requests until `drain` is cancelled and what runs has finished.
    pub(crate) async fn serve(self, drain: CancellationToken) {
        self.front.serve(drain.cancelled_owned()).await;
    }
}

/// The workers of one application in one generation, which answer requests that no file answers.
#[derive(Debug, Default)]
pub(crate) struct Php {
    pool: Option<Pool>,
    /// Keeps the pool taking requests for as long as one may come here.
    _guard: Option<GenerationGuard>,
    /// Development mode, if it is on.
    dev: Option<Arc<Dev>>,
}

impl Php {
    /// Returns the workers; without a pool only files are served.
    pub(crate) fn new(pool: Option<Pool>, guard: GenerationGuard, dev: Option<Arc<Dev>>) -> Self {
        Self { pool, _guard: Some(guard), dev }
    }

    /// Returns an application that has not booted yet: development mode says why.
    pub(crate) fn not_booted(dev: Arc<Dev>) -> Self {
        Self { pool: None, _guard: None, dev: Some(dev) }
    }
}

impl Application for Php {
    type Body = AnswerBody;

    fn call(
        &self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, DispatchError>> + Send {
        let script = self.dev.as_ref().and_then(|dev| dev.script_for(&request));
        if let Some(page) = self.dev.as_ref().and_then(|dev| dev.failure_page()) {
            let page = page.map(|page| AnswerBody::of_server(Some(page)));
            return Either::Left(ready(Ok(with_script(page, script))));
        }
        if let Some(pool) = &self.pool {
            let answered = |response: Response<ResponseBody>| {
                with_script(response.map(AnswerBody::of_php), script)
            };
            return Either::Right(pool.dispatch(request).map_ok(answered));
        }
        // Only files are served here; PHP source is not one of them.
        let mut response = Response::new(AnswerBody::of_server(None));
        *response.status_mut() = StatusCode::NOT_FOUND;
        Either::Left(ready(Ok(response)))
    }
}

/// Appends development mode's script to a page.
fn with_script(mut response: Response<AnswerBody>, script: Option<Bytes>) -> Response<AnswerBody> {
    if let Some(script) = script
        && dev::takes_script(&mut response, &script)
    {
        response.body_mut().rest.push_back(script);
    }
    response
}

/// PHP's answer, then what the server adds.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    php: Option<ResponseBody>,
    rest: VecDeque<Bytes>,
}

impl AnswerBody {
    fn of_php(body: ResponseBody) -> Self {
        Self { php: Some(body), rest: VecDeque::new() }
    }

    fn of_server(text: Option<Bytes>) -> Self {
        Self { php: None, rest: text.into_iter().collect() }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(body) = &mut self.php {
            let frame = ready!(Pin::new(body).poll_frame(context));
            if frame.is_some() {
                return Poll::Ready(frame);
            }
            self.php = None;
        }
        Poll::Ready(self.rest.pop_front().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.php.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest: u64 = self.rest.iter().map(|text| text.len() as u64).sum();
        let php = self.php.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        if rest == 0 {
            return php;
        }
        let mut hint = SizeHint::new();
        if let Some(upper) = php.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(php.lower() + rest);
        hint
    }
}

/// The front of `hearth channels`, which has no files and no scripts. Where the hub has the listeners, it gives it forwarded connections.
pub(crate) fn options_alone(settings: &Settings, hub_listens: bool) -> Options {
    let common = common(settings);
    if hub_listens {
        return Options { listen: Vec::new(), forwarded_connections: true, ..common };
    }
    common
}

/// Returns the options that all fronts share.
pub(crate) fn common(settings: &Settings) -> Options {
    let http = &settings.http;
    let https = http.listen.iter().any(|listen| settings.speaks_tls(listen));
    let listen = |listen: &config::Listen| match &listen.address {
        Address::Tcp(address) => {
            let tls = settings.speaks_tls(listen);
            Listen {
                address: front_http::Address::Tcp(address.to_string()),
                tls,
                redirect: !tls && https && http.redirect_to_https,
            }
        }
        // A proxy on this machine is at the other end: TLS is its business.
        Address::Unix(path) => Listen::plain(front_http::Address::Unix(path.clone())),
    };
    Options {
        listen: http.listen.iter().map(listen).collect(),
        forwarded_connections: false,
        document_root: PathBuf::from("/nonexistent"),
        read_permission: None,
        routing: Routing::Files { front_controller: None },
        static_files: http.static_files,
        cache_control: http.static_cache_control.clone(),
        precompressed: http.precompressed,
        sendfile: Vec::new(),
        websockets: settings.websockets.options(),
        compression: http.compression,
        cache: http.cache.then(|| CacheOptions {
            memory: http.cache_memory.0,
            answer: http.cache_answer.0,
            disk: http
                .cache_disk
                .clone()
                .map(|folder| DiskOptions { folder, limit: http.cache_disk_size.0 }),
            ignored_cookies: http.cache_ignored_cookies.clone(),
            status_header: http.cache_status,
        }),
        max_connections: http.connection_limit.get(),
        connections_per_client: http.connections_per_client.0.map(NonZeroUsize::get),
        descriptor_ceiling: None,
        max_body: http.body_limit.map_or(u64::MAX, |limit| limit.0),
        max_head: count(http.header_limit.0),
        max_headers: http.header_count.get(),
        max_uri: count(http.uri_limit.0),
        header_timeout: http.header_timeout,
        keep_alive_timeout: http.keep_alive_timeout,
        body_timeout: http.body_timeout,
        body_min_rate: http.body_min_rate.and_then(|rate| NonZeroU64::new(rate.0)),
        request_buffering: http.request_buffering,
        write_timeout: http.write_timeout,
        buffers: Buffers {
            memory: http.buffer_memory.0,
            disk: http.buffer_disk.0,
            directory: http.buffer_dir.0.clone().unwrap_or_else(std::env::temp_dir),
            answer_memory: http.answer_memory.0,
            answer_file: http.answer_file.0,
        },
        max_stalled_per_client: stalled_per_client(settings),
        handshake_timeout: http.tls_handshake_timeout,
        max_concurrent_streams: u32::try_from(http.http2_streams.get()).unwrap_or(u32::MAX),
        rules: http.rules(),
        trusted_proxies: http.trusted_proxies.clone(),
        trusted_headers: http.trusted_headers,
        route_by_forwarded_host: http.route_by_forwarded_host,
        proxy_protocol: http.proxy_protocol,
        request_id_header: http.request_id,
        server_header: http.server_header,
        access_log: http.access_log.map(|format| AccessLog {
            format,
            target: http
                .access_log_path
                .0
                .clone()
                .map_or(AccessLogTarget::Stdout, AccessLogTarget::File),
        }),
        tracer: None,
        patience: settings.server.shutdown_patience,
        tls: None,
        http3: http.http3.0,
        https_port: http.https_port.0,
        hsts: http.hsts.as_ref().map(|hsts| hsts.0.clone()),
    }
}

/// `auto`: a quarter of the workers of the application that has the fewest, and at least one.
fn stalled_per_client(settings: &Settings) -> usize {
    match settings.http.stalled_per_client.0 {
        Some(Some(most)) => most.get(),
        Some(None) => usize::MAX,
        None => {
            let named = settings.applications.iter().map(|named| &named.settings);
            let workers = std::iter::once(settings).chain(named).map(most_workers);
            (workers.min().map_or(1, NonZeroUsize::get) / 4).max(1)
        }
    }
}

fn count(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the failure of listeners that cannot be bound.
pub(crate) fn not_bound(error: &BindError, settings: &Settings) -> Failure {
    let own = match error {
        BindError::Listen { address, cause } if cause.kind() == std::io::ErrorKind::AddrInUse => {
            settings.named_twice(address)
        }
        _ => None,
    };
    Failure::caused(error, own.unwrap_or_else(|| hint(error)))
}

/// Returns what an operator can do.
fn hint(error: &BindError) -> String {
    let kind = |cause: &std::io::Error| cause.kind();
    match error {
        BindError::Listen { cause, .. } if kind(cause) == std::io::ErrorKind::PermissionDenied => {
            "`setcap cap_net_bind_service=+ep` on hearth, or listen on a port above 1023: `--listen :8443`".into()
        }
        BindError::Listen { cause, .. } if kind(cause) == std::io::ErrorKind::AddrInUse => {
            "stop the program that listens there (perhaps Hearth itself), or choose another with `--listen`; port 0 takes any free one"
                .into()
        }
        BindError::Listen { .. } | BindError::NoAddress => "choose another with `--listen`".into(),
        BindError::NoCertificate { .. } => "add `--tls-cert` and `--tls-key`".into(),
        BindError::NowhereToSend { .. } => "switch `http.redirect_to_https` off".into(),
        BindError::Hsts { .. } => "correct `http.hsts`".into(),
        BindError::AccessLog { .. } => "correct `http.access_log_path`".into(),
        BindError::Cache(_) => {
            "name a folder in `http.cache_disk` that the server's user can write, on a file system such as ext4, XFS, Btrfs or tmpfs".into()
        }
        BindError::Rules(_) => "correct `hearth.toml`: docs/guide/edge.md has examples".into(),
        BindError::CacheControl { .. } => "correct `http.static_cache_control`".into(),
        _ => "`hearth check` looks at addresses and certificates".into(),
    }
}
