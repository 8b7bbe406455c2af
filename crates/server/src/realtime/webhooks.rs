//! Webhooks on their way: to a URL, over the egress engine, or straight into the application's own PHP workers.
//!
//! Invariants
//! - A delivery ends in time: whoever does not answer within [`PATIENCE`] has not taken it.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use channels::webhook::{
    self, Carrier, Delivery, Endpoint, Endpoints, Intake, Outcome, Queue, Spool, Topic,
};
use channels::{App, Apps, hub};
use egress::{Call, Engine, Key, Limits, Scheme};
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use pool::{Pool, RequestContext};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{NamedApp, Settings};
use crate::failure::Failure;

/// How long the application may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// What begins a target that is a path of the application served here.
const PHP: &str = "php:";

/// Webhooks that are told, until they are ended.
#[derive(Debug)]
pub(super) struct Webhooks {
    /// What happens to channels goes here.
    pub(super) intake: Arc<Intake>,
    carrier: Arc<Post>,
    tasks: JoinSet<webhook::Report>,
    end: CancellationToken,
}

/// The PHP workers, and what a request to them says of itself.
#[derive(Debug)]
pub(crate) struct Php {
    pub(crate) pool: Pool,
    pub(crate) context: RequestContext,
}

impl Webhooks {
    /// None where no application wants any.
    pub(super) fn new(named: &[NamedApp], settings: &Settings) -> Option<Self> {
        let endpoints: HashMap<Arc<str>, Arc<[Endpoint]>> = named
            .iter()
            .filter(|named| !named.webhooks.is_empty())
            .map(|named| (Arc::clone(&named.app.id), endpoints(named)))
            .collect();
        if endpoints.is_empty() {
            return None;
        }
        let woken = Arc::new(Notify::new());
        let wake = Arc::clone(&woken);
        let intake = Arc::new(Intake::new(Arc::new(OfApps(endpoints)), move || wake.notify_one()));
        let options =
            egress::Options { ca: settings.egress.ca.0.clone(), ..egress::Options::default() };
        let carrier = Arc::new(Post { engine: Engine::new(options), php: OnceLock::new(), woken });
        Some(Self { intake, carrier, tasks: JoinSet::new(), end: CancellationToken::new() })
    }

    /// Begins to tell.
    pub(super) fn start(
        &mut self,
        apps: Arc<dyn Apps>,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let (spool, kept) = match folder(settings) {
            None => (None, Vec::new()),
            Some(folder) => {
                let (spool, kept) = Spool::open(&folder).map_err(|error| {
                    Failure::caused(
                        &error,
                        "choose a folder of its own with `realtime.webhook_spool`, or `off`",
                    )
                })?;
                (Some(spool), kept)
            }
        };
        let queue = Queue::new(webhook::Options::default(), kept, hub::now());
        self.tasks.spawn(webhook::run(
            queue,
            spool,
            Arc::clone(&self.intake),
            Arc::clone(&self.carrier.woken),
            apps,
            Arc::<Post>::clone(&self.carrier),
            self.end.clone().cancelled_owned(),
        ));
        Ok(())
    }

    /// From now on the application's own workers can be told.
    pub(super) fn php(&self, php: Php) {
        self.carrier.php.set(php).expect("a server has one pool");
    }

    /// Tells what is left, as long as the engine's patience lasts.
    pub(super) async fn end(mut self) {
        self.end.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok(report) = ended {
                tracing::info!(delivered = report.delivered, "webhooks ended");
            }
        }
        self.carrier.engine.close().await;
    }
}

/// Where webhooks are kept for the next start.
fn folder(settings: &Settings) -> Option<PathBuf> {
    match &settings.realtime.webhook_spool.0 {
        Some(named) => named.clone(),
        None => settings.server.run_dir.0.as_ref().map(|folder| folder.join("webhooks")),
    }
}

fn endpoints(named: &NamedApp) -> Arc<[Endpoint]> {
    let mut topics: Vec<Topic> =
        named.webhook_events.iter().filter_map(|event| Topic::of(event.0)).collect();
    topics.dedup();
    let endpoint = |target: String| Endpoint {
        target: target.into(),
        topics: topics.clone(),
        channels: Vec::new(),
    };
    named.webhooks.iter().map(|target| endpoint(target.to_string())).collect()
}

/// The endpoints of applications that are all known.
#[derive(Debug)]
struct OfApps(HashMap<Arc<str>, Arc<[Endpoint]>>);

impl Endpoints for OfApps {
    fn of(&self, app: &App) -> Arc<[Endpoint]> {
        self.0.get(&app.id).cloned().unwrap_or_default()
    }
}

struct Post {
    engine: Engine,
    php: OnceLock<Php>,
    woken: Arc<Notify>,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").finish_non_exhaustive()
    }
}

impl Carrier for Post {
    fn carry(&self, delivery: Delivery) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        let target = Arc::clone(&delivery.target);
        let attempt: Pin<Box<dyn Future<Output = Result<u16, String>> + Send>> =
            match target.strip_prefix(PHP) {
                Some(path) => {
                    let php = self.php.get().map(|php| (php.pool.clone(), php.context.clone()));
                    Box::pin(to_php(php, path.to_owned(), delivery))
                }
                None => Box::pin(to_url(self.engine.clone(), delivery)),
            };
        Box::pin(async move {
            match tokio::time::timeout(PATIENCE, attempt).await {
                Ok(Ok(200..300)) => Outcome::Taken,
                Ok(Ok(status)) => {
                    tracing::warn!(%target, status, "webhook refused");
                    Outcome::Failed
                }
                Ok(Err(error)) => {
                    tracing::warn!(%target, error, "webhook not delivered");
                    Outcome::Failed
                }
                Err(_) => {
                    tracing::warn!(%target, "webhook not answered in time");
                    Outcome::Failed
                }
            }
        })
    }
}

fn request<B>(uri: Uri, delivery: &Delivery, body: B) -> Result<Request<B>, String> {
    let field = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| "a key that is fit for no field".to_owned())
    };
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let fields = request.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(USER_AGENT, HeaderValue::from_static("hearth (webhook)"));
    fields.insert("x-pusher-key", field(&delivery.app.key)?);
    fields.insert("x-pusher-signature", field(&delivery.signature)?);
    Ok(request)
}

fn body(delivery: &Delivery) -> Full<Bytes> {
    Full::new(Bytes::copy_from_slice(delivery.body.as_bytes()))
}

async fn to_url(engine: Engine, delivery: Delivery) -> Result<u16, String> {
    let uri: Uri = delivery.target.parse().map_err(|_| "it is no URL".to_owned())?;
    let scheme = uri.scheme_str().and_then(Scheme::named).ok_or("it is no URL")?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or_else(|| scheme.default_port());
    let key = Key::plain(rustix::process::geteuid().as_raw(), scheme, host.as_str(), port);
    let body = body(&delivery).map_err(|never| match never {}).boxed_unsync();
    let call = Call {
        key,
        request: request(uri, &delivery, body)?,
        limits: Limits { connect: CONNECT, queue: PATIENCE },
    };
    let answer = engine.call(call, |_| {}).await.map_err(|error| error.to_string())?;
    Ok(answer.response.status().as_u16())
}

async fn to_php(
    php: Option<(Pool, RequestContext)>,
    path: String,
    delivery: Delivery,
) -> Result<u16, String> {
    let (pool, context) = php.ok_or("no PHP runs here")?;
    let path: PathAndQuery = path.parse().map_err(|_| "it is no path".to_owned())?;
    let mut request = request(path.into(), &delivery, body(&delivery))?;
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    request.extensions_mut().insert(context);
    let response = pool.dispatch(request).await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    // To its end, so that PHP does not see a client that went away.
    let mut body = response.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    Ok(status)
}
