//! The HTTP front: everything between a client's socket and the application (`pool::Pool`).
//!
//! ```text
//! listener -> (PROXY protocol) -> (TLS) -> http1 | http2 -> respond -> route -> files
//! UDP socket -> QUIC -> http3 ------------------------------^
//!                                                                            -> application -> compress
//!                                                                            -> realtime: its HTTP API; WebSockets move to the hub
//!                                                            -> websocket: the application's own, whose events go to it
//! ```
//!
//! Invariants
//! - Every complete request gets exactly one response.
//! - No client can hold a connection, a worker or memory without bound by what it sends or does not send.
//! - PHP source is never sent, and no path leaves the document root.
//! - The front knows no processes: any implementation of [`Application`] can answer.

mod access_log;
mod answer_body;
mod answers;
mod application;
mod buffered_body;
mod cache;
mod claims;
mod compress;
mod conditional;
mod connections;
mod date;
mod early_hints;
mod encoding;
mod eviction;
mod files;
mod folded;
mod forwarded;
mod front;
mod http1;
mod http2;
mod http3;
mod listener;
mod metrics;
mod multiplexed;
mod options;
mod pace;
mod phase;
mod pieces;
mod protocol;
mod proxy_protocol;
mod read_permission;
mod realtime;
mod release;
mod request_body;
mod request_buffering;
mod request_head;
mod request_id;
mod respond;
mod route;
mod rules;
mod sendfile;
mod site;
mod spool;
mod stalled;
mod timed_io;
mod tls;
mod trace;
mod traffic;
mod trusted_headers;
mod websocket;

pub use access_log::AccessLogFile;
pub use application::Application;
pub use cache::{AnswerCache, CacheOptions, CacheReport, DiskError, DiskOptions, DiskReport};
pub use claims::{Claim, HostClaim, NoClaim, NoHost, NoPath, PathClaim};
pub use connections::{ClientReport, Connections};
pub use forwarded::{Cidr, InvalidCidr};
pub use front::{BindError, Front};
pub use http3::GivenQuic;
pub use listener::{Bound, Given};
pub use metrics::ClientLimit;
pub use options::{
    AccessLog, AccessLogFormat, AccessLogTarget, Address, Buffers, Listen, Options, Routing,
    SendfileRoot, TlsFiles,
};
pub use read_permission::ReadPermission;
pub use realtime::{Answering, CallBody, ForwardedConnections, Realtime};
pub use release::{Hosted, Release, Switch};
pub use request_body::{BodyError, RequestBody};
pub use request_buffering::RequestBuffering;
pub use rules::{
    FieldRule, NoFieldRule, NoRateLimit, NoRedirect, PasswordRule, RateLimit, Redirect, RuleError,
    RuleOptions,
};
pub use tls::{Certificate, Certificates, ClientAuthorities, Place, TlsError};
pub use traffic::{Report, STEP, STEPS, STEPS_A_MINUTE, Traffic};
pub use trusted_headers::{NotTrustable, TrustedHeader, TrustedHeaders, TwoFamilies};
pub use websocket::{
    InvalidOrigin, InvalidRoute, NotSent, OriginRule, SocketReport, WebSocketLimits,
    WebSocketOptions, WebSocketRoute, WebSockets,
};

/// Entries for fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
