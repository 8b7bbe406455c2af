//! All settings of the front, as types. `server::config` fills them; no other module has defaults.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use traces::Tracer;

use crate::cache::CacheOptions;
use crate::forwarded::Cidr;
use crate::read_permission::ReadPermission;
use crate::request_buffering::RequestBuffering;
use crate::rules::RuleOptions;
use crate::tls::Certificates;
use crate::trusted_headers::TrustedHeaders;
use crate::websocket::WebSocketOptions;

/// Settings for listening, routing, limits and logs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses to listen on; at least one, unless `forwarded_connections` is set.
    pub listen: Vec<Listen>,
    /// Accepts sockets handed over by a hub as well ([`crate::Front::forwarded_connections`]).
    pub forwarded_connections: bool,
    /// Certificates of the listeners with `tls`, and answers to certificate authorities' challenges.
    pub tls: Option<Certificates>,
    /// Listeners with TLS also answer HTTP/3, on the UDP port of the same number.
    pub http3: bool,
    /// Port to which listeners with `redirect` send clients; `None` for that of the first listener with TLS.
    pub https_port: Option<NonZeroU16>,
    /// `Strict-Transport-Security` (RFC 6797) of responses over TLS, unless the application sends one.
    pub hsts: Option<String>,
    /// Absolute path of the directory whose files are served: `DOCUMENT_ROOT`. Symbolic links in it are followed, as
    /// nginx does. Any user that may write there therefore decides what is published, as far as `read_permission` may read it.
    pub document_root: PathBuf,
    /// A user that must be able to read a file for it to be sent; `None` requires only the server's own permission.
    pub read_permission: Option<ReadPermission>,
    /// Selects the PHP script for paths without a file.
    pub routing: Routing,
    /// Serves existing files that are not PHP. If off, all requests go to PHP.
    pub static_files: bool,
    /// `Cache-Control` of static files; `None` sends none, and browsers then guess from `Last-Modified`.
    pub cache_control: Option<String>,
    /// Serves `app.js.br`, `app.js.zst` or `app.js.gz` in place of `app.js` to clients that accept them.
    pub precompressed: bool,
    /// Directories whose files PHP may send through the front by `X-Sendfile` or `X-Accel-Redirect`. If empty, both
    /// headers are passed on to the client.
    pub sendfile: Vec<SendfileRoot>,
    /// WebSockets that the application handles.
    pub websockets: WebSocketOptions,
    /// Compresses PHP's responses with zstd, br or gzip for clients that accept them.
    ///
    /// A page that contains both a secret and attacker-controlled text may leak the secret by its compressed length
    /// (BREACH); frameworks mask their CSRF tokens against it. PHP switches compression off for one response with
    /// `Cache-Control: no-transform`.
    pub compression: bool,
    /// The answer cache, if it is on.
    pub cache: Option<CacheOptions>,
    /// Maximum number of open connections, over all listeners. Further clients wait in the kernel's queue until one
    /// closes.
    ///
    /// Connections that wait for their client are closed while others wait in the queue, the longest idle first.
    pub max_connections: usize,
    /// Maximum number of connections of one client address (an IPv6 /64 is one) while places are scarce; trusted
    /// proxies and unix sockets are exempt. `None` means half of `max_connections`.
    pub connections_per_client: Option<usize>,
    /// Descriptors from this number on are not used for clients' connections and files; `None` for no limit.
    pub descriptor_ceiling: Option<RawFd>,
    /// Maximum size of a request body in bytes; larger ones get 413.
    pub max_body: u64,
    /// Maximum size of a request head in bytes (at least 8192); larger ones get 431.
    pub max_head: usize,
    /// Maximum number of header fields in a request; more get 431. 100 is the most efficient value.
    pub max_headers: usize,
    /// Maximum length of a request target in bytes; longer ones get 414.
    pub max_uri: usize,
    /// How long a client may take for a request head, counted from its first byte (and from the start of a
    /// connection).
    pub header_timeout: Duration,
    /// How long a connection may stay open between two requests.
    pub keep_alive_timeout: Duration,
    /// How long a client may pause within a request body; longer pauses get 408.
    pub body_timeout: Duration,
    /// Minimum rate of a request body in bytes per second, averaged over twice the `body_timeout`; a lower one gets
    /// 408. `None` for no minimum.
    pub body_min_rate: Option<NonZeroU64>,
    /// Selects the request bodies that are received before PHP gets their request.
    pub request_buffering: RequestBuffering,
    /// How long a client may read nothing of a response before its connection is closed. This keeps a client that
    /// stopped reading from blocking a worker forever.
    pub write_timeout: Duration,
    /// Limits of buffers for bodies whose receiver is slow.
    pub buffers: Buffers,
    /// Maximum number of responses of one client that may block workers while the client reads nothing; beyond it the
    /// longest-stalled one is aborted.
    pub max_stalled_per_client: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// Maximum number of concurrent requests on one HTTP/2 or HTTP/3 connection.
    pub max_concurrent_streams: u32,
    /// Rules for requests, of all applications.
    pub rules: RuleOptions,
    /// Peers whose `trusted_headers` are used. A peer on a unix socket is always trusted, because only a proxy on
    /// this machine can connect there.
    pub trusted_proxies: Vec<Cidr>,
    /// The header fields that are used from these peers.
    pub trusted_headers: TrustedHeaders,
    /// Selects the application by the host that these peers forward, in place of the request's own.
    pub route_by_forwarded_host: bool,
    /// Listeners require a PROXY protocol header (version 1 or 2) at the start of each connection. Only for listeners
    /// that nothing but the balancer can reach.
    pub proxy_protocol: bool,
    /// Sends `X-Request-Id` with each response.
    pub request_id_header: bool,
    /// Sends `Server: Hearth` with each response for which the application sets no `Server` field.
    pub server_header: bool,
    /// Starts a span for each request, if tracing is on.
    pub tracer: Option<Tracer>,
    /// The access log.
    pub access_log: Option<AccessLog>,
    /// How long requests in progress may take after shutdown starts; then they are aborted.
    pub patience: Duration,
}

/// Limits of buffered bodies in bytes, while one side is slower than the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Memory of all bodies together.
    pub memory: u64,
    /// Temporary files of all bodies together.
    pub disk: u64,
    /// Directory of temporary files.
    pub directory: PathBuf,
    /// Memory of one response. With zero, responses are read from PHP only as fast as their clients read.
    pub answer_memory: u64,
    /// Temporary file of one response. With zero there is none.
    pub answer_file: u64,
}

/// One listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: Address,
    /// The listener uses TLS.
    pub tls: bool,
    /// Redirects every request to https, unless a trusted proxy states that the client used TLS. Requires another
    /// listener with `tls`.
    pub redirect: bool,
}

impl Listen {
    /// Returns a listener without TLS that answers all requests.
    pub fn plain(address: Address) -> Self {
        Self { address, tls: false, redirect: false }
    }

    /// Returns a listener with TLS that answers all requests.
    pub fn tls(address: Address) -> Self {
        Self { address, tls: true, redirect: false }
    }
}

/// A listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`, e.g. `127.0.0.1:8080`, `[::]:443`, `localhost:0`. A name with several addresses binds them all.
    Tcp(String),
    /// Path of a unix socket. A file on which no process listens any more is replaced.
    Unix(PathBuf),
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File of the certificate, followed by its intermediates.
    pub certificate: PathBuf,
    /// File of the key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Selects the script for paths without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// As nginx's `try_files $uri $uri/ /index.php`: an existing `.php` file runs itself, a directory its
    /// `index.php`, and everything else goes to the front controller.
    Files {
        /// URL path of the front controller, e.g. `/index.php`; `None` answers missing paths with 404.
        front_controller: Option<String>,
    },
    /// One script, a worker script, answers everything that is not a static file.
    Script {
        /// Absolute path of the script.
        filename: PathBuf,
        /// `SCRIPT_NAME`, e.g. `/index.php`.
        name: String,
    },
}

/// A directory whose files PHP may name in `X-Sendfile` (absolute path) or `X-Accel-Redirect` (URL path under
/// `prefix`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendfileRoot {
    /// URL prefix for `X-Accel-Redirect`, e.g. `/protected/`.
    pub prefix: String,
    /// Absolute path. Symbolic links must not lead out of it.
    pub directory: PathBuf,
}

/// A log of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Format of a line.
    pub format: AccessLogFormat,
    /// Target of the lines.
    pub target: AccessLogTarget,
}

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object with OpenTelemetry's field names.
    Json,
    /// The Common Log Format.
    Common,
    /// The Combined Log Format: Common, then referrer and user agent.
    Combined,
    /// Status, method, target and duration: for a developer's terminal.
    Short {
        /// With ANSI colours by the class of the status.
        coloured: bool,
    },
}

/// The target of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appends to this file.
    File(PathBuf),
}

impl AccessLogTarget {
    /// Returns the path, if the target is a file.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stdout | Self::Stderr => None,
        }
    }
}

impl fmt::Display for AccessLogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("on standard output"),
            Self::Stderr => f.write_str("on standard error"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Options {
    /// Returns the defaults for an application whose public files are in `document_root`.
    pub fn new(document_root: impl Into<PathBuf>) -> Self {
        Self {
            listen: vec![Listen::plain(Address::Tcp("127.0.0.1:8080".to_owned()))],
            forwarded_connections: false,
            tls: None,
            http3: false,
            https_port: None,
            hsts: None,
            document_root: document_root.into(),
            read_permission: None,
            routing: Routing::Files { front_controller: Some("/index.php".to_owned()) },
            static_files: true,
            cache_control: None,
            precompressed: true,
            sendfile: Vec::new(),
            websockets: WebSocketOptions::default(),
            compression: true,
            cache: None,
            max_connections: 10_000,
            connections_per_client: None,
            descriptor_ceiling: None,
            max_body: 128 << 20,
            max_head: 64 << 10,
            max_headers: 100,
            max_uri: 16 << 10,
            header_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            body_min_rate: NonZeroU64::new(240),
            request_buffering: RequestBuffering::All,
            write_timeout: Duration::from_mins(1),
            buffers: Buffers {
                memory: 64 << 20,
                disk: 4 << 30,
                directory: std::env::temp_dir(),
                answer_memory: 1 << 20,
                answer_file: 1 << 30,
            },
            max_stalled_per_client: 1,
            handshake_timeout: Duration::from_secs(10),
            max_concurrent_streams: 128,
            rules: RuleOptions::default(),
            trusted_proxies: Vec::new(),
            trusted_headers: TrustedHeaders::default(),
            route_by_forwarded_host: false,
            proxy_protocol: false,
            request_id_header: true,
            server_header: true,
            tracer: None,
            access_log: None,
            patience: Duration::from_secs(30),
        }
    }

    /// Returns the address of a listener of HTTP/3 whose port the system chooses.
    pub(crate) fn any_port_of_http3(&self, listen: &Listen) -> Option<SocketAddr> {
        let Address::Tcp(address) = &listen.address else { return None };
        let any = address.parse().ok().filter(|address: &SocketAddr| address.port() == 0);
        any.filter(|_| self.http3 && listen.tls)
    }
}
