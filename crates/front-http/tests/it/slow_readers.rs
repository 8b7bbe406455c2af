//! Tests clients that read slowly or not at all: within limits, the application still finishes their responses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{self, SendRequest};
use http::Request;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::{LONG, Server, made, until};

const CHUNK: usize = 16 << 10;

/// An HTTP/2 client that grants no credit for responses until the test releases it.
struct WithoutCredit {
    requests: SendRequest<Bytes>,
    read: Arc<Notify>,
    _connection: JoinSet<()>,
}

impl WithoutCredit {
    async fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let mut builder = client::Builder::new();
        let handshake = builder.initial_window_size(0).handshake(stream);
        let (requests, mut connection) = handshake.await.unwrap();
        let read = Arc::new(Notify::new());
        let told = Arc::clone(&read);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            tokio::select! {
                _ended = &mut connection => return,
                () = told.notified() => {}
            }
            connection.set_initial_window_size(1 << 20).unwrap();
            connection.set_target_window_size(1 << 20);
            drop(connection.await);
        });
        Self { requests, read, _connection: tasks }
    }

    /// Returns the response body, of which no byte arrives yet.
    async fn get(&mut self, path: &str) -> RecvStream {
        let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
        let (response, _) = self.requests.send_request(request, true).unwrap();
        tokio::time::timeout(LONG, response)
            .await
            .expect("the head needs no credit")
            .unwrap()
            .into_body()
    }
}

async fn rest(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = tokio::time::timeout(LONG, body.data()).await.unwrap() {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        bytes.extend(piece);
    }
    Ok(bytes)
}

fn all_of(chunks: usize) -> Vec<u8> {
    (0..chunks).flat_map(made).collect()
}

#[tokio::test]
async fn http2_responses_without_credit_are_buffered_whole() {
    let server = Server::start().await;
    let mut client = WithoutCredit::to(&server).await;
    let mut bodies = Vec::new();
    // In memory, and partly in a file.
    for chunks in [2, 200] {
        bodies.push((client.get(&format!("/made?{chunks}")).await, chunks));
    }
    until(&server.app.completed, 2).await;
    client.read.notify_one();
    for (mut body, chunks) in bodies {
        assert!(rest(&mut body).await.unwrap() == all_of(chunks), "{chunks}");
    }
}

#[tokio::test]
async fn an_unread_http1_response_is_buffered_whole() {
    let server = Server::with(|options, root| {
        options.buffers.directory = root.to_owned();
    })
    .await;
    let chunks = 2000;
    let mut client = server.connect().await;
    client.send(format!("GET /made?{chunks} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    until(&server.app.completed, 1).await;
    let names: Vec<_> = std::fs::read_dir(server.root.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "temporary files have no names: {names:?}");
    assert!(client.reply().await.body == all_of(chunks));
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.reply().await.text(), "app /a");
}

#[tokio::test]
async fn compressed_responses_are_buffered_whole() {
    let server = Server::start().await;
    let mut client = WithoutCredit::to(&server).await;
    let request = Request::get("http://a.example/made?100").header("accept-encoding", "gzip");
    let (response, _) = client.requests.send_request(request.body(()).unwrap(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    until(&server.app.completed, 1).await;
    client.read.notify_one();
    assert!(!rest(&mut body).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_above_the_limits_waits_for_its_client() {
    let server = Server::with(|options, _| {
        options.buffers.answer_memory = 100 << 10;
        options.buffers.answer_file = 1 << 20;
    })
    .await;
    let mut client = WithoutCredit::to(&server).await;
    let mut body = client.get("/made?1000").await;
    until(&server.app.taken, (1 << 20) / CHUNK).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let taken = server.app.taken.load(Ordering::SeqCst);
    assert!(taken < (2 << 20) / CHUNK, "{taken} chunks were taken");
    assert_eq!(server.app.completed.load(Ordering::SeqCst), 0);
    client.read.notify_one();
    assert!(rest(&mut body).await.unwrap() == all_of(1000));
}

#[tokio::test]
async fn without_buffering_a_response_follows_its_reader() {
    let server = Server::with(|options, _| options.buffers.answer_memory = 0).await;
    let mut client = WithoutCredit::to(&server).await;
    let mut body = client.get("/made?100").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(server.app.taken.load(Ordering::SeqCst) < 3);
    client.read.notify_one();
    assert!(rest(&mut body).await.unwrap() == all_of(100));
}

#[tokio::test]
async fn an_unwritable_disk_delays_the_response_and_loses_no_byte() {
    let server =
        Server::with(|options, _| options.buffers.directory = "/dev/null/nowhere".into()).await;
    let mut client = WithoutCredit::to(&server).await;
    let mut body = client.get("/made?300").await;
    until(&server.app.taken, (1 << 20) / CHUNK).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(server.app.taken.load(Ordering::SeqCst) < (2 << 20) / CHUNK);
    client.read.notify_one();
    assert!(rest(&mut body).await.unwrap() == all_of(300));
}

#[tokio::test]
async fn a_disconnect_ends_a_buffered_response() {
    let server = Server::start().await;
    let mut client = WithoutCredit::to(&server).await;
    let body = client.get("/open").await;
    until(&server.app.called, 1).await;
    drop(body);
    drop(client);
    until(&server.app.abandoned, 1).await;
    let mut client = server.connect().await;
    client.send("GET /open HTTP/1.1\r\nHost: x\r\n\r\n").await;
    client.head().await;
    drop(client);
    until(&server.app.abandoned, 2).await;
}

#[tokio::test]
async fn above_the_limit_the_longest_stalled_response_is_cut() {
    let server = Server::with(|options, _| options.max_stalled_per_client = 2).await;
    let mut client = WithoutCredit::to(&server).await;
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(client.get("/open").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until(&server.app.abandoned, 1).await;
    client.read.notify_one();
    let mut cut = bodies.remove(0);
    assert!(rest(&mut cut).await.unwrap_err().is_reset());
    for mut body in bodies {
        let piece = tokio::time::timeout(LONG, body.data()).await.unwrap();
        assert_eq!(piece.unwrap().unwrap(), made(0));
    }
    assert_eq!(server.app.abandoned.load(Ordering::SeqCst), 1);
}
