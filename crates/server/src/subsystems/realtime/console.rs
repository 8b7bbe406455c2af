//! The debug console on the admin address, where there is a token, and on the control socket: what is going on in channels, live, and a way to
//! send an event.
//!
//! Invariants
//! - Only its own page can send: a request must be JSON, which no page of another origin can post without asking. The admin address has
//!   turned away such pages, and names that are not its own, before.
//! - A watcher of a channel counts as one of its subscribers, and gets the same messages. One that reads too slowly misses some.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use channels::{
    App, AppNumber, AppRef, Author, ChannelId, ChannelName, Delivery, Found, Full as InboxFull,
    Outlet, Publication, Subscription, auth, hub, json,
};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::Interval;

use super::Realtime;
use crate::ops::console::{Answering, Console, ConsoleBody};

/// The page, without external assets.
const PAGE: &str = include_str!("console.html");
/// The largest request to send an event, in bytes.
const BODY: usize = 1024 * 1024;
/// Channels shown at once.
const CHANNELS: usize = 200;
/// Messages that may wait for one watcher.
const WAITING: usize = 256;
/// The interval of state events for the page.
const BEAT: Duration = Duration::from_secs(1);

/// The page's permissions: only itself.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

impl Console for Realtime {
    fn answer(self: Arc<Self>, request: Request<ConsoleBody>) -> Answering {
        Box::pin(async move { answer(request, &self).await })
    }
}

/// Answers `/realtime` and what is below it.
async fn answer(request: Request<ConsoleBody>, realtime: &Arc<Realtime>) -> Response<AnswerBody> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/realtime") => {
            let mut response = typed(StatusCode::OK, "text/html; charset=utf-8", PAGE.into());
            response
                .headers_mut()
                .insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
            response
        }
        (&Method::GET, "/realtime/events") => {
            events(request.uri().query().unwrap_or_default(), realtime)
        }
        (&Method::POST, "/realtime/publish") => publish(request, realtime).await,
        _ => text(
            StatusCode::NOT_FOUND,
            "here are /realtime, /realtime/events and /realtime/publish\n",
        ),
    }
}

#[derive(Debug, Deserialize)]
struct EventToSend {
    app: String,
    channel: String,
    event: String,
    data: String,
}

async fn publish(request: Request<ConsoleBody>, realtime: &Realtime) -> Response<AnswerBody> {
    if request.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json\n");
    }
    let Ok(body) = Limited::new(request.into_body(), BODY).collect().await else {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "that is too much\n");
    };
    let event: EventToSend = match serde_json::from_slice(&body.to_bytes()) {
        Ok(event) => event,
        Err(error) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
    };
    match send(realtime, &event) {
        Ok(()) => typed(StatusCode::OK, "application/json", "{}".into()),
        Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

fn send(realtime: &Realtime, event: &EventToSend) -> Result<(), String> {
    let app = app(realtime, &event.app).ok_or("there is no such application")?;
    let limits = &app.limits;
    if event.event.is_empty()
        || event.event.chars().count() > limits.event_name
        || event.data.len() > limits.data
    {
        return Err("the event's name or data break a limit of the application".to_owned());
    }
    let channel =
        ChannelName::new(&event.channel, limits.channel_name).map_err(|error| error.to_string())?;
    let data = json::quoted(&event.data);
    let author = Author::Server { except: None };
    let publication = Publication { channel: &channel, event: &event.event, data: &data, author };
    tracing::info!(app = &*app.id, channel = channel.as_str(), "event sent from the console");
    let registry = realtime.channels.registry();
    let published = registry.publish(&app, &publication, hub::now());
    published.map(|_ticket| ()).map_err(|error| error.to_string())
}

fn app(realtime: &Realtime, id: &str) -> Option<Arc<App>> {
    // What the page offers is known.
    match realtime.apps.find(AppRef::Id(id)) {
        Found::App(app) => Some(app),
        Found::None | Found::Unknown => None,
    }
}

/// Server-Sent Events: `state` about once a second, `message` for each one of the channel that is watched.
fn events(query: &str, realtime: &Arc<Realtime>) -> Response<AnswerBody> {
    let parameter = |wanted: &str| {
        let mut parameters = auth::parameters(query);
        parameters.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    let first = || realtime.all().into_iter().next();
    let Some(app) = parameter("app").map_or_else(first, |id| app(realtime, &id)) else {
        return text(StatusCode::NOT_FOUND, "there is no such application\n");
    };
    let wanted = parameter("watch").filter(|name| !name.is_empty());
    let watched = match wanted.map(|name| Watched::begin(realtime, &app, &name)).transpose() {
        Ok(watched) => watched,
        Err(error) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
    };
    let prefix = parameter("prefix").unwrap_or_default();
    let feed = Feed {
        realtime: Arc::clone(realtime),
        app,
        prefix,
        watched,
        beat: tokio::time::interval(BEAT),
    };
    let mut response = Response::new(feed.boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An event loop without sockets: it passes on messages of watched channels.
#[derive(Debug, Default)]
pub(super) struct Watch {
    number: OnceLock<Option<u16>>,
    watchers: Mutex<Vec<(ChannelId, mpsc::Sender<Bytes>)>>,
}

impl Outlet for Watch {
    fn put(&self, _: AppNumber, delivery: Delivery) -> Result<(), InboxFull> {
        if let Delivery::Channel { channel, message, .. } = delivery {
            let watchers = self.watchers.lock().expect("no holder panics");
            for (_, watcher) in watchers.iter().filter(|(watched, _)| *watched == channel) {
                // One that reads too slowly misses it.
                drop(watcher.try_send(message.text()));
            }
        }
        Ok(())
    }
}

/// A watched channel.
struct Watched {
    realtime: Arc<Realtime>,
    app: Arc<App>,
    name: ChannelName,
    event_loop: u16,
    messages: mpsc::Receiver<Bytes>,
    sender: mpsc::Sender<Bytes>,
}

impl Watched {
    fn begin(realtime: &Arc<Realtime>, app: &Arc<App>, name: &str) -> Result<Self, String> {
        let name =
            ChannelName::new(name, app.limits.channel_name).map_err(|error| error.to_string())?;
        let watch = &realtime.watch;
        let attach = || realtime.channels.attach(Arc::<Watch>::clone(watch));
        let event_loop =
            watch.number.get_or_init(attach).ok_or("there are too many event loops")?;
        let (sender, messages) = mpsc::channel(WAITING);
        // Not a member: other members do not see it.
        let subscription = Subscription { channel: &name, event_loop, member: None, resume: None };
        let registry = realtime.channels.registry();
        let joined = registry
            .subscribe(app, &subscription, hub::now())
            .map_err(|error| error.to_string())?;
        watch.watchers.lock().expect("no holder panics").push((joined.channel, sender.clone()));
        Ok(Self {
            realtime: Arc::clone(realtime),
            app: Arc::clone(app),
            name,
            event_loop,
            messages,
            sender,
        })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watchers = self.realtime.watch.watchers.lock().expect("no holder panics");
        watchers.retain(|(_, sender)| !sender.same_channel(&self.sender));
        drop(watchers);
        let registry = self.realtime.channels.registry();
        registry.unsubscribe(&self.app, &self.name, self.event_loop, None, hub::now());
    }
}

/// The state that the page shows.
#[derive(Debug, Serialize)]
struct State {
    apps: Vec<String>,
    app: String,
    connections: u64,
    subscriptions: u64,
    published: u64,
    sent: u64,
    received: u64,
    /// The number of channels; only the first ones are listed.
    channels_in_all: usize,
    channels: Vec<Channel>,
    watched: Option<String>,
    members: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Channel {
    name: String,
    subscriptions: usize,
    members: Option<usize>,
}

struct Feed {
    realtime: Arc<Realtime>,
    app: Arc<App>,
    prefix: String,
    watched: Option<Watched>,
    beat: Interval,
}

impl Feed {
    /// Returns the ids of all applications, with the shown one, even if it has been removed meanwhile.
    fn apps(&self) -> Vec<String> {
        let mut apps: Vec<String> =
            self.realtime.all().iter().map(|app| app.id.to_string()).collect();
        if !apps.iter().any(|id| **id == *self.app.id) {
            apps.push(self.app.id.to_string());
        }
        apps
    }

    fn state(&self) -> State {
        let registry = self.realtime.channels.registry();
        let mut channels: Vec<Channel> = registry
            .channels(&self.app, &self.prefix)
            .into_iter()
            .map(|report| Channel {
                name: report.name.as_str().to_owned(),
                subscriptions: report.subscription_count,
                members: report.user_count,
            })
            .collect();
        let channels_in_all = channels.len();
        channels.sort_by(|a, b| (b.subscriptions, &a.name).cmp(&(a.subscriptions, &b.name)));
        channels.truncate(CHANNELS);
        let watched = self.watched.as_ref().map(|watched| watched.name.as_str().to_owned());
        let members = watched.as_ref().map(|name| registry.members(&self.app, name, hub::now()));
        let counters = self.realtime.channels.statistics().of(&self.app.id);
        State {
            apps: self.apps(),
            app: self.app.id.to_string(),
            connections: counters.connections.get(),
            subscriptions: counters.subscriptions.get(),
            published: counters.published.get(),
            sent: counters.sent.get(),
            received: counters.received.get(),
            channels_in_all,
            channels,
            watched,
            members: members.unwrap_or_default().iter().map(ToString::to_string).collect(),
        }
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if let Some(watched) = &mut this.watched
            && let Poll::Ready(Some(message)) = watched.messages.poll_recv(cx)
        {
            return Poll::Ready(Some(Ok(Frame::data(message_event(&message)))));
        }
        if this.beat.poll_tick(cx).is_ready() {
            let state = serde_json::to_string(&this.state()).expect("it has only plain types");
            return Poll::Ready(Some(Ok(Frame::data(
                format!("event: state\ndata: {state}\n\n").into(),
            ))));
        }
        Poll::Pending
    }
}

/// Encodes a message as a server-sent event. JSON of a client may have line breaks between its parts, of which none may
/// end the event.
fn message_event(message: &[u8]) -> Bytes {
    let mut event = b"event: message\n".to_vec();
    for line in message.split(|byte| matches!(byte, b'\r' | b'\n')) {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line);
        event.push(b'\n');
    }
    event.push(b'\n');
    event.into()
}

fn text(status: StatusCode, body: impl Into<String>) -> Response<AnswerBody> {
    typed(status, "text/plain; charset=utf-8", body.into())
}

fn typed(status: StatusCode, content_type: &'static str, body: String) -> Response<AnswerBody> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_in_a_clients_data_do_not_end_the_event() {
        let event = message_event(b"{\"data\":{\"a\":[1,\n\n2,\r\r3]}}");
        assert_eq!(
            event,
            "event: message\ndata: {\"data\":{\"a\":[1,\ndata: \ndata: 2,\ndata: \ndata: 3]}}\n\n"
        );
        assert_eq!(message_event(b"{}"), "event: message\ndata: {}\n\n");
    }
}
