//! The front as a whole: shared state, binding and shutdown.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use channels::hub::ForwardedConnection;
use http::header::InvalidHeaderValue;
use http::request::Parts;
use http::{HeaderValue, Version};
use hyper::server::conn::http1;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use traces::Tracer;

use crate::access_log::{self, AccessLogFile, Log};
use crate::application::Application;
use crate::buffered_body::AnswerBuffers;
use crate::cache::{AnswerCache, DiskError};
use crate::claims::Unclaimed;
use crate::connections::Connections;
use crate::forwarded::{Cidr, ForwardedInfo};
use crate::http3::{self as three, QuicListener};
use crate::listener::{self, Bound, Given, Listener};
use crate::metrics::FrontMetrics;
use crate::options::{Buffers, Options};
use crate::pace::PaceLimits;
use crate::realtime::{ForwardedConnections, Realtime};
use crate::release::{Current, Release, Switch};
use crate::request_buffering::RequestBuffering;
use crate::request_id::RequestIds;
use crate::respond::Connection;
use crate::rules::{RateBuckets, RuleError};
use crate::spool::{self, Spools};
use crate::stalled::StalledAnswers;
use crate::timed_io::Patience;
use crate::tls::Certificates;
use crate::traffic::Traffic;
use crate::trusted_headers::TrustedHeaders;
use crate::websocket::WebSockets;
use crate::{http1 as one, http2 as two};

/// Reasons why the front does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address as configured.
        address: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// No address is configured.
    #[error("there is no address to listen on")]
    NoAddress,
    /// A listener requires TLS, and there is no certificate.
    #[error("{address} needs a certificate for TLS, and none is configured")]
    NoCertificate {
        /// The address as configured.
        address: String,
    },
    /// A listener redirects to https, and no listener uses TLS.
    #[error("{address} redirects to https, but no listener uses TLS")]
    NowhereToSend {
        /// The address as configured.
        address: String,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log {path}")]
    AccessLog {
        /// Path of the access log.
        path: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The folder of the answer cache cannot be used.
    #[error(transparent)]
    Cache(#[from] DiskError),
    /// The rules cannot be used.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// A configured header value contains invalid characters.
    #[error("`{value}` cannot be a Strict-Transport-Security value")]
    Hsts {
        /// The value as configured.
        value: String,
        /// The error.
        #[source]
        cause: InvalidHeaderValue,
    },
    /// A configured header value contains invalid characters.
    #[error("`{value}` cannot be a Cache-Control value")]
    CacheControl {
        /// The value as configured.
        value: String,
        /// The error.
        #[source]
        cause: InvalidHeaderValue,
    },
}

/// Limits of single requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_body: u64,
    pub(crate) max_uri: usize,
    pub(crate) max_headers: usize,
    pub(crate) max_head: u64,
    pub(crate) pace: PaceLimits,
}

/// State shared by all connections.
pub(crate) struct Shared<A> {
    pub(crate) switch: Switch<A>,
    pub(crate) limits: Limits,
    pub(crate) request_buffering: RequestBuffering,
    pub(crate) patience: Patience,
    pub(crate) handshake_timeout: Duration,
    pub(crate) tls: Option<Certificates>,
    /// Port to which redirecting listeners send clients.
    pub(crate) https_port: u16,
    pub(crate) hsts: Option<HeaderValue>,
    /// Requests per client and rule, at times after `started`.
    pub(crate) rates: RateBuckets,
    pub(crate) started: Instant,
    pub(crate) trusted: Vec<Cidr>,
    pub(crate) trusted_headers: TrustedHeaders,
    pub(crate) route_by_forwarded_host: bool,
    pub(crate) proxy_protocol: bool,
    pub(crate) ids: RequestIds,
    pub(crate) metrics: Arc<FrontMetrics>,
    pub(crate) log: Option<Log>,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) compression: bool,
    /// The answer cache, if it is on.
    pub(crate) cache: Option<Arc<AnswerCache>>,
    pub(crate) server_header: bool,
    pub(crate) request_id_header: bool,
    pub(crate) http1: http1::Builder,
    pub(crate) http2: h2::server::Builder,
    /// Settings of QUIC connections.
    pub(crate) transport: Arc<quinn::TransportConfig>,
    /// `Alt-Svc` by the port of a listener with TLS, if it has HTTP/3 too.
    pub(crate) alt_svc: Alternatives,
    pub(crate) connections: Arc<Connections>,
    /// Buffers of bodies whose receiver is slow.
    pub(crate) spools: Arc<Spools>,
    pub(crate) buffers: Arc<AnswerBuffers>,
    pub(crate) realtime: Option<Arc<dyn Realtime>>,
    /// Open WebSockets of applications.
    pub(crate) websockets: Arc<WebSockets>,
    /// Cancelled when another process has taken over.
    pub(crate) succeeded: CancellationToken,
}

impl<A> Shared<A> {
    /// Returns whether a peer at this address is a trusted proxy.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// Returns `Alt-Svc` for a client that came over TCP to a listener that has HTTP/3 too (RFC 7838).
    pub(crate) fn alternative(
        &self,
        connection: &Connection,
        version: Version,
    ) -> Option<&HeaderValue> {
        let offered = connection.tls && version != Version::HTTP_3;
        let mut known = self.alt_svc.iter().filter(|_| offered);
        known.find(|(port, _)| *port == connection.local.port()).map(|(_, value)| value)
    }

    /// Returns the number of the request's application. The host stated by a trusted proxy counts only if that is
    /// configured.
    pub(crate) fn choose(
        &self,
        current: &Current<A>,
        forwarded: &ForwardedInfo,
        parts: &Parts,
    ) -> Result<usize, Unclaimed> {
        let forwarded = self.route_by_forwarded_host.then_some(forwarded);
        current.release.choose(forwarded, parts)
    }
}

/// A bound front. Nothing is accepted before [`Front::serve`].
pub struct Front<A> {
    shared: Arc<Shared<A>>,
    listeners: Vec<Listener>,
    quic_listeners: Vec<QuicListener>,
    forwarded_connections: Option<mpsc::Receiver<ForwardedConnection>>,
    access_log: Option<AccessLogFile>,
    log_writer: Option<access_log::Writer>,
    patience: Duration,
}

impl<A> std::fmt::Debug for Front<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl<A: Application> Front<A> {
    /// Opens the access log and binds all addresses. Metrics use the recorder installed by now.
    pub async fn bind(options: Options, application: A) -> Result<Self, BindError> {
        Self::bind_with(options, Vec::new(), application).await
    }

    /// Binds like [`Front::bind`], but uses a given socket if it listens on a configured address. Other given sockets
    /// are closed.
    pub async fn bind_with(
        options: Options,
        mut given: Vec<Given>,
        application: A,
    ) -> Result<Self, BindError> {
        if options.listen.is_empty() && !options.forwarded_connections {
            return Err(BindError::NoAddress);
        }
        let release = Release::new(&options)?;
        let mut listeners = Vec::new();
        for listen in &options.listen {
            if listen.tls && options.tls.is_none() {
                return Err(BindError::NoCertificate { address: listen.address.to_string() });
            }
            let refused = |cause| BindError::Listen { address: listen.address.to_string(), cause };
            if let Some(address) = options.any_port_of_http3(listen) {
                Given::add_free_pair(&mut given, address).map_err(refused)?;
            }
            let bound = Listener::bind(listen, &mut given).await.map_err(refused)?;
            listeners.extend(bound);
        }
        let first = listeners.iter().find_map(Listener::https_port);
        let (quic_listeners, alt_svc) = bind_quic(&options, &listeners, &mut given)?;
        let https_port = options.https_port.map(NonZeroU16::get).or(first);
        if first.is_none()
            && let Some(listen) = options.listen.iter().find(|listen| listen.redirect)
        {
            return Err(BindError::NowhereToSend { address: listen.address.to_string() });
        }
        let hsts = options.hsts.as_deref().map(|value| {
            HeaderValue::from_str(value)
                .map_err(|cause| BindError::Hsts { value: value.to_owned(), cause })
        });
        let hsts = hsts.transpose()?;
        let cache = options.cache.as_ref().map(AnswerCache::new).transpose()?.map(Arc::new);
        let (log, log_writer) = match &options.access_log {
            None => (None, None),
            Some(access_log) => {
                let (log, writer) = Log::open(access_log).map_err(|cause| {
                    BindError::AccessLog { path: access_log.target.to_string(), cause }
                })?;
                (Some(log), Some(writer))
            }
        };
        let in_file = options.access_log.as_ref().and_then(|to| to.target.file()).is_some();
        let access_log = log.as_ref().filter(|_| in_file).map(Log::file);
        let metrics = Arc::new(FrontMetrics::register());
        let connections = Connections::new(&options, Arc::clone(&metrics));
        let Buffers { memory, disk, directory, answer_memory, answer_file } =
            options.buffers.clone();
        let spools =
            Arc::new(Spools::new(memory, disk, directory).below(options.descriptor_ceiling));
        let buffers = AnswerBuffers {
            spools: Arc::clone(&spools),
            limits: spool::Limits { memory: answer_memory, file: answer_file },
            stalled: Arc::new(StalledAnswers::new(
                options.max_stalled_per_client,
                metrics.stalled_answers.clone(),
                metrics.stalled_answers_cut.clone(),
            )),
            metrics: Arc::clone(&metrics),
        };
        let shared = Shared {
            switch: Switch::new(release, application),
            limits: Limits {
                max_body: options.max_body,
                max_uri: options.max_uri,
                max_headers: options.max_headers,
                max_head: options.max_head as u64,
                pace: PaceLimits { pause: options.body_timeout, least_rate: options.body_min_rate },
            },
            request_buffering: options.request_buffering,
            patience: Patience {
                header: options.header_timeout,
                keep_alive: options.keep_alive_timeout,
                write: options.write_timeout,
            },
            handshake_timeout: options.handshake_timeout,
            tls: options.tls.clone(),
            https_port: https_port.unwrap_or(443),
            hsts,
            rates: RateBuckets::default(),
            started: Instant::now(),
            trusted: options.trusted_proxies.clone(),
            trusted_headers: options.trusted_headers,
            route_by_forwarded_host: options.route_by_forwarded_host,
            proxy_protocol: options.proxy_protocol,
            ids: RequestIds::new(),
            metrics,
            log,
            tracer: options.tracer.clone(),
            compression: options.compression,
            cache,
            server_header: options.server_header,
            request_id_header: options.request_id_header,
            http1: one::builder(&options),
            http2: two::builder(&options),
            transport: three::transport(&options),
            alt_svc,
            connections,
            spools,
            buffers: Arc::new(buffers),
            realtime: None,
            websockets: WebSockets::new(),
            succeeded: CancellationToken::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            listeners,
            quic_listeners,
            forwarded_connections: None,
            access_log,
            log_writer,
            patience: options.patience,
        })
    }

    /// Returns the switch with which another release takes over, before or while the front serves.
    pub fn switch(&self) -> Switch<A> {
        self.shared.switch.clone()
    }

    /// Sets the handler of realtime requests. Must be called before serving.
    pub fn realtime(&mut self, realtime: Arc<dyn Realtime>) {
        let shared =
            Arc::get_mut(&mut self.shared).expect("the state is not shared before serving");
        shared.realtime = Some(realtime);
    }

    /// Returns the sender through which a hub hands over connections that are no WebSockets. Must be called before
    /// serving.
    pub fn forwarded_connections(&mut self) -> ForwardedConnections {
        let (forwarded_connections, receiver) = ForwardedConnections::new();
        self.forwarded_connections = Some(receiver);
        forwarded_connections
    }

    /// Returns the handle of the access log's file, if it is a file; valid while the front serves.
    pub fn access_log(&self) -> Option<AccessLogFile> {
        self.access_log.clone()
    }

    /// Returns the recent traffic, which is updated while the front serves.
    pub fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.shared.metrics.traffic)
    }

    /// Returns the table of connections, which is updated while the front serves.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.shared.connections)
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<Shared<A>> {
        Arc::clone(&self.shared)
    }

    /// Returns the open WebSockets of applications.
    pub fn websockets(&self) -> Arc<WebSockets> {
        Arc::clone(&self.shared.websockets)
    }

    /// Returns the answer cache, if it is on.
    pub fn cache(&self) -> Option<Arc<AnswerCache>> {
        self.shared.cache.clone()
    }

    /// Duplicates the listening sockets, for a process that takes over.
    pub fn share(&self) -> io::Result<Vec<Given>> {
        let quic = self.quic_listeners.iter().map(QuicListener::share);
        self.listeners.iter().map(Listener::share).chain(quic).collect()
    }

    /// Returns a token to cancel when a new process accepts from these sockets. If it is cancelled before `shutdown`
    /// completes, [`Front::serve`] ends in a way that clients with open connections do not notice.
    pub fn succeeded(&self) -> CancellationToken {
        self.shared.succeeded.clone()
    }

    /// Returns the listening addresses, with port 0 resolved.
    pub fn addresses(&self) -> Vec<Bound> {
        self.listeners.iter().map(Listener::bound).collect()
    }

    /// Serves until `shutdown` completes. Then it stops accepting, closes idle connections and finishes the requests
    /// in progress, including the lines of the access log. After the configured patience it drops what is left.
    /// Dropping the future drops everything at once.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let Self {
            shared,
            listeners,
            quic_listeners,
            forwarded_connections,
            log_writer,
            patience,
            ..
        } = self;
        let (end, drain) = (CancellationToken::new(), CancellationToken::new());
        let mut accepting = JoinSet::new();
        for listener in listeners {
            let front = Arc::clone(&shared);
            accepting.spawn(listener.accept(front, end.clone(), drain.clone()));
        }
        for listener in quic_listeners {
            let front = Arc::clone(&shared);
            accepting.spawn(listener.accept(front, end.clone(), drain.clone()));
        }
        if let Some(forwarded_connections) = forwarded_connections {
            accepting.spawn(listener::receive(
                forwarded_connections,
                Arc::clone(&shared),
                drain.clone(),
            ));
        }
        shutdown.await;
        let deadline = Instant::now() + patience;
        end.cancel();
        let mut all = Box::pin(async { while accepting.join_next().await.is_some() {} });
        // With a successor every response announces the end of the connection. A client that sends another request
        // within half the patience receives this announcement instead of a reset; the other half is for requests
        // still running then.
        let lingers = shared.succeeded.is_cancelled();
        let ended = lingers && timeout(patience / 2, &mut all).await.is_ok();
        drain.cancel();
        let ended = ended || timeout_at(deadline, &mut all).await.is_ok();
        drop(all);
        if !ended {
            tracing::warn!("connections cut: they took longer than the server's patience");
            accepting.shutdown().await;
        }
        if let Some(cache) = &shared.cache {
            cache.close();
        }
        drop(shared);
        if let Some(writer) = log_writer {
            writer.finish(deadline).await;
        }
    }
}

/// How long a client may use HTTP/3 without asking again over TCP: a day, in seconds.
const ALTERNATIVE: u32 = 86_400;

/// `Alt-Svc` by port.
type Alternatives = Vec<(u16, HeaderValue)>;

/// Binds the UDP port of each listener with TLS, if HTTP/3 is on, and returns what answers over TCP say of it.
fn bind_quic(
    options: &Options,
    listeners: &[Listener],
    given: &mut Vec<Given>,
) -> Result<(Vec<QuicListener>, Alternatives), BindError> {
    let (mut bound, mut alternatives) = (Vec::new(), Vec::new());
    if !options.http3 {
        return Ok((bound, alternatives));
    }
    for listener in listeners {
        let Bound::Tcp { address, tls: true } = listener.bound() else { continue };
        let quic = QuicListener::bind(address, given)
            .map_err(|cause| BindError::Listen { address: format!("udp {address}"), cause })?;
        bound.push(quic);
        let port = options.https_port.map_or_else(|| address.port(), NonZeroU16::get);
        let value = HeaderValue::try_from(format!("h3=\":{port}\"; ma={ALTERNATIVE}"));
        alternatives.push((address.port(), value.expect("digits and signs are valid")));
    }
    Ok((bound, alternatives))
}
