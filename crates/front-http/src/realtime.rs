//! Realtime on the front's own ports: WebSockets leave HTTP and move to the hub, and requests of the HTTP API are
//! answered.
//!
//! Invariants
//! - Only realtime requests are handled: `/app/...` with `Upgrade: websocket`, and paths of [`Realtime::takes`] or
//!   [`Realtime::streams`]. All others go to the application, as without realtime.
//! - A socket is handed over once its 101 is written; from then on this crate holds nothing of it.
//! - A body is read only for a request whose head does not decide its answer, so a request without a valid signature or
//!   token costs no memory.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use channels::hub::{Adopted, AdoptedStream, ForwardedConnection, Handover, Stream};
use channels::websocket::{BadUpgrade, Upgrade};
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyExt;
use http1::{HeadLimits, ResponseReader};
use rustls::ServerConnection;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_util::io::poll_read_buf;

use crate::answers::Page;
use crate::listener::Replay;
use crate::protocol::Protocol;
use crate::request_body::{BodyError, RequestBody};
use crate::websocket::session::Accepted;

/// Maximum number of sockets from the hub that wait to be served; further ones are dropped.
const FORWARDED_CONNECTIONS: usize = 1024;

/// A future response.
pub type Answering<'a, T = Response<CallBody>> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The body of a response of realtime.
#[derive(Debug)]
pub enum CallBody {
    /// All of it.
    Whole(Bytes),
    /// Whatever arrives at this socket, until it is closed at its other end.
    Stream(UnixStream),
}

/// The owner of the channels.
pub trait Realtime: fmt::Debug + Send + Sync + 'static {
    /// Returns whether a request for this path is for the HTTP API, not for the application.
    fn takes(&self, path: &str) -> bool;

    /// Returns the maximum size of an API request body in bytes.
    fn body_limit(&self) -> u64;

    /// Answers a request of the HTTP API that has a body, if its head decides the answer: no valid signature or token,
    /// no such application, path or method. Returns `None` if the body is needed. Without this method the body of every
    /// request is read.
    fn answer_by_head<'a>(&'a self, _head: &'a Parts) -> Answering<'a, Option<Response<CallBody>>> {
        Box::pin(std::future::ready(None))
    }

    /// Answers a request of the HTTP API. It checks everything that [`Realtime::answer_by_head`] checks.
    fn call<'a>(&'a self, head: &'a Parts, body: Bytes) -> Answering<'a>;

    /// Returns whether messages may be compressed, with clients that offer it.
    fn deflates(&self) -> bool;

    /// Takes over a socket whose WebSocket handshake is complete. Never waits.
    fn adopt(&self, socket: Adopted);

    /// Returns whether a request for this path is for an event stream, not for the application.
    fn streams(&self, path: &str) -> bool;

    /// Takes over a socket on which an event stream is to be answered. Never waits.
    fn adopt_stream(&self, socket: AdoptedStream);
}

/// An accepted WebSocket handshake, with what the hub needs.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) realtime: Arc<dyn Realtime>,
    upgrade: Upgrade,
    target: String,
    origin: Option<String>,
    secure: bool,
}

/// The protocol of a connection after its last response.
#[derive(Debug)]
pub(crate) enum Grant {
    /// A client of channels.
    Channels(Granted),
    /// The application is being asked whether it accepts a WebSocket.
    Asked,
    /// A WebSocket that the application handles.
    Application(Box<Accepted>),
}

/// The place where a request leaves the handshake for its connection.
pub(crate) type GrantCell = Mutex<Option<Grant>>;

/// Answers a WebSocket request, if it is one: 101 with the handshake, or an error.
pub(crate) fn upgrade(
    realtime: &Arc<dyn Realtime>,
    parts: &Parts,
    secure: bool,
) -> Option<Result<(Response<Bytes>, Granted), Page>> {
    if !parts.uri.path().starts_with("/app/")
        || Protocol::of(parts.version) != Protocol::Http11
        || parts.method != http::Method::GET
    {
        return None;
    }
    let fields = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let upgrade = match Upgrade::read(fields, realtime.deflates()) {
        Ok(upgrade) => upgrade?,
        Err(error) => return Some(Err(malformed(error))),
    };
    let response = switching(&upgrade).map(|()| Bytes::new());
    let text = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let granted = Granted {
        realtime: Arc::clone(realtime),
        upgrade,
        target: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        origin: text(header::ORIGIN).map(str::to_owned),
        secure,
    };
    Some(Ok((response, granted)))
}

/// Returns the response that accepts a handshake.
pub(crate) fn switching(upgrade: &Upgrade) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let accept = HeaderValue::from_str(upgrade.accept()).expect("base64 is fit for a field");
    fields.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(extensions) = upgrade.extensions() {
        fields.insert(header::SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(extensions));
    }
    response
}

/// Returns the page for a request that is not a valid one for a WebSocket.
pub(crate) fn malformed(error: BadUpgrade) -> Page {
    match error {
        BadUpgrade::Version => {
            let says = "Only version 13 of the WebSocket protocol is spoken here.";
            Page::new(StatusCode::UPGRADE_REQUIRED, says)
                .with(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))
        }
        BadUpgrade::Malformed(_) => {
            Page::new(StatusCode::BAD_REQUEST, "The request for a WebSocket is not valid.")
        }
    }
}

impl Granted {
    /// Hands the socket over. `read` is what was received after the request.
    pub(crate) fn give<S: IntoStream>(self, stream: S, read: Vec<u8>) {
        let Self { realtime, upgrade, target, origin, secure } = self;
        match stream.into_stream() {
            Ok((stream, tls)) => realtime.adopt(Adopted {
                stream,
                tls,
                upgrade,
                answered: true,
                target,
                origin,
                secure,
                read,
            }),
            Err(error) => tracing::debug!(%error, "socket lost on its way to its event loop"),
        }
    }
}

/// Answers an API request. It reads the body if the head does not decide the answer.
pub(crate) async fn call(
    realtime: &dyn Realtime,
    parts: &Parts,
    body: RequestBody,
) -> Result<Response<CallBody>, BodyError> {
    if !body.is_end_stream()
        && let Some(response) = realtime.answer_by_head(parts).await
    {
        return Ok(response);
    }
    let body = body.collect().await?.to_bytes();
    Ok(realtime.call(parts, body).await)
}

/// Maximum size of a response head from the hub.
const STREAM_HEAD: usize = 4096;

/// The body of an event stream from the hub.
#[derive(Debug)]
pub(crate) struct EventStream {
    read: BytesMut,
    socket: UnixStream,
}

impl EventStream {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { read: BytesMut::new(), socket }
    }

    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.read.is_empty() {
            match ready!(poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.read)) {
                Ok(0) => return Poll::Ready(None),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        Poll::Ready(Some(Ok(self.read.split().freeze())))
    }
}

/// Answers Server-Sent Events, over any version of HTTP. The hub answers at one end of a socket pair, and its output
/// becomes the response.
pub(crate) async fn event_stream(
    realtime: &dyn Realtime,
    parts: &Parts,
    secure: bool,
) -> io::Result<Response<EventStream>> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut socket = UnixStream::from_std(ours)?;
    let text = |name: &str| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    realtime.adopt_stream(AdoptedStream {
        stream: Stream::Unix(theirs),
        tls: None,
        answered: false,
        target: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        origin: text("origin"),
        site: text("sec-fetch-site"),
        last_event_id: text("last-event-id"),
        // This end of the pair, and the client's connection unless others share it.
        beside: if Protocol::of(parts.version).multiplexed() { 1 } else { 2 },
        secure,
    });
    let mut read = BytesMut::new();
    let mut reader = ResponseReader::new(HeadLimits { bytes: STREAM_HEAD, fields: 16 });
    loop {
        if let Some(head) = reader.read(&mut read).map_err(io::Error::other)? {
            let mut response = Response::new(EventStream { read, socket });
            *response.status_mut() = head.status;
            *response.headers_mut() = head.headers;
            return Ok(response);
        }
        if socket.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns the target of a request for logs. A request that realtime answers may have tokens and signatures in its
/// query: its parameters are logged without their values, except [`PLAIN`] ones.
pub(crate) fn logged_target(realtime: Option<&dyn Realtime>, uri: &Uri) -> String {
    let target = uri.to_string();
    let is_secret = |realtime: &dyn Realtime| {
        uri.query().is_some() && (realtime.streams(uri.path()) || realtime.takes(uri.path()))
    };
    if realtime.is_some_and(is_secret) { without_secrets(&target) } else { target }
}

fn without_secrets(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, _)) if !PLAIN.contains(&name) => Cow::Owned(format!("{name}=***")),
        _ => Cow::Borrowed(parameter),
    });
    format!("{path}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// Parameters whose values are logged: of event streams, of the Mercure hub and of the HTTP API. An allow list, because
/// a name may be spelled in several ways.
const PLAIN: [&str; 13] = [
    "channels",
    "socket_id",
    "last_event_id",
    "topic",
    "lastEventID",
    "Last-Event-ID",
    "last-event-id",
    "auth_key",
    "auth_timestamp",
    "auth_version",
    "body_md5",
    "filter_by_prefix",
    "info",
];

/// A socket and its TLS state.
type Apart = (Stream, Option<Box<ServerConnection>>);

/// A stream that can be taken apart.
pub(crate) trait IntoStream {
    /// Returns the socket and its TLS state.
    fn into_stream(self) -> io::Result<Apart>;
}

impl IntoStream for TcpStream {
    fn into_stream(self) -> io::Result<Apart> {
        Ok((Stream::Tcp(self.into_std()?), None))
    }
}

impl IntoStream for UnixStream {
    fn into_stream(self) -> io::Result<Apart> {
        Ok((Stream::Unix(self.into_std()?), None))
    }
}

impl<S: IntoStream> IntoStream for TlsStream<Replay<S>> {
    fn into_stream(self) -> io::Result<Apart> {
        let (replay, tls) = self.into_inner();
        debug_assert!(replay.peeked.is_empty(), "the handshake has read what was peeked at");
        let (stream, _) = replay.stream.into_stream()?;
        Ok((stream, Some(Box::new(tls))))
    }
}

/// Receives the sockets that a hub hands over because their request is not for a WebSocket.
#[derive(Clone, Debug)]
pub struct ForwardedConnections(mpsc::Sender<ForwardedConnection>);

impl ForwardedConnections {
    pub(crate) fn new() -> (Self, mpsc::Receiver<ForwardedConnection>) {
        let (sender, receiver) = mpsc::channel(FORWARDED_CONNECTIONS);
        (Self(sender), receiver)
    }
}

impl Handover for ForwardedConnections {
    fn take(&self, forwarded: ForwardedConnection) {
        if self.0.try_send(forwarded).is_err() {
            tracing::debug!("socket dropped: too many wait for an answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Mercure hub, channels and their HTTP API.
    #[derive(Debug)]
    struct Hub;

    impl Realtime for Hub {
        fn takes(&self, path: &str) -> bool {
            path.starts_with("/.well-known/mercure") || path.starts_with("/apps/")
        }

        fn body_limit(&self) -> u64 {
            0
        }

        fn answer_by_head<'a>(
            &'a self,
            head: &'a Parts,
        ) -> Answering<'a, Option<Response<CallBody>>> {
            let refused = !head.headers.contains_key(header::AUTHORIZATION);
            Box::pin(
                async move { refused.then(|| response(StatusCode::UNAUTHORIZED, Bytes::new())) },
            )
        }

        fn call<'a>(&'a self, _: &'a Parts, body: Bytes) -> Answering<'a> {
            Box::pin(async move { response(StatusCode::OK, body) })
        }

        fn deflates(&self) -> bool {
            false
        }

        fn adopt(&self, _: Adopted) {}

        fn streams(&self, path: &str) -> bool {
            path == "/app/key/sse"
        }

        fn adopt_stream(&self, _: AdoptedStream) {}
    }

    fn response(status: StatusCode, body: Bytes) -> Response<CallBody> {
        let mut response = Response::new(CallBody::Whole(body));
        *response.status_mut() = status;
        response
    }

    #[tokio::test]
    async fn a_body_is_read_only_if_the_head_does_not_decide_the_answer() {
        let (mut head, ()) = http::Request::new(()).into_parts();
        let body = || RequestBody::whole(Bytes::from_static(b"body"));
        let answer = call(&Hub, &head, body()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        // Without a body there is nothing to save.
        let answer = call(&Hub, &head, RequestBody::empty()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        head.headers.insert(header::AUTHORIZATION, HeaderValue::from_static("signed"));
        let answer = call(&Hub, &head, body()).await.unwrap();
        assert!(matches!(answer.into_body(), CallBody::Whole(bytes) if bytes == "body"));
    }

    #[test]
    fn tokens_and_signatures_of_realtime_are_not_logged() {
        for (target, logged) in [
            ("/app/key/sse", "/app/key/sse"),
            ("/app/key/sse?channels=a,b&socket_id=1.2", "/app/key/sse?channels=a,b&socket_id=1.2"),
            (
                "/app/key/sse?channels=a&auth=k:s&channel_data=%7B%7D&x",
                "/app/key/sse?channels=a&auth=***&channel_data=***&x",
            ),
            ("/app/key/sse?%61uth=k:s", "/app/key/sse?%61uth=***"),
            (
                "/.well-known/mercure?topic=a&authorization=e30.e30.c2ln&lastEventID=1",
                "/.well-known/mercure?topic=a&authorization=***&lastEventID=1",
            ),
            (
                "/.well-known/mercure/subscriptions?authorizatio%6E=e30.e30.c2ln",
                "/.well-known/mercure/subscriptions?authorizatio%6E=***",
            ),
            (
                "/apps/1/channels?info=user_count&auth_key=k&auth_signature=abc",
                "/apps/1/channels?info=user_count&auth_key=k&auth_signature=***",
            ),
            ("/search?authorization=mine", "/search?authorization=mine"),
        ] {
            let uri = target.parse().unwrap();
            assert_eq!(logged_target(Some(&Hub), &uri), logged);
            assert_eq!(logged_target(None, &uri), target);
        }
    }
}
