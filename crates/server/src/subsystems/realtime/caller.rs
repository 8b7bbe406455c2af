//! Calls that realtime makes to an application: to a URL, over the egress engine, or straight into its own PHP workers.
//!
//! Invariants
//! - The caller bounds the memory of a reply.
//! - PHP's reply is read to its end, so that it does not see a client that disconnects.

use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use egress::{Call, Engine, Key, Limits, Scheme};
use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use pool::{Pool, RequestContext};

use crate::config::Settings;
use crate::subsystems::generation_guard::GenerationGuard;

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// The prefix of a target that is a path of the application served here.
const PHP: &str = "php:";

/// The PHP workers, and the context of requests to them.
#[derive(Clone, Debug)]
pub(crate) struct Php {
    pub(crate) pool: Pool,
    pub(crate) context: RequestContext,
    /// Keeps the pool taking requests.
    pub(crate) _guard: GenerationGuard,
}

/// The reply of the application.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// The client of the application.
pub(super) struct Caller {
    engine: Engine,
    php: RwLock<Option<Arc<Php>>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl Caller {
    pub(super) fn new(settings: &Settings) -> Self {
        let options =
            egress::Options { ca: settings.egress.ca.0.clone(), ..egress::Options::default() };
        Self { engine: Engine::new(options), php: RwLock::default() }
    }

    /// Sets the application's own workers. Calls that have begun go to the previous ones.
    pub(super) fn php(&self, php: Option<Php>) {
        let old =
            std::mem::replace(&mut *self.php.write().expect("no holder panics"), php.map(Arc::new));
        // Not under the lock: it may be the last.
        drop(old);
    }

    /// Calls a URL, or a path after `php:`. The request's own URI is ignored. A reply whose body is longer than `limit` bytes is an error;
    /// without a limit the body is dropped.
    ///
    /// # Cancel safety
    /// A dropped call is aborted; PHP finishes what it has begun.
    pub(super) async fn call(
        &self,
        target: &str,
        patience: Duration,
        request: Request<Bytes>,
        limit: Option<usize>,
    ) -> Result<Reply, String> {
        let (parts, body) = request.into_parts();
        match target.strip_prefix(PHP) {
            Some(path) => self.to_php(path, parts, body, limit).await,
            None => self.to_url(target, patience, parts, body, limit).await,
        }
    }

    /// Ends all connections.
    pub(super) async fn close(&self) {
        self.engine.close().await;
    }

    async fn to_url(
        &self,
        target: &str,
        patience: Duration,
        mut parts: Parts,
        body: Bytes,
        limit: Option<usize>,
    ) -> Result<Reply, String> {
        let uri: Uri = target.parse().map_err(|_unfit| "it is no URL".to_owned())?;
        let scheme = uri.scheme_str().and_then(Scheme::named).ok_or("it is no URL")?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or_else(|| scheme.default_port());
        let key = Key::plain(rustix::process::geteuid().as_raw(), scheme, host.as_str(), port);
        parts.uri = uri;
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let call = Call {
            key,
            request: Request::from_parts(parts, body),
            limits: Limits { connect: CONNECT.min(patience), queue: patience },
            scope: None,
        };
        let answer = self.engine.call(call, |_| {}).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.response.into_parts();
        let body = match limit {
            Some(limit) => gather(body, Some(limit)).await?,
            // However long it would be.
            None => Bytes::new(),
        };
        Ok(Reply { status: head.status.as_u16(), body })
    }

    async fn to_php(
        &self,
        path: &str,
        mut parts: Parts,
        body: Bytes,
        limit: Option<usize>,
    ) -> Result<Reply, String> {
        let php = self.php.read().expect("no holder panics").clone();
        let php = php.ok_or("PHP does not run")?;
        let Php { pool, context, _guard } = &*php;
        let path: PathAndQuery = path.parse().map_err(|_unfit| "it is no path".to_owned())?;
        parts.uri = path.into();
        parts.headers.insert(HOST, HeaderValue::from_static("localhost"));
        parts.extensions.insert(context.clone());
        let request = Request::from_parts(parts, Full::new(body));
        let response = pool.dispatch(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        Ok(Reply { status: head.status.as_u16(), body: gather(body, limit).await? })
    }
}

/// Reads a body to its end.
async fn gather<B>(mut body: B, limit: Option<usize>) -> Result<Bytes, String>
where
    B: http_body_util::BodyExt<Data = Bytes> + Unpin,
    B::Error: fmt::Display,
{
    let mut whole = BytesMut::new();
    let mut too_long = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        let (Ok(data), Some(limit)) = (frame.into_data(), limit) else { continue };
        too_long |= whole.len() + data.len() > limit;
        if !too_long {
            whole.extend_from_slice(&data);
        }
    }
    match limit {
        Some(limit) if too_long => Err(format!("the answer is longer than {limit} bytes")),
        _ => Ok(whole.freeze()),
    }
}
