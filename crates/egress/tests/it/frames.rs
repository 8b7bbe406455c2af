//! The frame listener: real sockets, a caller that writes frames by hand, origins that follow a script.

use std::time::Duration;

use egress::{Engine, HttpListener, ListenerOptions, ListenerWatch, Options};
use tempfile::TempDir;
use testkit::{Body, Origin, Reply, Seen, Step, Turn, routes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::{CallBody, FromBroker, HEADER_LEN, OPENING, Sender};

use crate::support::{LONG, eventually, within};

/// A listener in this process.
struct Listener {
    folder: TempDir,
    watch: ListenerWatch,
    drain: CancellationToken,
    tasks: JoinSet<()>,
}

impl Listener {
    fn open() -> Self {
        Self::with(100)
    }

    fn with(callers: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = ListenerOptions {
            socket: folder.path().join("egress.sock"),
            group: None,
            allow_users: vec![],
            callers,
            connect: LONG,
            queue: LONG,
        };
        let listener = HttpListener::bind(options).expect("a socket");
        let (watch, drain) = (listener.watch(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(listener.serve(Engine::new(Options::default()), drain.clone()));
        Self { folder, watch, drain, tasks }
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("egress.token")).expect("a token")
    }

    async fn socket(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("egress.sock")).await.expect("a listener")
    }

    async fn caller(&self) -> Caller {
        self.caller_with(&self.token()).await
    }

    async fn caller_with(&self, token: &str) -> Caller {
        let mut out = OPENING.to_vec();
        wire::send::open(&mut out, token.as_bytes());
        Caller { socket: self.socket().await, out, input: vec![] }
    }
}

struct Caller {
    socket: UnixStream,
    /// Bytes to be written with the next call.
    out: Vec<u8>,
    input: Vec<u8>,
}

/// The result of a call.
#[derive(Debug, Default)]
struct Came {
    interims: Vec<String>,
    head: String,
    reused: bool,
    protocol: u8,
    address: String,
    body: Vec<u8>,
    trailers: String,
    refusal: Option<(bool, String, u8, String)>,
}

impl Came {
    fn refusal(&self) -> (bool, &str, u8) {
        let (lost, reason, errno, _) = self.refusal.as_ref().unwrap_or_else(|| panic!("{self:?}"));
        (*lost, reason, *errno)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// One received frame.
#[derive(Debug)]
struct Raw(wire::Header, Vec<u8>);

impl Raw {
    fn decoded(&self) -> FromBroker<'_> {
        FromBroker::decode(self.0, &self.1).expect("a good frame")
    }
}

impl Caller {
    fn head(method: &str, url: &str, fields: &str) -> String {
        format!("{method} {url} HTTP/1.1\r\n{fields}\r\n")
    }

    async fn ask(&mut self, control: &str, head: &str, coming: CallBody, body: &[u8]) {
        wire::send::call(&mut self.out, control.as_bytes(), head.as_bytes(), coming)
            .expect("it fits");
        if coming == CallBody::Whole {
            wire::send::body(&mut self.out, body, true);
        }
        let out = std::mem::take(&mut self.out);
        self.socket.write_all(&out).await.expect("the broker reads");
    }

    /// Returns the next frame; `None` if the connection has ended.
    async fn frame(&mut self) -> Option<Raw> {
        loop {
            if let Some(header) = wire::peek(&self.input, Sender::Broker).expect("a good frame")
                && self.input.len() >= header.frame_len()
            {
                let frame: Vec<u8> = self.input.drain(..header.frame_len()).collect();
                return Some(Raw(header, frame[HEADER_LEN..].to_vec()));
            }
            match within(self.socket.read_buf(&mut self.input)).await {
                Ok(1..) => {}
                _ => return None,
            }
        }
    }

    /// Reads the rest of the exchange.
    async fn came(&mut self) -> Came {
        let mut came = Came::default();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        loop {
            let frame = self.frame().await.expect("the exchange ends");
            match frame.decoded() {
                FromBroker::Want => panic!("nothing is to be wanted here"),
                FromBroker::Interim(head) => came.interims.push(text(head)),
                FromBroker::Answer(answer) => {
                    came.head = text(answer.head);
                    came.reused = answer.reused;
                    came.protocol = answer.protocol;
                    came.address = format!("{}:{}", text(answer.address), answer.port);
                }
                FromBroker::Body(data) => came.body.extend_from_slice(data),
                FromBroker::Trailers(fields) => came.trailers = text(fields),
                FromBroker::End => return came,
                FromBroker::Declined(why) | FromBroker::Failed(why) => {
                    let lost = matches!(frame.decoded(), FromBroker::Failed(_));
                    came.refusal = Some((lost, text(why.reason), why.errno, text(why.message)));
                    if came.address.is_empty() && !why.address.is_empty() {
                        came.address = format!("{}:{}", text(why.address), why.port);
                    }
                    return came;
                }
            }
        }
    }

    async fn get(&mut self, url: &str) -> Came {
        self.ask("", &Self::head("GET", url, ""), CallBody::None, b"").await;
        self.came().await
    }

    async fn post(&mut self, url: &str, body: &[u8]) -> Came {
        let fields = format!("Content-Length: {}\r\n", body.len());
        self.ask("", &Self::head("POST", url, &fields), CallBody::Whole, body).await;
        self.came().await
    }
}

fn ca() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, _) = testkit::certificates().authority.write(folder.path(), "authority");
    let control = format!("ca=\"{}\"", authority.display());
    (folder, control)
}

#[tokio::test]
async fn a_thousand_calls_go_over_one_connection_and_one_to_the_origin() {
    // The origin announces keep-alive, so POSTs share a connection from the second on.
    let echo = |_: &Seen| Reply::text("").body(Body::Echo).field("Connection", "keep-alive").into();
    let (listener, origin) = (Listener::open(), Origin::plain(echo));
    let mut caller = listener.caller().await;
    for call in 0..1000 {
        let came = caller.post(&origin.url("/echo"), format!("body {call}").as_bytes()).await;
        assert_eq!(came.text(), format!("body {call}"));
        assert_eq!((came.reused, came.protocol), (call > 0, 11));
        assert_eq!(came.address, format!("127.0.0.1:{}", origin.port()));
    }
    assert_eq!((origin.connections().len(), origin.requests().len()), (1, 1000));
    let report = listener.watch.report();
    assert_eq!((report.calls, report.unanswered.len()), (1000, 0));
    eventually("it is idle", || listener.watch.report().callers == 0).await;
}

#[tokio::test]
async fn heads_pass_as_they_were_written_both_ways() {
    let written = "HTTP/1.1 200 Fine\r\nX-oDD:  1\r\nContent-Length: 2\r\nHearth-Declined: x\r\nx-odd: 2\r\n\r\n";
    let origin = Origin::plain(move |_| {
        Turn::Steps(vec![
            Step::send("HTTP/1.1 103 Early Hints\r\nLINK: </a>\r\n\r\n"),
            Step::send(written),
            Step::send("ok"),
        ])
    });
    let listener = Listener::open();
    let mut caller = listener.caller().await;
    let fields =
        "User-Agent: test\r\nX-oNe: 1\r\nHearth-Control: x\r\nConnection: X-Hop\r\nX-Hop: 1\r\n";
    let head = Caller::head("GET", &origin.url("/a?b"), fields);
    caller.ask("", &head, CallBody::None, b"").await;
    let came = caller.came().await;
    assert_eq!(came.interims, ["HTTP/1.1 103 Early Hints\r\nLINK: </a>\r\n\r\n"]);
    assert_eq!(came.head, written.replace("Hearth-Declined: x\r\n", ""));
    assert_eq!(came.text(), "ok");
    let seen = &origin.requests()[0];
    let names: Vec<&str> = seen.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Host", "User-Agent", "X-oNe"]);
}

#[tokio::test]
async fn http2_and_trailers_pass() {
    let (listener, origin, (_folder, control)) = (Listener::open(), Origin::tls(routes), ca());
    let mut caller = listener.caller().await;
    for _ in 0..2 {
        let head = Caller::head("GET", &origin.url("/trailers"), "");
        caller.ask(&control, &head, CallBody::None, b"").await;
        let came = caller.came().await;
        assert_eq!(came.protocol, 20, "{came:?}");
        assert!(came.head.starts_with("HTTP/2 200 \r\n") && came.head.ends_with("\r\n\r\n"));
        assert!(came.trailers.ends_with("\r\n"), "{came:?}");
    }
}

#[tokio::test]
async fn an_interim_answer_over_http2_says_so() {
    let (listener, origin, (_folder, control)) = (Listener::open(), Origin::tls(routes), ca());
    let mut caller = listener.caller().await;
    let head = Caller::head("GET", &origin.url("/early-hints"), "");
    caller.ask(&control, &head, CallBody::None, b"").await;
    let came = caller.came().await;
    assert!(came.interims[0].starts_with("HTTP/2 103 \r\nlink: "), "{came:?}");
    assert_eq!(came.text(), "hinted");
}

#[tokio::test]
async fn a_large_answer_waits_for_its_caller() {
    let (listener, origin) = (Listener::open(), Origin::plain(routes));
    let mut caller = listener.caller().await;
    for _ in 0..2 {
        let came = caller.get(&origin.url("/bytes/20000000")).await;
        assert_eq!(came.body.len(), 20_000_000);
    }
    assert_eq!(origin.connections().len(), 1);
}

#[tokio::test]
async fn a_large_body_is_asked_for_when_there_is_a_connection() {
    let (listener, origin) = (Listener::open(), Origin::plain(routes));
    let mut caller = listener.caller().await;
    let body = b"0123456789".repeat(300_000);
    for fields in
        [format!("Content-Length: {}\r\n", body.len()), "Transfer-Encoding: chunked\r\n".into()]
    {
        let head = Caller::head("PUT", &origin.url("/echo"), &fields);
        caller.ask("", &head, CallBody::Asked, b"").await;
        let wanted = caller.frame().await.expect("an answer");
        assert_eq!(wanted.decoded(), FromBroker::Want);
        let mut out = vec![];
        wire::send::body(&mut out, &body, true);
        let (mut read, mut write) = caller.socket.into_split();
        let mut writer = JoinSet::new();
        writer.spawn(async move {
            write.write_all(&out).await.expect("the broker reads");
            write.forget();
        });
        let mut input = vec![];
        // The echo arrives while the body is sent: a caller that only writes would wait forever.
        let end = [0, 0, 0, 0, 0x55, 0, 0, 0];
        while !input.ends_with(&end) {
            assert!(within(read.read_buf(&mut input)).await.expect("more") > 0);
        }
        assert!(input.len() > body.len());
        drop(read);
        caller = listener.caller().await;
    }
    // The broker does not request a body that it cannot send.
    let head = Caller::head("PUT", "http://127.0.0.1:1/", "Content-Length: 5\r\n");
    caller.ask("", &head, CallBody::Asked, b"").await;
    assert_eq!(caller.came().await.refusal(), (false, "connect", 7));
}

#[tokio::test]
async fn declined_and_failed_calls_keep_the_connection() {
    let (listener, origin) = (Listener::open(), Origin::plain(routes));
    let mut caller = listener.caller().await;
    for (url, expected) in [
        ("http://127.0.0.1:1/".to_owned(), (false, "connect", 7)),
        ("http://no-such-name.invalid/".to_owned(), (false, "resolve", 6)),
        ("http://169.254.1.1/".to_owned(), (false, "denied", 7)),
        ("http://user@a.test/".to_owned(), (false, "target", 0)),
        (origin.url("/empty"), (true, "empty", 52)),
        (origin.url("/rubbish"), (true, "rubbish", 1)),
        (origin.url("/reset"), (true, "reset", 56)),
    ] {
        let came = caller.get(&url).await;
        assert_eq!(came.refusal(), expected, "{url}");
        let address =
            if expected.0 { format!("127.0.0.1:{}", origin.port()) } else { String::new() };
        assert_eq!(came.address, address, "{url}");
    }
    let cut = caller.get(&origin.url("/cut")).await;
    assert_eq!(cut.refusal(), (true, "reset", 18));
    assert!(cut.head.starts_with("HTTP/1.1 200"), "{cut:?}");
    assert_eq!(caller.get(&origin.url("/bytes/3")).await.body.len(), 3);
    // An invalid head, ambiguous framing, a body that differs from the announced one, an unknown option.
    for (control, head, coming) in [
        ("", "GET http://a.test/ HTTP/1.1\r\nX: 1\n\r\n", CallBody::None),
        ("", "GET http://a.test/ HTTP/1.1\r\nContent-Length: 3\r\n\r\n", CallBody::None),
        ("", "POST http://a.test/ HTTP/1.1\r\nContent-Length: 3\r\n\r\n", CallBody::Whole),
        ("", "POST http://a.test/ HTTP/1.1\r\n\r\n", CallBody::Asked),
    ] {
        caller.ask(control, head, coming, b"four").await;
        assert_eq!(caller.came().await.refusal(), (false, "request", 0), "{head}");
    }
    let signed = Caller::head("GET", &origin.url("/bytes/3"), "Authorization: NTLM TlRM\r\n");
    caller.ask("", &signed, CallBody::None, b"").await;
    assert_eq!(caller.came().await.refusal(), (false, "unsupported", 0));
    caller.ask("unknown=1", "GET http://a.test/ HTTP/1.1\r\n\r\n", CallBody::None, b"").await;
    assert_eq!(caller.came().await.refusal(), (false, "control", 0));
    assert_eq!(caller.get(&origin.url("/bytes/3")).await.body.len(), 3);
    let unanswered: u64 =
        listener.watch.report().unanswered.iter().map(|(_, _, count)| count).sum();
    // One that breaks off behind its head has had an answer.
    assert_eq!(unanswered, 13, "{:?}", listener.watch.report());
}

#[tokio::test]
async fn without_the_token_every_call_is_declined() {
    let (listener, origin) = (Listener::open(), Origin::plain(routes));
    for token in ["", "0".repeat(64).as_str()] {
        let mut caller = listener.caller_with(token).await;
        for _ in 0..2 {
            assert_eq!(caller.get(&origin.url("/")).await.refusal(), (false, "token", 0));
        }
    }
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn abort_ends_the_call_and_keeps_the_connection() {
    let (listener, origin) = (Listener::open(), Origin::plain(routes));
    let mut caller = listener.caller().await;
    let head = Caller::head("GET", &origin.url("/never"), "");
    caller.ask("", &head, CallBody::None, b"").await;
    eventually("the origin has it", || origin.requests().len() == 1).await;
    wire::send::abort(&mut caller.out);
    let out = std::mem::take(&mut caller.out);
    caller.socket.write_all(&out).await.expect("the broker reads");
    assert_eq!(caller.came().await.refusal(), (true, "body", 0));
    eventually("the origin is free", || origin.open() == 0).await;
    // The call is aborted in the middle of a large response; frames stay complete.
    let head = Caller::head("GET", &origin.url("/bytes/50000000"), "");
    caller.ask("", &head, CallBody::None, b"").await;
    assert!(matches!(caller.frame().await.expect("an answer").decoded(), FromBroker::Answer(_)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    wire::send::abort(&mut caller.out);
    let out = std::mem::take(&mut caller.out);
    caller.socket.write_all(&out).await.expect("the broker reads");
    assert_eq!(caller.came().await.refusal(), (true, "body", 0));
    // An ABORT that comes too late is skipped, and so is the rest of a body.
    wire::send::abort(&mut caller.out);
    wire::send::body(&mut caller.out, b"old", true);
    assert_eq!(caller.get(&origin.url("/bytes/3")).await.body.len(), 3);
}

#[tokio::test]
async fn a_disconnected_caller_cancels_the_call() {
    let (listener, origin) = (Listener::open(), Origin::plain(routes));
    let mut caller = listener.caller().await;
    let head = Caller::head("GET", &origin.url("/never"), "");
    caller.ask("", &head, CallBody::None, b"").await;
    eventually("the origin has it", || origin.requests().len() == 1).await;
    drop(caller);
    eventually("the origin is free", || origin.open() == 0).await;
    eventually("no caller is left", || listener.watch.report().callers == 0).await;
}

#[tokio::test]
async fn a_disconnect_in_an_unread_upload_cancels_the_call() {
    let (listener, origin) = (Listener::open(), Origin::tls(|_| Turn::Never));
    let mut caller = listener.caller().await;
    let head = Caller::head("POST", &origin.url("/"), "Content-Length: 99999999\r\n");
    caller.ask("verify=?0", &head, CallBody::Asked, b"").await;
    let wanted = caller.frame().await.expect("an answer");
    assert_eq!(wanted.decoded(), FromBroker::Want);
    // Writes until the origin, and therefore the broker, accepts no more.
    let mut piece = vec![];
    wire::send::body(&mut piece, &[b'x'; 10_000], false);
    let pause = Duration::from_millis(300);
    let mut taken = 0;
    while let Ok(written) = tokio::time::timeout(pause, caller.socket.write_all(&piece)).await {
        written.expect("the listener is there");
        taken += piece.len();
    }
    assert!(taken < 90_000_000, "{taken} bytes taken");
    assert_eq!(listener.watch.report().callers, 1);
    drop(caller);
    eventually("no caller is left", || listener.watch.report().callers == 0).await;
}

#[tokio::test]
async fn garbage_closes_the_connection_and_sends_nothing() {
    let (listener, origin) = (Listener::open(), Origin::plain(routes));
    let mut opened = OPENING.to_vec();
    wire::send::open(&mut opened, listener.token().as_bytes());
    let mut call = opened.clone();
    let head = Caller::head("GET", &origin.url("/never"), "");
    wire::send::call(&mut call, b"", head.as_bytes(), CallBody::None).expect("it fits");
    let with = |begin: &[u8], end: &[u8]| [begin, end].concat();
    for bytes in [
        b"\0\0\0\0\0\0\0\0".to_vec(),
        b"\0hearth\x02".to_vec(),
        with(&OPENING, &[0; 8]),
        with(&OPENING, &call[opened.len()..]),
        with(&opened, &[0xff; 64]),
        with(&opened, &[0, 0, 0, 0, 0x42, 3, 0, 0]),
        with(&opened, &[0, 0, 4, 0, 0x42, 1, 0, 0]),
        with(&opened, &[4, 0, 0, 0, 0x42, 1, 0, 0, 9, 0, 0, 0]),
        with(&opened, &opened[8..]),
        with(&call, &call[opened.len()..]),
        // WHOLE is set, but no body follows.
        with(&opened, &[5, 0, 0, 0, 0x42, 2, 0, 0, 0, 0, 0, 0, b'x', 0, 0, 0, 0, 3, 0, 0, 0]),
    ] {
        let mut socket = listener.socket().await;
        socket.write_all(&bytes).await.expect("the broker reads");
        let mut rest = vec![];
        let ended = within(socket.read_to_end(&mut rest)).await;
        assert!(rest.is_empty(), "{bytes:?}: {rest:?}");
        drop(ended);
    }
    // The broker waits for the rest of a frame, which never comes.
    for length in 1..call.len() {
        let mut socket = listener.socket().await;
        socket.write_all(&call[..length]).await.expect("the broker reads");
    }
    assert!(origin.requests().len() <= 1, "only the doubled call was whole");
    let mut caller = listener.caller().await;
    assert_eq!(caller.get(&origin.url("/bytes/3")).await.body.len(), 3);
}

#[tokio::test]
async fn surplus_connections_close_after_their_call() {
    let (listener, origin) = (Listener::with(4), Origin::plain(routes));
    let mut callers = vec![];
    for _ in 0..2 {
        let mut caller = listener.caller().await;
        caller.get(&origin.url("/bytes/1")).await;
        callers.push(caller);
    }
    let mut third = listener.caller().await;
    assert_eq!(third.get(&origin.url("/bytes/3")).await.body.len(), 3);
    assert!(third.frame().await.is_none());
    assert_eq!(callers[0].get(&origin.url("/bytes/3")).await.body.len(), 3);
}

#[tokio::test]
async fn a_drain_closes_connections_after_their_call() {
    let mut listener = Listener::open();
    let origin = Origin::plain(|_| Reply::text("late").delayed(Duration::from_millis(300)).into());
    let (mut idle, mut busy) = (listener.caller().await, listener.caller().await);
    assert_eq!(idle.get(&origin.url("/")).await.text(), "late");
    busy.ask("", &Caller::head("GET", &origin.url("/"), ""), CallBody::None, b"").await;
    eventually("the origin has it", || origin.requests().len() == 2).await;
    listener.drain.cancel();
    assert!(idle.frame().await.is_none());
    assert_eq!(busy.came().await.text(), "late");
    assert!(busy.frame().await.is_none());
    assert!(within(listener.tasks.join_next()).await.is_some());
}

#[tokio::test]
async fn connections_without_a_call_keep_no_call_out() {
    let listener = Listener::with(1);
    let mut idle = Vec::new();
    // More than the listener has at once.
    for _ in 0..80 {
        let mut caller = listener.caller().await;
        caller.socket.write_all(&std::mem::take(&mut caller.out)).await.expect("a listener");
        idle.push(caller);
    }
    let origin = Origin::plain(routes);
    let mut caller = listener.caller().await;
    let came = within(caller.get(&origin.url("/bytes/3"))).await;
    assert_eq!(came.body.len(), 3, "{came:?}");
}
