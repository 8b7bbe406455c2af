//! Realtime: channels inside `hearth serve`, on the application's own ports, and alone (`hearth channels`). The settings
//! are translated to the engine's options here only.
//!
//! Invariants
//! - In a server nothing of the application's is hidden: only WebSockets under `/app/` and the HTTP API's paths of applications that the
//!   settings name are taken; with a look-up, those of all.
//! - Sockets end after the front has stopped taking new ones and before PHP ends: webhooks about their end are still delivered.

mod apps;
mod caller;
mod console;
mod lookup;
mod mercure;
mod nodes;
mod publisher;
mod report;
mod webhooks;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use channels::adapter;
use channels::api::{self, Call};
use channels::hub::{self, Adopted, AdoptedStream, Handover, Hub, Listen};
use channels::lookup::Lookup;
use channels::webhook::Intake;
use channels::{
    Answered, App, AppRef, Apps, Channels, FixedApps, Found, NoObserver, Observer, Ticket,
    Unavailable, UnixTime,
};
use front_http::{Answering, CallBody};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use rustix::process::{Resource, getrlimit};
use tokio::sync::oneshot;

use crate::config::{NamedApp, Settings};
use crate::failure::Failure;
use crate::system::machine::processors;

pub(crate) use apps::{Broadcasting, Driver, alone, explain, no_php, of_served};
use caller::Caller;
pub(crate) use caller::Php;
use lookup::Lookups;
pub(crate) use lookup::VARIABLE as LOOKUP_VARIABLE;
use nodes::Nodes;
pub(crate) use publisher::{Publisher, VARIABLE};
use webhooks::{OfApps, Webhooks};

/// The id of the application by which development mode tells pages of edits. PHP never publishes to it.
pub(crate) const DEVELOPMENT_APP: &str = "hearth-dev";
/// The descriptors that sockets leave for everything else, if there are enough; else a quarter.
const OTHER_DESCRIPTORS: u64 = 256;
/// The fewest descriptors with which realtime starts.
const FEWEST_DESCRIPTORS: u64 = 128;
/// The number of descriptors below which a warning is logged: the limit was probably not raised.
const FEW_DESCRIPTORS: u64 = 10_000;

/// The channels of this process.
#[derive(Debug)]
pub(crate) struct Realtime {
    channels: Channels,
    hub: Hub,
    /// The applications of the settings.
    fixed: FixedApps,
    /// All applications.
    apps: Arc<dyn Apps>,
    /// The look-ups of further applications.
    lookups: Mutex<Option<Lookups>>,
    /// The cache of look-ups.
    lookup: Option<Arc<Lookup>>,
    caller: Arc<Caller>,
    /// No other program answers on these ports.
    alone: bool,
    deflates: bool,
    body_limit: u64,
    /// The time that the HTTP API waits for an event to be stored.
    history_wait: Duration,
    webhooks: Mutex<Option<Webhooks>>,
    nodes: Mutex<Option<Nodes>>,
    mercure: Option<mercure::Hub>,
    watch: Arc<console::Watch>,
}

/// The hub's own listeners, and the handler of requests that are no WebSocket there.
#[derive(Debug, Default)]
pub(crate) struct Own {
    pub(crate) listen: Vec<Listen>,
    pub(crate) handover: Option<Arc<dyn Handover>>,
}

impl Realtime {
    /// Starts the event loops. With its own listeners it serves channels only.
    pub(crate) async fn start(
        settings: &Settings,
        named: &[NamedApp],
        own: Option<Own>,
    ) -> Result<Arc<Self>, Failure> {
        let fixed = FixedApps::new(named.iter().map(|named| named.app.clone()));
        let caller = Arc::new(Caller::new(settings));
        let endpoints = Arc::new(OfApps::new(named));
        let mut lookups = Lookups::new(settings, &fixed, &caller, &endpoints);
        let lookup = lookups.as_ref().map(|lookups| Arc::clone(&lookups.lookup));
        let apps: Arc<dyn Apps> = match &lookup {
            Some(lookup) => Arc::<Lookup>::clone(lookup),
            None => Arc::new(fixed.clone()),
        };
        let wanted = lookups.is_some() || !endpoints.is_empty();
        let mut webhooks = wanted.then(|| Webhooks::new(endpoints, Arc::clone(&caller)));
        let observer: Arc<dyn Observer> = match &webhooks {
            Some(webhooks) => Arc::<Intake>::clone(&webhooks.intake),
            None => Arc::new(NoObserver),
        };
        let channels = Channels::new(Arc::clone(&apps), observer);
        if let Some(lookups) = &mut lookups {
            lookups.start(&channels);
        }
        if let Some(webhooks) = &mut webhooks {
            webhooks.start(Arc::clone(&apps), settings)?;
        }
        let mercure = mercure::Hub::start(settings, &channels, &fixed)?;
        // Before there are clients that other nodes could miss.
        let mut nodes = Nodes::join(&channels, settings, named).await?;
        if let Some(nodes) = &mut nodes {
            nodes.ready().await;
        }
        if let Some(mercure) = &mercure {
            mercure.ready().await;
        }
        let alone = own.is_some();
        let own = own.unwrap_or_default();
        let options = hub::Options {
            event_loops: event_loops(settings, alone),
            listen: own.listen,
            handover: own.handover,
            sockets: room()?,
            deflate: deflate(settings),
            ..hub::Options::default()
        };
        let hub = Hub::start(options, &channels)
            .map_err(|error| Failure::caused(&error, hint(&error, settings)))?;
        let body_limit = named.iter().map(body_limit).max().unwrap_or_default();
        // Looked-up applications have these limits unless they set others.
        let of_all = lookup.as_ref().map(|_| settings.realtime.apps.adopted("", "", ""));
        let body_limit = body_limit.max(of_all.as_ref().map_or(0, self::body_limit));
        Ok(Arc::new(Self {
            channels,
            hub,
            fixed,
            apps,
            lookups: Mutex::new(lookups),
            lookup,
            caller,
            alone,
            deflates: settings.realtime.deflate.is_some(),
            body_limit,
            history_wait: settings.realtime.history_wait,
            webhooks: Mutex::new(webhooks),
            nodes: Mutex::new(nodes),
            mercure,
            watch: Arc::default(),
        }))
    }

    /// Returns the addresses of the hub's own listeners.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.hub.addresses().iter().flatten().map(|address| format!("http://{address}")).collect()
    }

    /// Returns the state of the cluster, if there is an adapter.
    fn nodes(&self) -> Option<adapter::Report> {
        self.nodes.lock().expect("no holder panics").as_ref().map(Nodes::report)
    }

    /// Returns the publisher for PHP: it publishes to the first application of the settings.
    pub(crate) fn publisher(&self) -> Option<Publisher> {
        let app = self
            .fixed
            .all()
            .iter()
            .find(|app| ![DEVELOPMENT_APP, channels::mercure::APP].contains(&&*app.id))?;
        Some(Publisher::new(Arc::clone(app), self.channels.clone()))
    }

    /// Returns the publisher of development mode, if it is on.
    pub(crate) fn development_publisher(&self) -> Option<Publisher> {
        let app = self.fixed.all().iter().find(|app| *app.id == *DEVELOPMENT_APP)?;
        Some(Publisher::new(Arc::clone(app), self.channels.clone()))
    }

    /// Returns the token that proves to PHP that this server makes a look-up.
    pub(crate) fn lookup_token(&self) -> Option<String> {
        let lookups = self.lookups.lock().expect("no holder panics");
        lookups.as_ref().map(|lookups| lookups.token().to_owned())
    }

    /// Sets the application's own workers as the target of webhooks and look-ups.
    pub(crate) fn php(&self, php: Option<Php>) {
        self.caller.php(php);
    }

    /// Returns all applications that are known now, those of the settings first.
    fn all(&self) -> Vec<Arc<App>> {
        let mut looked_up = self.lookup.as_ref().map(|lookup| lookup.all()).unwrap_or_default();
        looked_up.sort_by(|a, b| a.id.cmp(&b.id));
        self.fixed.all().iter().cloned().chain(looked_up).collect()
    }

    /// The application that a path of the HTTP API is about.
    async fn app_of(&self, path: &str) -> Answered {
        let Some(id) = api::app_id(path) else { return Ok(None) };
        match self.apps.find(AppRef::Id(&id)) {
            Found::App(app) => Ok(Some(app)),
            Found::None => Ok(None),
            Found::Unknown => {
                let (sender, receiver) = oneshot::channel();
                let answer = Box::new(move |answered| {
                    // The call may have been given up.
                    drop(sender.send(answered));
                });
                self.apps.ask(AppRef::Id(&id), answer);
                receiver.await.unwrap_or(Err(Unavailable))
            }
        }
    }

    /// Returns the Mercure hub if the request is for it.
    fn mercure_of(&self, head: &Parts) -> Option<&mercure::Hub> {
        self.mercure.as_ref().filter(|_| mercure::is_path(head.uri.path()))
    }

    /// Returns the answer once the events are stored. A broker that takes longer may still store them.
    async fn stored(&self, ticket: Ticket, answer: api::Answer) -> api::Answer {
        let wait = self.history_wait;
        if wait.is_zero() || tokio::time::timeout(wait, ticket.stored()).await == Ok(true) {
            return answer;
        }
        let body = r#"{"error":"the broker did not confirm the event in time; it may still be delivered"}"#;
        api::Answer { status: 503, body: body.into(), ..answer }
    }

    /// Returns whether an application may have this key or id.
    fn may_be(&self, app: AppRef<'_>) -> bool {
        // With a look-up the path decides: what it knows of today, it may not know of tomorrow.
        self.alone || self.lookup.is_some() || !matches!(self.fixed.find(app), Found::None)
    }

    /// Closes all sockets, spread over as much of `realtime.drain` as there is patience for, and waits for that.
    pub(crate) async fn drain(self: Arc<Self>, settings: &Settings, patience: Duration) {
        let spread = settings.realtime.drain.min(patience);
        self.hub.drain(spread);
        if let Some(mercure) = &self.mercure {
            mercure.drain(spread).await;
        }
        let nodes = self.nodes.lock().expect("no holder panics").take();
        let webhooks = self.webhooks.lock().expect("no holder panics").take();
        let lookups = self.lookups.lock().expect("no holder panics").take();
        let caller = Arc::clone(&self.caller);
        let waiting = tokio::task::spawn_blocking(move || self.hub.wait());
        // Clients have a while to answer the close.
        let limit = patience + hub::Options::default().close_timeout;
        if tokio::time::timeout(limit, waiting).await.is_err() {
            tracing::warn!("sockets were cut: they took longer than `server.shutdown_patience`");
        }
        if let Some(webhooks) = webhooks {
            webhooks.end().await;
        }
        if let Some(nodes) = nodes {
            nodes.end().await;
        }
        // Webhooks and other nodes may ask until their end.
        if let Some(lookups) = lookups {
            lookups.end().await;
        }
        caller.close().await;
    }
}

/// Returns the number of event loops: one per processor when alone; half of them beside PHP, which needs them more.
fn event_loops(settings: &Settings, alone: bool) -> NonZeroUsize {
    settings.realtime.threads.0.unwrap_or_else(|| {
        let processors = processors();
        if alone { processors } else { processors.midpoint(NonZeroUsize::MIN) }
    })
}

/// Returns how many sockets fit into this number of descriptors; `None`: too few to start.
fn sockets(descriptors: u64) -> Option<u64> {
    (descriptors >= FEWEST_DESCRIPTORS)
        .then(|| descriptors - (descriptors / 4).min(OTHER_DESCRIPTORS))
}

/// Returns how many sockets this process has descriptors for.
fn room() -> Result<usize, Failure> {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let Some(sockets) = sockets(descriptors) else {
        return Err(Failure::misused(
            format!(
                "the limit of open files is {descriptors}: too low for realtime, where each client is one"
            ),
            "raise it (`ulimit -n`, `LimitNOFILE=` in systemd), or set `realtime.enabled` to `off`",
        ));
    };
    if descriptors < FEW_DESCRIPTORS {
        tracing::warn!(
            descriptors,
            clients = sockets,
            "the limit of open files is low: further clients are refused with 4100 (ulimit -n, LimitNOFILE=)"
        );
    }
    Ok(usize::try_from(sockets).unwrap_or(usize::MAX))
}

/// The least message that is compressed, in bytes.
fn deflate(settings: &Settings) -> Option<u32> {
    settings.realtime.deflate.map(|from| u32::try_from(from.0).unwrap_or(u32::MAX))
}

/// A batch whose events are as large as they may be, each byte escaped.
fn body_limit(named: &NamedApp) -> u64 {
    let limits = &named.app.limits;
    let names = limits.channels_per_event * (limits.channel_name + 4) + limits.event_name;
    (limits.batch.max(1) * (limits.data * 6 + names + 1024)) as u64
}

fn hint(error: &hub::StartError, settings: &Settings) -> String {
    match error {
        hub::StartError::Listen { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied => {
            "`setcap cap_net_bind_service=+ep` on hearth, or listen on a port above 1023: `--listen :6001`".into()
        }
        hub::StartError::Listen { address, cause } if cause.kind() == std::io::ErrorKind::AddrInUse => {
            settings.named_twice(address).unwrap_or_else(|| {
                "stop the program that listens there (perhaps Hearth itself), or choose another with `--listen`; port 0 takes any free one".into()
            })
        }
        hub::StartError::Listen { .. } => "choose another with `--listen`".into(),
        _ => "lower `realtime.threads`, or raise the limits of processes and open files".into(),
    }
}

impl front_http::Realtime for Realtime {
    fn takes(&self, path: &str) -> bool {
        if mercure::is_path(path) && self.mercure.is_some() {
            return true;
        }
        let Some(id) = api::app_id(path) else { return self.alone && !self.streams(path) };
        self.may_be(AppRef::Id(&id))
    }

    fn body_limit(&self) -> u64 {
        let lookups = self.lookups.lock().expect("no holder panics");
        let of_mercure = self.mercure.as_ref().map_or(0, |_| channels::mercure::BODY as u64);
        self.body_limit.max(lookups.as_ref().map_or(0, Lookups::body_limit)).max(of_mercure)
    }

    fn answer_by_head<'a>(&'a self, head: &'a Parts) -> Answering<'a, Option<Response<CallBody>>> {
        Box::pin(async move {
            if let Some(mercure) = self.mercure_of(head) {
                let needs_body = mercure.needs_body(head);
                return if needs_body {
                    None
                } else {
                    Some(mercure.call(head, b"", self.history_wait).await)
                };
            }
            if head.uri.path() == "/up" {
                return Some(up());
            }
            let call = call_of(head, b"");
            let Ok(app) = self.app_of(call.path).await else { return Some(not_looked_up()) };
            let now = UnixTime::from(SystemTime::now());
            api::refuse_head(app.as_ref(), &self.channels, &call, now).map(api_response)
        })
    }

    fn call<'a>(&'a self, head: &'a Parts, body: Bytes) -> Answering<'a> {
        Box::pin(async move {
            if let Some(mercure) = self.mercure_of(head) {
                return mercure.call(head, &body, self.history_wait).await;
            }
            if head.uri.path() == "/up" {
                return up();
            }
            let call = call_of(head, &body);
            let Ok(app) = self.app_of(call.path).await else { return not_looked_up() };
            let answer = api::answer_for(
                app.as_ref(),
                &self.channels,
                &call,
                hub::now(),
                UnixTime::from(SystemTime::now()),
            );
            let answer = match answer.ticket.clone() {
                Some(ticket) => self.stored(ticket, answer).await,
                None => answer,
            };
            api_response(answer)
        })
    }

    fn deflates(&self) -> bool {
        self.deflates
    }

    fn adopt(&self, socket: Adopted) {
        self.hub.adopt(socket);
    }

    fn streams(&self, path: &str) -> bool {
        let key = path
            .strip_prefix("/app/")
            .and_then(|rest| rest.strip_suffix("/sse").or_else(|| rest.strip_suffix("/sse/id")));
        key.is_some_and(|key| self.may_be(AppRef::Key(key)))
    }

    fn adopt_stream(&self, socket: AdoptedStream) {
        self.hub.adopt_stream(socket);
    }
}

fn call_of<'a>(head: &'a Parts, body: &'a [u8]) -> Call<'a> {
    Call {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        body,
    }
}

fn up() -> Response<CallBody> {
    text(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"ok\n"))
}

fn not_looked_up() -> Response<CallBody> {
    let why =
        Bytes::from_static(br#"{"error":"the application cannot be looked up at the moment"}"#);
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "application/json", why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn api_response(answer: api::Answer) -> Response<CallBody> {
    let status = StatusCode::from_u16(answer.status).expect("the API knows HTTP's statuses");
    let mut response = text(status, "application/json", answer.body.into());
    if let Some(allow) = answer.allow {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    }
    response
}

fn text(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<CallBody> {
    let mut response = Response::new(CallBody::Whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_get_most_descriptors() {
        let expected = [(0, None), (127, None), (128, Some(96)), (300, Some(225))];
        assert_eq!(expected.map(|(descriptors, _)| (descriptors, sockets(descriptors))), expected);
        assert_eq!(sockets(1024), Some(768));
        assert_eq!(sockets(100_000), Some(99_744));
    }
}
