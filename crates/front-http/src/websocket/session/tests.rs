use std::io;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use pool::{DispatchError, RequestContext, RequestId, Scheme, Script};
use tokio::io::ReadBuf;

use super::super::routes::{WebSocketLimits, WebSocketOptions, WebSocketRoute};
use super::*;
use crate::forwarded::ForwardedInfo;
use crate::front::Front;
use crate::options::Options;
use crate::request_body::RequestBody;
use crate::websocket::events::Fields;

/// An application that records events, and answers a message with its text after a millisecond, `slow` after ten minutes.
#[derive(Clone, Default)]
struct App {
    events: Arc<Mutex<Vec<String>>>,
}

impl App {
    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }
}

impl Application for App {
    type Body = Full<Bytes>;

    async fn call(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Full<Bytes>>, DispatchError> {
        let (head, body) = request.into_parts();
        let context = head.extensions.get::<RequestContext>().expect("the front gives it");
        let variable = |name: &str| {
            let found = context.variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
        };
        assert_eq!(variable("SSL_CLIENT_S_DN"), "CN=ann", "the client's certificate");
        let event = variable("HEARTH_SOCKET_EVENT");
        let text = body.collect().await.unwrap().to_bytes();
        let about = match &*event {
            "message" => String::from_utf8_lossy(&text).into_owned(),
            _ => variable("HEARTH_SOCKET_CODE"),
        };
        self.events.lock().unwrap().push(format!("{event} {about}"));
        // Meanwhile the session notices that the answer before cannot be written.
        let slow = text == "slow";
        let pause = if slow { Duration::from_mins(10) } else { Duration::from_millis(1) };
        tokio::time::sleep(pause).await;
        Ok(Response::new(Full::new(text)))
    }
}

/// The stream of a client, and how far its server can write.
enum Stream {
    /// With TLS: messages have room, but not the `close_notify`. These bytes are still to be read.
    Unread(Bytes),
    /// Nothing more has room.
    Full,
    /// A KiB has room each second; what was written.
    Slow(Pin<Box<Sleep>>, Arc<Mutex<Vec<u8>>>),
    /// The client is gone. These bytes are still to be read.
    Gone(Bytes),
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (bytes, ended) = match &mut *self {
            Self::Unread(bytes) => (bytes, false),
            Self::Gone(bytes) => (bytes, true),
            Self::Full | Self::Slow(..) => return Poll::Pending,
        };
        if bytes.is_empty() && !ended {
            return Poll::Pending;
        }
        let some = bytes.len().min(1000);
        buffer.put_slice(&bytes.split_to(some));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Unread(_) => Poll::Ready(Ok(bytes.len())),
            Self::Full => Poll::Pending,
            Self::Slow(room, written) => {
                ready!(room.as_mut().poll(cx));
                room.as_mut().reset(Instant::now() + Duration::from_secs(1));
                let some = &bytes[..bytes.len().min(1 << 10)];
                written.lock().unwrap().extend_from_slice(some);
                Poll::Ready(Ok(some.len()))
            }
            Self::Gone(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

fn visitor(seat: &Seat) -> Visitor {
    let address = ([127, 0, 0, 1], 80).into();
    let context = RequestContext {
        script: Script {
            filename: Arc::from(std::path::Path::new("")),
            name: Arc::from(""),
            path_info: Arc::from(""),
            document_root: Arc::from(std::path::Path::new("")),
        },
        remote: address,
        local: address,
        scheme: Scheme::Https,
        server_name: Arc::from("a.example"),
        server_port: 443,
        remote_user: None,
        id: RequestId(Arc::from("1")),
        hints: None,
        observer: None,
        deadline: None,
        trace: None,
        variables: vec![("SSL_CLIENT_S_DN", Bytes::from_static(b"CN=ann"))],
    };
    Visitor {
        id: seat.id(),
        uri: Uri::from_static("/chat"),
        handler: "/index.php".to_owned(),
        fields: Fields::of(&HeaderMap::new()),
        forwarded: ForwardedInfo::default(),
        context,
        protocol: None,
        // Streams of these tests answer no ping.
        limits: WebSocketLimits { ping_interval: None, ..WebSocketOptions::default().limits },
    }
}

/// A message of the client, masked with zeros.
fn message(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat()
}

/// A close frame of the client, masked with zeros.
const CLOSE: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];

/// Serves a client that has sent these bytes. Returns the events, and how long the connection lasted.
async fn events_of(stream: Stream, sent: &[u8]) -> (Vec<String>, Duration) {
    events_until(stream, sent, CancellationToken::new()).await
}

/// The same, of a server that leaves once `drain` is cancelled.
async fn events_until(
    stream: Stream,
    sent: &[u8],
    drain: CancellationToken,
) -> (Vec<String>, Duration) {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("index.php"), "<?php").unwrap();
    let mut options = Options::new(root.path());
    options.listen.clear();
    options.forwarded_connections = true;
    options.websockets.routes = vec![WebSocketRoute::new("/chat", None).unwrap()];
    let app = App::default();
    let front = Front::bind(options, app.clone()).await.unwrap().shared();
    let limits = WebSocketOptions::default().limits;
    let seat = front.websockets.seat(&Arc::from("main"), None, &limits).unwrap();
    let accepted = Box::new(Accepted { visitor: visitor(&seat), seat, deflate: false });
    let began = Instant::now();
    let session = begin(front, accepted, stream, sent, drain);
    tokio::time::timeout(Duration::from_hours(1), session).await.expect("it ends");
    (app.events(), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_the_end_of_tls_is_cut_and_its_close_is_reported() {
    let (events, lasted) = events_of(Stream::Unread(Bytes::new()), &CLOSE).await;
    assert_eq!(lasted.as_secs(), CLOSE_PATIENCE.as_secs());
    assert_eq!(events, ["close 1005"]);
}

/// Messages with the numbers, and their events.
fn numbered(numbers: std::ops::Range<u32>) -> (Vec<u8>, Vec<String>) {
    let messages = numbers.clone().flat_map(|number| message(&number.to_string())).collect();
    (messages, numbers.map(|number| format!("message {number}")).collect())
}

#[tokio::test(start_paused = true)]
async fn messages_before_a_close_are_handled_though_their_client_is_gone() {
    let ((read, _), (unread, _)) = (numbered(0..50), numbered(50..2000));
    let (_, mut all) = numbered(0..2000);
    all.push("close 1006".to_owned());
    let (events, _) = events_of(Stream::Gone(unread.clone().into()), &read).await;
    assert_eq!(events, all);
    *all.last_mut().unwrap() = "close 1005".to_owned();
    let closed = [&unread[..], &CLOSE].concat();
    let (events, _) = events_of(Stream::Gone(closed.clone().into()), &read).await;
    assert_eq!(events, all);
    let everything = [&read[..], &closed].concat();
    let (events, _) = events_of(Stream::Gone(Bytes::new()), &everything).await;
    assert_eq!(events, all);
}

#[tokio::test(start_paused = true)]
async fn a_leaving_server_handles_what_has_come_as_far_as_its_memory_is_bounded() {
    let drain = CancellationToken::new();
    drain.cancel();
    let ((read, _), (unread, _)) = (numbered(0..50), numbered(50..2000));
    let (_, mut all) = numbered(0..2000);
    all.push("close 1001".to_owned());
    let stream = Stream::Unread(unread.clone().into());
    let (events, _) = events_until(stream, &read, drain.clone()).await;
    assert_eq!(events, all);

    // A client that closes at the same time has its own code.
    *all.last_mut().unwrap() = "close 1005".to_owned();
    let stream = Stream::Unread([&unread[..], &CLOSE].concat().into());
    let (events, _) = events_until(stream, &read, drain.clone()).await;
    assert_eq!(events, all);

    // Nothing is read behind the limit of a message, 128 KiB: 13,107 messages of 10 bytes and what came with the last.
    let unread = (1000..9000).cycle().take(40_000).flat_map(|number| message(&number.to_string()));
    let stream = Stream::Unread(unread.collect::<Vec<_>>().into());
    let (events, _) = events_until(stream, &read, drain).await;
    assert!((13_157..13_300).contains(&events.len()), "{}", events.len());
    assert_eq!(events.last().unwrap(), "close 1001");
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_client_that_takes_no_answer_are_dropped_at_the_write_time_out() {
    let messages = ["one", "slow", "three"].map(message).concat();
    let (events, _) = events_of(Stream::Full, &messages).await;
    assert_eq!(events, ["message one", "message slow", "close 1013"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_gets_all_that_waits_before_the_close() {
    let messages: Vec<u8> = (0..100).flat_map(|_| message(&"x".repeat(100))).collect();
    let written = Arc::default();
    let room = Box::pin(tokio::time::sleep(Duration::ZERO));
    let stream = Stream::Slow(room, Arc::clone(&written));
    let (events, lasted) = events_of(stream, &[&messages[..], &CLOSE].concat()).await;
    assert_eq!(events.last().unwrap(), "close 1005");
    assert!(lasted > CLOSE_PATIENCE * 2, "{lasted:?}");
    let answer = [&[0x81, 100][..], &[b'x'; 100]].concat();
    assert_eq!(*written.lock().unwrap(), [&answer.repeat(100)[..], &[0x88, 0]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_cut_and_reported_within_a_stop() {
    let drain = CancellationToken::new();
    drain.cancel();
    let (events, lasted) = events_until(Stream::Full, &message("one"), drain).await;
    assert_eq!(events, ["message one", "close 1001"]);
    assert_eq!(lasted.as_secs(), LEAVE_PATIENCE.as_secs());
}
