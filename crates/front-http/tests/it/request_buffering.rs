//! Tests request bodies that are received before the application gets the request, and the minimum rate of all
//! bodies.

use std::future::poll_fn;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use front_http::{Options, Release, RequestBuffering};
use http::Request;
use tokio::net::TcpStream;

use crate::http2::Http2;
use crate::support::{App, Client, LONG, Server, hash_of, until};

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
const MULTI: &str = "Content-Type: multipart/form-data; boundary=b\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
const FORMS: RequestBuffering = RequestBuffering::Forms;
const ALL: RequestBuffering = RequestBuffering::All;

/// Returns a client that has sent a head and received 100 Continue.
async fn asked_for_body(server: &Server, method: &str, fields: &str) -> Client<TcpStream> {
    let mut client = server.connect().await;
    client
        .send(format!("{method} /hash HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{fields}\r\n"))
        .await;
    assert_eq!(client.head().await.status, 100);
    client
}

fn called(server: &Server) -> usize {
    server.app.called.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_body_is_received_before_dispatch() {
    for (buffering, method, kind) in
        [(ALL, "POST", JSON), (ALL, "PUT", ""), (FORMS, "POST", FORM), (FORMS, "PUT", MULTI)]
    {
        let server = Server::with(|options, _| options.request_buffering = buffering).await;
        let mut client =
            asked_for_body(&server, method, &format!("{kind}Content-Length: 10\r\n")).await;
        client.send("01234").await;
        assert_eq!(server.get("/other").await.status, 200);
        assert_eq!(called(&server), 1, "{method} {kind}");
        client.send("56789").await;
        assert_eq!(client.reply().await.text(), hash_of(Some(10), b"0123456789"));

        let chunked = format!("{kind}Transfer-Encoding: chunked\r\n");
        let mut client = asked_for_body(&server, method, &chunked).await;
        client.send("5\r\n01234\r\n").await;
        assert_eq!(server.get("/other").await.status, 200);
        assert_eq!(called(&server), 3, "{method} {kind}");
        client.send("5\r\n56789\r\n0\r\n\r\n").await;
        assert_eq!(client.reply().await.text(), hash_of(Some(10), b"0123456789"));
        assert_eq!(called(&server), 4);
    }
}

#[tokio::test]
async fn with_forms_buffering_other_bodies_stream() {
    let server = Server::with(|options, _| options.request_buffering = FORMS).await;
    let mut client = server.connect().await;
    client
        .send(format!("PUT /upload HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 10\r\n\r\n01234"))
        .await;
    until(&server.app.read, 5).await;
    client.send("56789").await;
    assert_eq!(client.reply().await.text(), "10 bytes");
}

#[tokio::test]
async fn an_incomplete_body_never_reaches_the_application() {
    let server = Server::start().await;
    for framing in ["Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = asked_for_body(&server, "POST", &format!("{FORM}{framing}")).await;
        client.send("5\r\n01").await;
        drop(client);
    }
    assert_eq!(server.get("/other").await.status, 200);
    // An invalid chunk.
    let mut client =
        asked_for_body(&server, "POST", &format!("{FORM}Transfer-Encoding: chunked\r\n")).await;
    client.send("5\r\n01234\r\nxyz\r\n").await;
    assert_eq!(client.reply().await.status, 400);
    assert_eq!(called(&server), 1);
}

#[tokio::test]
async fn a_body_over_the_limit_never_reaches_the_application() {
    let server = Server::with(|options, _| options.max_body = 10).await;
    let mut client =
        asked_for_body(&server, "POST", &format!("{FORM}Transfer-Encoding: chunked\r\n")).await;
    client.send("8\r\n01234567\r\n").await;
    client.send("8\r\n01234567\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.field("connection").as_deref()), (413, Some("close")));
    assert_eq!(called(&server), 0);
}

#[tokio::test]
async fn a_client_below_the_minimum_rate_gets_408() {
    for (buffering, calls) in [(ALL, 0), (FORMS, 1)] {
        let server = Server::with(|options, _| {
            options.request_buffering = buffering;
            options.body_timeout = Duration::from_millis(500);
            options.body_min_rate = NonZeroU64::new(1 << 20);
        })
        .await;
        let mut client = server.connect().await;
        client.send("PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").await;
        // Without the rate limit this takes 4 hours: no pause comes near the limit.
        let mut drops = 0;
        while drops < 1000 && !client.is_answered_within(Duration::from_millis(15)).await {
            let _taken = client.send_if_taken("x").await;
            drops += 1;
        }
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.field("connection").as_deref()), (408, Some("close")));
        assert_eq!(called(&server), calls);
    }
}

#[tokio::test]
async fn a_large_body_goes_through_a_file_unchanged() {
    let server = Server::start().await;
    let body: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut client = server.connect().await;
    client
        .send(format!("POST /hash HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()))
        .await;
    client.send(&body).await;
    assert_eq!(client.reply().await.text(), hash_of(Some(body.len() as u64), &body));
    let mut client = server.connect().await;
    client.send("POST /hash HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for piece in body.chunks(100_000) {
        client.send(format!("{:x}\r\n", piece.len())).await;
        client.send(piece).await;
        client.send("\r\n").await;
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.reply().await.text(), hash_of(Some(body.len() as u64), &body));
}

#[tokio::test]
async fn a_body_without_disk_space_becomes_507() {
    let large = vec![b'x'; 1 << 20];
    for (disk, directory, status) in
        [(100 << 10, std::env::temp_dir(), 507), (1 << 30, PathBuf::from("/nonexistent"), 500)]
    {
        let server = Server::with(|options, _| {
            options.buffers.memory = 0;
            options.buffers.disk = disk;
            options.buffers.directory = directory;
        })
        .await;
        let mut client = server.connect().await;
        client
            .send(format!(
                "POST /hash HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
                large.len()
            ))
            .await;
        // It may be rejected before all of it is sent.
        let _taken = client.send_if_taken(&large).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.field("connection").as_deref()), (status, Some("close")));
        assert_eq!(called(&server), 0);
        let small = &large[..3000];
        let mut client = server.connect().await;
        client.send("POST /hash HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n").await;
        client.send(&small[..1000]).await;
        client.send(&small[1000..]).await;
        assert_eq!(client.reply().await.text(), hash_of(Some(3000), small));
    }
}

#[tokio::test]
async fn half_sent_bodies_hold_only_their_streams() {
    let server = Server::start().await;
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let mut client = Http2::over(stream).await;
    let mut halves = Vec::new();
    for _ in 0..100 {
        let request = Request::post("http://a.example/hash").body(()).unwrap();
        let (response, mut body) =
            client.requests.clone().ready().await.unwrap().send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"half"), false).unwrap();
        halves.push((response, body));
    }
    let (head, body) = client.get("/other").await;
    assert_eq!((head.status.as_u16(), body.as_slice()), (200, &b"app /other"[..]));
    assert_eq!(called(&server), 1);
    for (response, mut body) in halves {
        body.send_data(Bytes::from_static(b"half"), true).unwrap();
        let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(called(&server), 101);
}

#[tokio::test]
async fn a_stream_gets_credit_as_its_body_is_received() {
    let server = Server::start().await;
    let mut client = Http2::over(TcpStream::connect(server.address()).await.unwrap()).await;
    let request = Request::post("http://a.example/hash").body(()).unwrap();
    let (response, mut body) = client.requests.send_request(request, false).unwrap();
    let all: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut left = all.clone();
    while !left.is_empty() {
        assert_eq!(called(&server), 0);
        body.reserve_capacity(left.len());
        let credit =
            tokio::time::timeout(LONG, poll_fn(|cx| body.poll_capacity(cx))).await.unwrap();
        let piece: Vec<u8> = left.drain(..credit.unwrap().unwrap()).collect();
        body.send_data(piece.into(), left.is_empty()).unwrap();
    }
    let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap();
    let mut answer = response.into_body();
    let text = tokio::time::timeout(LONG, answer.data()).await.unwrap().unwrap().unwrap();
    assert_eq!(text, hash_of(Some(4_000_000), &all));
}

#[tokio::test]
async fn a_body_received_during_a_reload_goes_to_the_new_release() {
    let mut server = Server::start().await;
    let mut client =
        asked_for_body(&server, "POST", &format!("{FORM}Content-Length: 10\r\n")).await;
    client.send("01234").await;
    let old = Arc::downgrade(&std::mem::take(&mut server.app).called);
    let new = App::default();
    let release = Release::new(&Options::new(server.root.path())).unwrap();
    server.switch.to(release, [new.clone()]);
    assert!(old.upgrade().is_none(), "the old release is held by a body that arrives");
    client.send("56789").await;
    assert_eq!(client.reply().await.text(), hash_of(Some(10), b"0123456789"));
    assert_eq!(new.called.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upload_that_other_streams_keep_from_being_sent_is_not_too_slow() {
    let server = Server::with(|options, _| {
        options.request_buffering = FORMS;
        options.body_timeout = Duration::from_millis(200);
    })
    .await;
    let mut client = Http2::to(&server).await;
    let mut start = |path: &str| {
        let request = Request::put(format!("http://a.example{path}")).body(()).unwrap();
        client.requests.send_request(request, false).unwrap()
    };
    // Together all that the connection may send before something is read.
    let mut held: Vec<_> = (0..4).map(|_| start("/held")).collect();
    for (_, body) in &mut held {
        body.send_data(vec![b'x'; 256 << 10].into(), false).unwrap();
    }
    until(&server.app.called, 4).await;
    let (response, mut body) = start("/upload");
    body.send_data(vec![b'x'; 10].into(), true).unwrap();
    until(&server.app.called, 5).await;
    // Longer than the client may pause.
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.app.release.notify_waiters();
    let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
}
