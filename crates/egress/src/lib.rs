//! Outgoing connections that outlive requests and processes: the engine that owns them, and the broker's listeners through which other
//! processes use it. docs/internals/egress.md is the specification.
//!
//! It knows nothing of PHP or of workers.
//!
//! Invariants
//! - A call is sent at most once, unless no byte of it was written or HTTP says that repeating is safe.
//! - Two calls share a connection only when their whole [`Key`]s are equal.
//! - Bodies are passed on as they arrive, in both directions: no call holds more than a few buffers.

mod call;
mod key;
mod options;
mod stamp;
mod stats;

mod attempt;
mod body;
mod engine;
mod origin;
mod repeat;
mod request;
mod route;
mod scope;
mod upload;

mod http1;
mod http2;

mod connect;
mod deny;
mod dial;
mod dns;
mod eyeballs;
mod proxy;
mod secured;
mod silence;
mod stream;
mod tap;
mod tls;

mod errors;
mod memory;
#[cfg(test)]
mod testing;

mod listener;
mod peer;

/// Entries for fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::listener::fuzzing::{head, options};
}

pub use attempt::Ready;
pub use body::AnswerBody;
pub use call::{Answer, Call, CallBody, CallError, Fate, Interim, Limits, Reason, Timing};
pub use deny::{Network, NotANetwork};
pub use dial::{DialTiming, Dialed};
pub use engine::Engine;
pub use key::{
    Certificate, HttpVersions, IpFamily, Key, Proxy, ProxyKind, ProxyTls, Scheme, TlsVersion, Trust,
};
pub use listener::{HttpListener, ListenerOptions, ListenerReport, ListenerWatch, SocketError};
pub use memory::{recall, remember};
pub use options::Options;
pub use request::SharedFields;
pub use route::{Plain, Route};
pub use scope::Scope;
pub use secured::{Cipher, Secured};
pub use stats::{OriginReport, OriginStats};
pub use tap::{Sight, Tap};
pub use tls::system_authorities;
