//! Everything the front can be told, as types. `server::config` fills it; no default hides elsewhere.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU64};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use traces::Tracer;

use crate::forwarded::Cidr;
use crate::reader::Reader;
use crate::request_buffering::RequestBuffering;
use crate::tls::Certificates;
use crate::trusted_headers::TrustedHeaders;

/// How the front listens, routes, limits and logs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; at least one, unless there are `visitors`.
    pub listen: Vec<Listen>,
    /// Sockets come from elsewhere, too ([`crate::Front::visitors`]).
    pub visitors: bool,
    /// Certificates for the listeners with `tls`, and answers to the authorities that issue them.
    pub tls: Option<Certificates>,
    /// The port that listeners with `redirect` send clients to. None: that of the first listener with TLS.
    pub https_port: Option<NonZeroU16>,
    /// `Strict-Transport-Security` (RFC 6797) of answers to requests that came over TLS, where the application sends none.
    pub hsts: Option<String>,
    /// Absolute path of the directory whose files are served: `DOCUMENT_ROOT`. Symbolic links in it are followed wherever
    /// they lead (as nginx does): whoever may write there decides what is published, as far as the `reader` may read it.
    pub document_root: PathBuf,
    /// A user who has to be able to read what is sent; none: whatever our own may.
    pub reader: Option<Reader>,
    /// Which PHP script answers what no file answers.
    pub routing: Routing,
    /// Serve existing files that are not PHP. Off: everything goes to PHP.
    pub static_files: bool,
    /// `Cache-Control` of static files; `None` sends none, and browsers then guess from `Last-Modified`.
    pub cache_control: Option<String>,
    /// Serve `app.js.br`, `app.js.zst` or `app.js.gz` in place of `app.js` to clients that take them.
    pub precompressed: bool,
    /// Directories whose files PHP may have the front send by `X-Sendfile` or `X-Accel-Redirect`. Empty: both headers are
    /// passed on to the client untouched.
    pub sendfile: Vec<SendfileRoot>,
    /// Compress PHP's answers with zstd, br or gzip for clients that take them. A page that mixes a secret with what an
    /// attacker can put into the same page may leak the secret by its compressed length (BREACH); frameworks mask their
    /// CSRF tokens against it. PHP switches it off for one answer with `Cache-Control: no-transform`.
    pub compression: bool,
    /// Open connections, over all listeners. Further clients wait in the kernel's queue until one closes.
    ///
    /// Connections that wait for their client are closed while others wait in the queue, the longest idle first.
    pub max_connections: usize,
    /// Connections of one client address (an IPv6 /64 is one) while places are short; trusted proxies and unix sockets have no such
    /// bound. `None`: half of `max_connections`.
    pub connections_per_client: Option<usize>,
    /// Descriptors from this number on are not for clients' connections and files. `None`: all are.
    pub descriptor_ceiling: Option<RawFd>,
    /// Largest request body in bytes; larger ones get 413.
    pub max_body: u64,
    /// Largest request head in bytes (at least 8192); larger ones get 431.
    pub max_head: usize,
    /// Most header fields in a request; more get 431. 100 is what costs least.
    pub max_headers: usize,
    /// Longest request target in bytes; longer ones get 414.
    pub max_uri: usize,
    /// How long a client may take for a request head, counted from its first byte (and from the start of a connection).
    pub header_timeout: Duration,
    /// How long a connection may stay open between two requests.
    pub keep_alive_timeout: Duration,
    /// How long a client may pause within a request body; longer pauses get 408.
    pub body_timeout: Duration,
    /// Bytes per second that a client has to send of a request body, averaged over twice the `body_timeout`; less gets 408. `None`: any.
    pub body_min_rate: Option<NonZeroU64>,
    /// Which request bodies are received before PHP gets their request.
    pub request_buffering: RequestBuffering,
    /// How long a client may take nothing of an answer before its connection is cut: what keeps a client that stopped reading
    /// from holding a worker for ever.
    pub write_timeout: Duration,
    /// How bodies wait for a slow side.
    pub buffers: Buffers,
    /// Answers of one client that may hold workers while the client reads nothing; of more the longest-stalled is cut.
    pub max_stalled_per_client: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// Requests in flight on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// Peers whose `trusted_headers` are believed. A peer on a unix socket is always trusted: only a proxy on this machine can
    /// be one.
    pub trusted_proxies: Vec<Cidr>,
    /// The header fields in which these peers are believed.
    pub trusted_headers: TrustedHeaders,
    /// Choose among applications by the host that these peers forward, in place of the one of the request itself.
    pub route_by_forwarded_host: bool,
    /// Listeners expect a PROXY protocol header (version 1 or 2) at the start of each connection, and refuse connections
    /// without. Only for listeners that nobody but the balancer can reach.
    pub proxy_protocol: bool,
    /// Send `X-Request-Id` with each answer.
    pub request_id_header: bool,
    /// Send `Server: Hearth` with each answer that has no `Server` field of the application's.
    pub server_header: bool,
    /// Begins a span for each request, if anybody wants spans.
    pub tracer: Option<Tracer>,
    /// Where a line about each request goes.
    pub access_log: Option<AccessLog>,
    /// How long requests in flight may take once the server shuts down; then they are cut.
    pub patience: Duration,
}

/// Limits of what is kept of bodies while one side is slower than the other, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Memory of all bodies together.
    pub memory: u64,
    /// Temporary files of all bodies together.
    pub disk: u64,
    /// Where temporary files are created.
    pub directory: PathBuf,
    /// Memory of one answer. Zero: answers are read from PHP only as their clients take them.
    pub answer_memory: u64,
    /// Temporary file of one answer. Zero: none.
    pub answer_file: u64,
}

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Where.
    pub address: Address,
    /// Whether to speak TLS there.
    pub tls: bool,
    /// Answer nothing but where the same is over TLS, unless a trusted proxy says that the client has spoken TLS. Needs another listener with `tls`.
    pub redirect: bool,
}

impl Listen {
    /// Everything is answered there, in the clear.
    pub fn plain(address: Address) -> Self {
        Self { address, tls: false, redirect: false }
    }

    /// Everything is answered there, over TLS.
    pub fn tls(address: Address) -> Self {
        Self { address, tls: true, redirect: false }
    }
}

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`, e.g. `127.0.0.1:8080`, `[::]:443`, `localhost:0`. A name that has several addresses binds them all.
    Tcp(String),
    /// A socket file. One that nobody listens on any more is replaced.
    Unix(PathBuf),
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then its intermediates.
    pub certificate: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Which script answers what no file answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// As nginx's `try_files $uri $uri/ /index.php`: an existing `.php` file answers for itself, a directory by its
    /// `index.php`, everything else goes to the front controller.
    Files {
        /// URL path of the front controller, e.g. `/index.php`; `None`: 404 for what does not exist.
        front_controller: Option<String>,
    },
    /// One script answers everything that is not a static file: a worker script.
    Script {
        /// Absolute path of the script.
        filename: PathBuf,
        /// `SCRIPT_NAME`, e.g. `/index.php`.
        name: String,
    },
}

/// A directory whose files PHP may name in `X-Sendfile` (absolute path) or `X-Accel-Redirect` (URL path under `prefix`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendfileRoot {
    /// URL prefix for `X-Accel-Redirect`, e.g. `/protected/`.
    pub prefix: String,
    /// Absolute path. Symbolic links may not lead out of it.
    pub directory: PathBuf,
}

/// A log of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// How a line looks.
    pub format: AccessLogFormat,
    /// Where lines go.
    pub target: AccessLogTarget,
}

/// How a line of the access log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object with OpenTelemetry's field names.
    Json,
    /// The Common Log Format.
    Common,
    /// Common, then referrer and user agent.
    Combined,
}

/// Where lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appended to this file.
    File(PathBuf),
}

impl AccessLogTarget {
    /// The file, where there is one.
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
    /// The defaults for an application whose public files are in `document_root`.
    pub fn new(document_root: impl Into<PathBuf>) -> Self {
        Self {
            listen: vec![Listen::plain(Address::Tcp("127.0.0.1:8080".to_owned()))],
            visitors: false,
            tls: None,
            https_port: None,
            hsts: None,
            document_root: document_root.into(),
            reader: None,
            routing: Routing::Files { front_controller: Some("/index.php".to_owned()) },
            static_files: true,
            cache_control: None,
            precompressed: true,
            sendfile: Vec::new(),
            compression: true,
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
}
