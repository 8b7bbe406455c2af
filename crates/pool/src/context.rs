//! What a front tells the pool about a request beyond `http::Request`: which script, whose connection, which id.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use traces::Carried;

/// Put into a request's extensions by the front; [`crate::Pool::dispatch`] builds `$_SERVER` from it and the request.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The script that answers.
    pub script: Script,
    /// The client, after trusted proxies were believed.
    pub remote: SocketAddr,
    /// Our end of the connection.
    pub local: SocketAddr,
    /// How the client reached us, after trusted proxies were believed.
    pub scheme: Scheme,
    /// `SERVER_NAME`: the host the client asked for, without a port.
    pub server_name: Arc<str>,
    /// `SERVER_PORT`, after trusted proxies were believed.
    pub server_port: u16,
    /// `REMOTE_USER`, when the front itself has authenticated the client.
    pub remote_user: Option<Arc<str>>,
    /// The id in log lines and `HEARTH_REQUEST_ID`.
    pub id: RequestId,
    /// Where 1xx answers of the application go; `None` when this client cannot take them.
    pub hints: Option<HintSender>,
    /// When the answer has to be complete; then its worker is killed, as at [`crate::Options::request_timeout`], whichever is first.
    pub deadline: Option<Instant>,
    /// The span that PHP's work is part of: `HTTP_TRACEPARENT`, in place of what the client sent.
    pub trace: Option<Carried>,
    /// Further variables of `$_SERVER`, of the front's own.
    pub variables: Vec<(&'static str, Bytes)>,
}

/// The script that answers a request, and how its URL splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Absolute path: `SCRIPT_FILENAME`.
    pub filename: Arc<Path>,
    /// Its path in the URL space: `SCRIPT_NAME`, e.g. `/index.php`.
    pub name: Arc<str>,
    /// What follows the script's name in the URL, decoded: `PATH_INFO`. Empty when nothing does.
    pub path_info: Arc<str>,
    /// Absolute path: `DOCUMENT_ROOT`.
    pub document_root: Arc<Path>,
}

/// `REQUEST_SCHEME`, and `HTTPS=on` for the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS, here or at a trusted proxy.
    Https,
}

/// Names one request in every log line about it: at most 64 bytes of visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub Arc<str>);

/// Takes the application's 1xx answers while the final one is still to come. Called on the task that polls the dispatch;
/// it must not block. What cannot be sent any more is dropped: a hint is only a hint.
#[derive(Clone)]
pub struct HintSender(pub Arc<HintFn>);

/// What takes a 1xx status and its header fields.
pub type HintFn = dyn Fn(StatusCode, &HeaderMap) + Send + Sync;

impl std::fmt::Debug for HintSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HintSender")
    }
}
