//! Tests HTTP/3 with h3's client.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes};
use front_http::{Options, RequestBuffering};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use http::{Method, Request, Response, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::{LONG, Server, eventually, made, until};
use crate::tls::certificates;

pub(crate) type Stream = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// A client that believes every certificate.
pub(crate) fn endpoint() -> quinn::Endpoint {
    let (config, _) = testkit::credulous(&["h3"]);
    let config = QuicClientConfig::try_from(config).unwrap();
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    endpoint
}

pub(crate) async fn connect(address: SocketAddr) -> quinn::Connection {
    let connecting = endpoint().connect(address, "localhost").unwrap();
    timeout(LONG, connecting).await.unwrap().unwrap()
}

pub(crate) struct Http3 {
    pub(crate) quic: quinn::Connection,
    pub(crate) requests: SendRequest<h3_quinn::OpenStreams, Bytes>,
    pub(crate) driver: JoinSet<h3::error::ConnectionError>,
}

impl Http3 {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let quic = connect(address).await;
        let (mut connection, requests) =
            h3::client::new(h3_quinn::Connection::new(quic.clone())).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move { std::future::poll_fn(|cx| connection.poll_close(cx)).await });
        Self { quic, requests, driver }
    }

    /// Sends a head; the body is still to come.
    pub(crate) async fn begin(&mut self, request: http::request::Builder) -> Stream {
        timeout(LONG, self.requests.send_request(request.body(()).unwrap())).await.unwrap().unwrap()
    }

    pub(crate) async fn send(&mut self, request: http::request::Builder, body: &[u8]) -> Stream {
        let mut stream = self.begin(request).await;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body)).await.unwrap();
        }
        stream.finish().await.unwrap();
        stream
    }

    pub(crate) async fn get(&mut self, path: &str) -> (Response<()>, Vec<u8>) {
        let mut stream = self.send(Request::get(url(path)), b"").await;
        let head = head(&mut stream).await;
        (head, read(&mut stream).await.unwrap())
    }
}

pub(crate) fn url(path: &str) -> String {
    format!("https://a.example{path}")
}

pub(crate) async fn head(stream: &mut Stream) -> Response<()> {
    timeout(LONG, stream.recv_response()).await.unwrap().unwrap()
}

pub(crate) async fn read(stream: &mut Stream) -> Result<Vec<u8>, StreamError> {
    let mut body = Vec::new();
    while let Some(mut piece) = timeout(LONG, stream.recv_data()).await.unwrap()? {
        body.extend(piece.copy_to_bytes(piece.remaining()));
    }
    Ok(body)
}

/// Starts a front with TLS and HTTP/3.
pub(crate) async fn server() -> Server {
    server_with(|_, _| {}).await
}

pub(crate) async fn server_with(change: impl FnOnce(&mut Options, &Path)) -> Server {
    Server::with(|options, root| {
        options.tls = Some(certificates());
        options.listen[0].tls = true;
        options.http3 = true;
        change(options, root);
    })
    .await
}

#[tokio::test]
async fn http3_requests_are_answered_side_by_side() {
    let server = server().await;
    server.write("app.css", "body{}");
    let mut client = Http3::to(server.address()).await;
    let mut slow = client.send(Request::get(url("/slow?300")), b"").await;
    let (head, body) = client.get("/a").await;
    assert_eq!((head.status(), body.as_slice()), (StatusCode::OK, &b"app /a"[..]));
    assert_eq!(head.headers()["content-length"], "6");
    assert_eq!(head.headers()["server"], "Hearth");
    assert!(head.headers().contains_key("date"));
    let (head, body) = client.get("/app.css").await;
    assert_eq!(head.headers()["content-type"], "text/css; charset=utf-8");
    assert_eq!(body, b"body{}");
    let ranged = Request::get(url("/app.css")).header("range", "bytes=1-2");
    let mut ranged = client.send(ranged, b"").await;
    let head = self::head(&mut ranged).await;
    assert_eq!(head.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(head.headers()["content-range"], "bytes 1-2/6");
    assert_eq!(read(&mut ranged).await.unwrap(), b"od");
    assert_eq!(client.get("/chunks").await.1, b"one two three");
    assert_eq!(client.get("/large").await.1.len(), 65_536);
    let mut headed = client.send(Request::head(url("/large")), b"").await;
    assert_eq!(self::head(&mut headed).await.status(), StatusCode::OK);
    assert_eq!(read(&mut headed).await.unwrap(), b"");
    assert_eq!(self::head(&mut slow).await.status(), StatusCode::OK);
    assert_eq!(read(&mut slow).await.unwrap(), b"slow");
}

#[tokio::test]
async fn the_application_sees_http_3() {
    let server = server().await;
    let mut client = Http3::to(server.address()).await;
    let (head, body) = client.get("/describe?q").await;
    assert!(!head.headers().contains_key("alt-svc"), "it is there already");
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(told["version"], "HTTP/3.0");
    assert_eq!(told["uri"], "/describe?q");
    assert_eq!(told["server_name"], "a.example");
    assert_eq!(told["scheme"], "Https");
    assert_eq!(told["local_port"], server.address().port());
    assert_eq!(told["headers"], serde_json::json!([["host", "a.example"]]));
    assert!(told["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
}

#[tokio::test]
async fn early_hints_come_before_an_answer_over_http3() {
    let server = server().await;
    let mut client = Http3::to(server.address()).await;
    let mut stream = client.send(Request::get(url("/hint")), b"").await;
    let hint = head(&mut stream).await;
    assert_eq!(hint.status(), StatusCode::EARLY_HINTS);
    assert_eq!(hint.headers()["link"], "</app.css>; rel=preload; as=style");
    assert!(!hint.headers().contains_key("connection"));
    assert_eq!(head(&mut stream).await.status(), StatusCode::OK);
    assert_eq!(read(&mut stream).await.unwrap(), b"after the hint");
}

#[tokio::test]
async fn uploads_over_http3_arrive_whole() {
    for buffering in [RequestBuffering::All, RequestBuffering::Forms] {
        let server = server_with(|options, _| options.request_buffering = buffering).await;
        let mut client = Http3::to(server.address()).await;
        for (path, length) in [("/upload", None), ("/upload", Some(3 << 20))] {
            let mut request = Request::put(url(path));
            if let Some(length) = length {
                request = request.header("content-length", length);
            }
            let mut stream = client.begin(request).await;
            for _ in 0..48 {
                timeout(LONG, stream.send_data(vec![b'x'; 64 << 10].into()))
                    .await
                    .unwrap()
                    .unwrap();
            }
            stream.finish().await.unwrap();
            assert_eq!(head(&mut stream).await.status(), StatusCode::OK);
            assert_eq!(read(&mut stream).await.unwrap(), b"3145728 bytes", "{length:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_over_http3_gets_it() {
    let server =
        server_with(|options, _| options.request_buffering = RequestBuffering::Forms).await;
    let mut client = Http3::to(server.address()).await;
    let mut stream =
        client.begin(Request::put(url("/upload")).header("expect", "100-continue")).await;
    assert_eq!(head(&mut stream).await.status(), StatusCode::CONTINUE);
    stream.send_data(Bytes::from_static(b"four")).await.unwrap();
    stream.finish().await.unwrap();
    assert_eq!(head(&mut stream).await.status(), StatusCode::OK);
    assert_eq!(read(&mut stream).await.unwrap(), b"4 bytes");
}

#[tokio::test]
async fn a_body_over_the_limit_gets_413_over_http3() {
    let server = server_with(|options, _| options.max_body = 10).await;
    let mut client = Http3::to(server.address()).await;
    let mut stream = client.send(Request::put(url("/upload")), b"more than ten bytes").await;
    assert_eq!(head(&mut stream).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_client_that_gives_a_request_up_over_http3_frees_its_worker() {
    let server = server().await;
    let mut client = Http3::to(server.address()).await;
    let mut hanging = client.send(Request::get(url("/hang")), b"").await;
    until(&server.app.called, 1).await;
    hanging.stop_sending(Code::H3_REQUEST_CANCELLED);
    until(&server.app.abandoned, 1).await;
    let mut endless = client.send(Request::get(url("/endless")), b"").await;
    head(&mut endless).await;
    endless.stop_sending(Code::H3_REQUEST_CANCELLED);
    until(&server.app.abandoned, 2).await;
    // The connection lives on; one that is gone takes its requests along.
    assert_eq!(client.get("/a").await.1, b"app /a");
    let _hanging = client.send(Request::get(url("/hang")), b"").await;
    until(&server.app.called, 4).await;
    client.quic.close(0_u32.into(), b"");
    until(&server.app.abandoned, 3).await;
    eventually("the place is free", || server.connections.is_empty()).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_resets_its_http3_stream() {
    let server = server().await;
    let mut client = Http3::to(server.address()).await;
    for path in ["/cut", "/short-of-length"] {
        let mut stream = client.send(Request::get(url(path)), b"").await;
        assert_eq!(head(&mut stream).await.status(), StatusCode::OK);
        let error = read(&mut stream).await.unwrap_err();
        let StreamError::RemoteTerminate { code, .. } = error else { panic!("{error}") };
        assert_eq!(code, Code::H3_INTERNAL_ERROR, "{path}");
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_over_http3_is_reset() {
    let server = server_with(|options, _| options.write_timeout = Duration::from_secs(1)).await;
    let mut client = Http3::to(server.address()).await;
    let mut stream = client.send(Request::get(url("/endless")), b"").await;
    head(&mut stream).await;
    until(&server.app.abandoned, 1).await;
    assert_eq!(server.limited(front_http::ClientLimit::SlowReading), 1);
}

/// Starts a line to a server, on which this many bytes come from it in a second. Returns the address of its other end.
async fn slow_line(server: SocketAddr, rate: u32, tasks: &mut JoinSet<()>) -> SocketAddr {
    let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = near.local_addr().unwrap();
    far.connect(server).await.unwrap();
    let (to_client, client) = tokio::sync::watch::channel(None);
    let (queue, mut queued) = tokio::sync::mpsc::channel::<Vec<u8>>(32);
    let (requests, answers) = (Arc::clone(&near), Arc::clone(&far));
    tasks.spawn(async move {
        let mut packet = [0; 2048];
        while let Ok((length, from)) = requests.recv_from(&mut packet).await {
            to_client.send_replace(Some(from));
            far.send(&packet[..length]).await.unwrap();
        }
    });
    tasks.spawn(async move {
        let mut packet = [0; 2048];
        while let Ok(length) = answers.recv(&mut packet).await {
            // What does not fit is lost, as in a router.
            let _lost = queue.try_send(packet[..length].to_vec()).is_err();
        }
    });
    tasks.spawn(async move {
        let mut free = Instant::now();
        while let Some(packet) = queued.recv().await {
            let length = u32::try_from(packet.len()).unwrap();
            free = free.max(Instant::now()) + Duration::from_secs(1) * length / rate;
            tokio::time::sleep_until(free).await;
            let client = client.borrow().unwrap();
            near.send_to(&packet, client).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn an_answer_over_a_slow_line_arrives_whole_over_http3() {
    let patience = Duration::from_secs(1);
    let server = server_with(|options, _| options.write_timeout = patience).await;
    let mut line = JoinSet::new();
    let address = slow_line(server.address(), 300_000, &mut line).await;
    let mut client = Http3::to(address).await;
    let began = Instant::now();
    // All of it has room in the server's send window: the server waits for its end only.
    let (_, body) = client.get("/made?64").await;
    assert_eq!(body.len(), 64 * made(0).len());
    assert!(began.elapsed() > 2 * patience, "it took {:?}", began.elapsed());
    assert_eq!(client.get("/a").await.1, b"app /a");
    assert_eq!(server.limited(front_http::ClientLimit::SlowReading), 0);
}

#[tokio::test]
async fn answers_over_tcp_offer_http3() {
    let server = server().await;
    let mut client = crate::tls::http2_of(&server).await;
    let (head, _) = client.get("/a").await;
    let port = server.address().port();
    assert_eq!(head.headers["alt-svc"], format!("h3=\":{port}\"; ma=86400"));
    // A router maps this one to the listener's.
    let mapped = server_with(|options, _| options.https_port = NonZeroU16::new(8443)).await;
    let (head, _) = crate::tls::http2_of(&mapped).await.get("/a").await;
    assert_eq!(head.headers["alt-svc"], "h3=\":8443\"; ma=86400");
}

#[tokio::test]
async fn a_drain_answers_what_runs_over_http3_and_rejects_the_rest() {
    let mut server = server().await;
    let mut client = Http3::to(server.address()).await;
    let mut held = client.send(Request::get(url("/held")), b"").await;
    until(&server.app.called, 1).await;
    server.begin_stop();
    let refused = async {
        loop {
            let request = Request::get(url("/a")).body(()).unwrap();
            let Ok(mut stream) = client.requests.send_request(request).await else { return };
            if stream.finish().await.is_err() || stream.recv_response().await.is_err() {
                return;
            }
        }
    };
    timeout(LONG, refused).await.expect("requests after GOAWAY are rejected");
    server.app.release.notify_one();
    assert_eq!(head(&mut held).await.status(), StatusCode::OK);
    assert_eq!(read(&mut held).await.unwrap(), b"held");
    let closed = timeout(LONG, client.driver.join_next()).await.unwrap().unwrap().unwrap();
    assert!(closed.is_h3_no_error(), "{closed}");
    server.ended().await;
}

#[tokio::test]
async fn http3_connections_take_places_like_others() {
    let server = server_with(|options, _| {
        // One is for the next client over TCP.
        options.max_connections = 3;
        options.keep_alive_timeout = LONG;
    })
    .await;
    let mut first = Http3::to(server.address()).await;
    let mut second = Http3::to(server.address()).await;
    let mut held = (
        first.send(Request::get(url("/held")), b"").await,
        second.send(Request::get(url("/held")), b"").await,
    );
    until(&server.app.called, 2).await;
    let third = endpoint().connect(server.address(), "localhost").unwrap();
    let refused = timeout(LONG, third).await.unwrap().unwrap_err();
    assert!(matches!(refused, quinn::ConnectionError::ConnectionClosed(_)), "{refused}");
    server.app.release.notify_waiters();
    assert_eq!(head(&mut held.0).await.status(), StatusCode::OK);
    assert_eq!(head(&mut held.1).await.status(), StatusCode::OK);
    // Both are idle now, and make room.
    let mut third = Http3::to(server.address()).await;
    assert_eq!(third.get("/a").await.1, b"app /a");
}

#[tokio::test]
async fn a_host_with_an_impossible_port_is_refused_over_http2_and_http3() {
    let server = server().await;
    let mut http2 = crate::tls::http2_of(&server).await;
    let mut http3 = Http3::to(server.address()).await;
    for (port, expected) in [("99999", 400), ("65536", 400), ("65535", 200)] {
        let request = || Request::get(format!("https://a.example:{port}/a"));
        let (answer, _) = http2.requests.send_request(request().body(()).unwrap(), true).unwrap();
        let answer = timeout(LONG, answer).await.unwrap().unwrap();
        assert_eq!(answer.status(), expected, "{port} over HTTP/2");
        let mut stream = http3.send(request(), b"").await;
        assert_eq!(head(&mut stream).await.status(), expected, "{port} over HTTP/3");
    }
}

#[tokio::test]
async fn methods_of_connections_are_refused_over_http3() {
    let server = server().await;
    let mut client = Http3::to(server.address()).await;
    for method in [Method::CONNECT, Method::TRACE] {
        let mut stream = client.send(Request::builder().method(method).uri(url("/")), b"").await;
        assert_eq!(head(&mut stream).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
    assert_eq!(server.app.called.load(Ordering::SeqCst), 0);
}
