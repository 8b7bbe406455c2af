//! The information about a request that a front passes to the pool beyond `http::Request`: script, connection, id.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use traces::Carried;

/// The context of a request, set in its extensions by the front; [`crate::Pool::dispatch`] builds `$_SERVER` from it
/// and the request.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The script that answers.
    pub script: Script,
    /// Address of the client, according to trusted proxies.
    pub remote: SocketAddr,
    /// Local address of the connection.
    pub local: SocketAddr,
    /// Scheme that the client used, according to trusted proxies.
    pub scheme: Scheme,
    /// `SERVER_NAME`: the requested host, without a port.
    pub server_name: Arc<str>,
    /// `SERVER_PORT`, according to trusted proxies.
    pub server_port: u16,
    /// `REMOTE_USER`, if the front itself has authenticated the client.
    pub remote_user: Option<Arc<str>>,
    /// The id in log lines and `HEARTH_REQUEST_ID`.
    pub id: RequestId,
    /// Receives the application's 1xx responses; `None` if this client cannot accept them.
    pub hints: Option<HintSender>,
    /// Learns how the response ends.
    pub observer: Option<Arc<dyn ResponseObserver>>,
    /// Deadline of the response. The worker is killed at this time or at [`crate::Options::request_timeout`],
    /// whichever comes first.
    pub deadline: Option<Instant>,
    /// The parent span of PHP's work: `HTTP_TRACEPARENT`, in place of the client's.
    pub trace: Option<Carried>,
    /// Additional variables of `$_SERVER` set by the front.
    pub variables: Vec<(&'static str, Bytes)>,
}

/// Marks, in its extensions, a request whose body has arrived completely: reading it never waits for the client. A
/// small one is written to a worker together with its head.
#[derive(Clone, Copy, Debug)]
pub struct CompleteBody;

/// The script that answers a request, and the parts of its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Absolute path: `SCRIPT_FILENAME`.
    pub filename: Arc<Path>,
    /// Path of the script in the URL: `SCRIPT_NAME`, e.g. `/index.php`.
    pub name: Arc<str>,
    /// Rest of the URL after the script's name, decoded: `PATH_INFO`. Empty without a rest.
    pub path_info: Arc<str>,
    /// Absolute path: `DOCUMENT_ROOT`.
    pub document_root: Arc<Path>,
}

/// The URL scheme: `REQUEST_SCHEME`, and `HTTPS=on` for the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS, here or at a trusted proxy.
    Https,
}

/// Identifies one request in every log line about it: at most 64 bytes of visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub Arc<str>);

/// Learns of a response what its head and body do not say. Called on a task of the pool or of the caller; it must not
/// block.
pub trait ResponseObserver: fmt::Debug + Send + Sync {
    /// The final response's head has arrived, also after the caller has left. Not in models of PHP's own programs.
    fn head(&self, status: StatusCode, headers: &HeaderMap);

    /// A fatal error has ended the response early. Called before the end of its body is returned.
    fn failed(&self);
}

/// Receives the application's 1xx responses before the final one. It is called on the task that polls the dispatch,
/// and must not block. Hints that cannot be sent any more are dropped.
#[derive(Clone)]
pub struct HintSender(pub Arc<HintFn>);

/// A function that takes a 1xx status and its header fields.
pub type HintFn = dyn Fn(StatusCode, &HeaderMap) + Send + Sync;

impl fmt::Debug for HintSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HintSender")
    }
}
