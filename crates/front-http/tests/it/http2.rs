//! Tests HTTP/2 by prior knowledge; TLS has its own tests.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use front_http::RequestBuffering;
use h2::client::{self, SendRequest};
use h2::{Reason, RecvStream};
use http::{Request, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{LONG, Server, until};

pub(crate) struct Http2 {
    pub(crate) requests: SendRequest<Bytes>,
    pub(crate) connection: JoinSet<Result<(), h2::Error>>,
}

impl Http2 {
    pub(crate) async fn over<S>(stream: S) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, connection) = client::handshake(stream).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        Self { requests, connection: tasks }
    }

    pub(crate) async fn to(server: &Server) -> Self {
        Self::over(TcpStream::connect(server.address()).await.unwrap()).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> (http::response::Parts, Vec<u8>) {
        let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
        let (response, _) = self.requests.send_request(request, true).unwrap();
        let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap();
        let (head, body) = response.into_parts();
        (head, read(body).await.unwrap())
    }

    async fn ended(&mut self) {
        let ended = tokio::time::timeout(LONG, self.connection.join_next()).await;
        assert!(ended.expect("the connection ends").is_some());
    }
}

async fn read(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = tokio::time::timeout(LONG, body.data()).await.unwrap() {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        bytes.extend(chunk);
    }
    Ok(bytes)
}

#[tokio::test]
async fn streams_are_answered_side_by_side() {
    let server = Server::start().await;
    server.write("app.css", "body{}");
    let mut client = Http2::to(&server).await;
    let slow = Request::get("http://a.example/slow?300").body(()).unwrap();
    let (slow, _) = client.requests.send_request(slow, true).unwrap();
    let (head, body) = client.get("/a").await;
    assert_eq!((head.status, body.as_slice()), (StatusCode::OK, &b"app /a"[..]));
    assert_eq!(head.headers["content-length"], "6");
    assert_eq!(head.headers["server"], "Hearth");
    assert!(head.headers.contains_key("date"));
    let (head, body) = client.get("/app.css").await;
    assert_eq!(
        (&head.headers["content-type"], body.as_slice()),
        (&"text/css; charset=utf-8".parse().unwrap(), &b"body{}"[..])
    );
    let (_, body) = client.get("/chunks").await;
    assert_eq!(body, b"one two three");
    assert_eq!(read(slow.await.unwrap().into_body()).await.unwrap(), b"slow");
}

#[tokio::test]
async fn the_application_sees_host_and_version() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    let (_, body) = client.get("/describe?q").await;
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(told["version"], "HTTP/2.0");
    assert_eq!(told["uri"], "/describe?q");
    assert_eq!(told["server_name"], "a.example");
    assert_eq!(told["headers"], serde_json::json!([["host", "a.example"]]));
}

#[tokio::test]
async fn early_hints_come_before_the_answer() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    let request = Request::get("http://a.example/hint").body(()).unwrap();
    let (mut response, _) = client.requests.send_request(request, true).unwrap();
    let hint = tokio::time::timeout(LONG, poll_fn(|cx| response.poll_informational(cx)))
        .await
        .unwrap()
        .expect("a hint comes")
        .unwrap();
    assert_eq!(hint.status(), StatusCode::EARLY_HINTS);
    assert_eq!(hint.headers()["link"], "</app.css>; rel=preload; as=style");
    assert!(!hint.headers().contains_key("connection"));
    let body = read(response.await.unwrap().into_body()).await.unwrap();
    assert_eq!(body, b"after the hint");
}

#[tokio::test]
async fn a_large_upload_gets_credit_as_it_is_read() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    let request = Request::post("http://a.example/upload").body(()).unwrap();
    let (response, mut body) = client.requests.send_request(request, false).unwrap();
    let mut left = vec![b'x'; 3 << 20];
    while !left.is_empty() {
        body.reserve_capacity(left.len());
        let credit =
            tokio::time::timeout(LONG, poll_fn(|cx| body.poll_capacity(cx))).await.unwrap();
        let piece: Vec<u8> = left.drain(..credit.unwrap().unwrap()).collect();
        body.send_data(piece.into(), left.is_empty()).unwrap();
    }
    let body = read(response.await.unwrap().into_body()).await.unwrap();
    assert_eq!(body, b"3145728 bytes");
}

#[tokio::test]
async fn an_unread_upload_gets_no_more_credit() {
    let server =
        Server::with(|options, _| options.request_buffering = RequestBuffering::Forms).await;
    let mut client = Http2::to(&server).await;
    let request = Request::post("http://a.example/hang").body(()).unwrap();
    let (_response, mut body) = client.requests.send_request(request, false).unwrap();
    body.reserve_capacity(2 << 20);
    let mut sent = 0;
    while let Ok(Some(Ok(credit))) =
        tokio::time::timeout(Duration::from_millis(200), poll_fn(|cx| body.poll_capacity(cx))).await
    {
        sent += credit;
        body.send_data(vec![0; credit].into(), false).unwrap();
        body.reserve_capacity(2 << 20);
    }
    assert!(sent <= 256 << 10, "{sent} bytes were taken ahead");
}

#[tokio::test]
async fn a_body_over_the_limit_is_answered_with_413() {
    let server = Server::with(|options, _| options.max_body = 10).await;
    let mut client = Http2::to(&server).await;
    let request = Request::post("http://a.example/upload").body(()).unwrap();
    let (response, mut body) = client.requests.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"01234567890"), true).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_reset_stream_ends_its_request_and_no_other() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    let request = Request::get("http://a.example/hang").body(()).unwrap();
    let (response, mut stream) = client.requests.send_request(request, true).unwrap();
    until(&server.app.called, 1).await;
    stream.send_reset(Reason::CANCEL);
    drop(response);
    until(&server.app.abandoned, 1).await;
    assert_eq!(client.get("/a").await.1, b"app /a");
}

#[tokio::test]
async fn a_stream_without_credit_is_reset() {
    let server = Server::with(|options, _| {
        options.write_timeout = Duration::from_millis(200);
        options.buffers.answer_memory = 64 << 10;
        options.buffers.answer_file = 256 << 10;
    })
    .await;
    let mut client = Http2::to(&server).await;
    let request = Request::get("http://a.example/endless").body(()).unwrap();
    let (response, _) = client.requests.send_request(request, true).unwrap();
    let body = response.await.unwrap().into_body();
    until(&server.app.abandoned, 1).await;
    assert!(server.app.taken.load(Ordering::SeqCst) < 96);
    drop(body);
    assert_eq!(client.get("/a").await.1, b"app /a");
}

#[tokio::test]
async fn a_cut_or_short_answer_resets_its_stream() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    for path in ["/cut", "/short-of-length"] {
        let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
        let (response, _) = client.requests.send_request(request, true).unwrap();
        let error = read(response.await.unwrap().into_body()).await.unwrap_err();
        assert!(error.is_reset(), "{path}: {error}");
    }
    assert_eq!(client.get("/a").await.1, b"app /a");
}

#[tokio::test]
async fn a_rapid_reset_client_is_disconnected() {
    let server = Server::start().await;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // An empty SETTINGS frame.
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for stream in (1_u32..600).step_by(2) {
        // HEADERS with END_HEADERS and END_STREAM: GET http://a/ in HPACK's static table, then RST_STREAM with
        // CANCEL.
        bytes.extend([0, 0, 6, 1, 0x05]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend([0x82, 0x86, 0x84, 0x01, 0x01, b'a']);
        bytes.extend([0, 0, 4, 3, 0]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend([0, 0, 0, 8]);
    }
    let mut client = server.connect().await;
    client.send(bytes).await;
    let mut answer = client.rest().await;
    let mut goaway = None;
    while answer.len() >= 9 {
        let length =
            usize::from(answer[0]) << 16 | usize::from(answer[1]) << 8 | usize::from(answer[2]);
        let frame: Vec<u8> = answer.drain(..9 + length).collect();
        if frame[3] == 7 {
            goaway = Some(u32::from_be_bytes(frame[13..17].try_into().unwrap()));
        }
    }
    assert_eq!(goaway, Some(0xb), "GOAWAY with ENHANCE_YOUR_CALM");
    assert_eq!(server.get("/a").await.status, 200);
}

#[tokio::test]
async fn expect_100_continue_is_answered_when_the_body_is_read() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    let request =
        Request::post("http://a.example/upload").header("expect", "100-continue").body(()).unwrap();
    let (mut response, mut body) = client.requests.send_request(request, false).unwrap();
    let interim = tokio::time::timeout(LONG, poll_fn(|cx| response.poll_informational(cx)));
    assert_eq!(interim.await.unwrap().unwrap().unwrap().status(), StatusCode::CONTINUE);
    body.send_data(Bytes::from_static(b"hello"), true).unwrap();
    assert_eq!(read(response.await.unwrap().into_body()).await.unwrap(), b"5 bytes");
}

#[tokio::test]
async fn draining_answers_open_streams_and_sends_goaway() {
    let mut server = Server::start().await;
    let mut idle = Http2::to(&server).await;
    assert_eq!(idle.get("/a").await.1, b"app /a");
    let mut busy = Http2::to(&server).await;
    let request = Request::get("http://a.example/slow?400").body(()).unwrap();
    let (response, _) = busy.requests.send_request(request, true).unwrap();
    until(&server.app.called, 2).await;
    server.begin_stop();
    idle.ended().await;
    assert_eq!(read(response.await.unwrap().into_body()).await.unwrap(), b"slow");
    busy.ended().await;
    server.ended().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_keep_alive_timeout() {
    let server =
        Server::with(|options, _| options.keep_alive_timeout = Duration::from_millis(100)).await;
    let mut client = Http2::to(&server).await;
    assert_eq!(client.get("/slow?300").await.1, b"slow");
    client.ended().await;
}

#[tokio::test]
async fn http2_follows_the_same_method_and_path_rules() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    assert_eq!(client.get("/.env").await.0.status, StatusCode::NOT_FOUND);
    assert_eq!(client.get("/%2e%2e/etc").await.0.status, StatusCode::BAD_REQUEST);
    let (head, body) = client.get("/fields").await;
    assert_eq!(body, b"fields");
    assert!(!head.headers.contains_key("connection") && !head.headers.contains_key("keep-alive"));
    let request = Request::head("http://a.example/words").body(()).unwrap();
    let (response, _) = client.requests.send_request(request, true).unwrap();
    assert_eq!(read(response.await.unwrap().into_body()).await.unwrap(), b"");
}

#[tokio::test]
async fn contradictory_lengths_reset_no_stream() {
    let server = Server::start().await;
    let mut client = Http2::to(&server).await;
    for (said, length) in [
        ("200,stream,5,6", None),
        ("200,stream,5,5", Some("5")),
        ("200,whole,5,6", Some("5")),
        ("204,whole,5", None),
        ("304,whole,5", Some("5")),
    ] {
        let (head, body) = client.get(&format!("/lengths?{said}")).await;
        let found = head.headers.get_all("content-length").iter().collect::<Vec<_>>();
        assert_eq!(found, length.into_iter().collect::<Vec<_>>(), "{said}");
        assert_eq!(body, if head.status == 200 { &b"abcde"[..] } else { b"" }, "{said}");
    }
}

#[tokio::test]
async fn fields_over_the_limit_are_refused_and_cookies_count_as_one() {
    let server = Server::with(|options, _| options.max_headers = 20).await;
    let mut client = Http2::to(&server).await;
    for (name, status) in [("x", 431), ("cookie", 200)] {
        let mut request = Request::get("http://a.example/a");
        for _ in 0..25 {
            request = request.header(name, "a=1");
        }
        let (response, _) = client.requests.send_request(request.body(()).unwrap(), true).unwrap();
        let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap();
        assert_eq!(response.status(), status, "{name}");
    }
    assert_eq!(server.app.called.load(Ordering::SeqCst), 1);
}
