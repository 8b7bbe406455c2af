//! Tests draining: requests in progress are answered, idle connections are closed at once.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::{Server, until};

#[tokio::test]
async fn requests_in_flight_are_answered_and_idle_connections_closed_at_once() {
    let mut server = Server::start().await;
    let mut idle = server.connect().await;
    idle.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(idle.reply().await.status, 200);
    let mut silent = server.connect().await;
    let mut busy = server.connect().await;
    busy.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&server.app.called, 2).await;

    server.begin_stop();
    assert_eq!(idle.rest().await, b"");
    assert_eq!(silent.rest().await, b"");
    assert!(TcpStream::connect(server.address()).await.is_err());

    server.app.release.notify_one();
    let reply = busy.reply().await;
    assert_eq!(
        (reply.text().as_str(), reply.field("connection").as_deref()),
        ("held", Some("close"))
    );
    assert_eq!(busy.rest().await, b"");
    server.ended().await;
}

#[tokio::test]
async fn a_half_sent_head_does_not_delay_the_exit() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 200);
    client.send("GET /b HTT").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.begin_stop();
    server.ended().await;
}

#[tokio::test]
async fn the_drain_limit_ends_connections() {
    let mut server = Server::with(|options, _| options.patience = Duration::from_millis(100)).await;
    let mut client = server.connect().await;
    client.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&server.app.called, 1).await;
    server.begin_stop();
    server.ended().await;
    assert_eq!(client.rest().await, b"");
    until(&server.app.abandoned, 1).await;
}

#[tokio::test]
async fn an_unread_access_log_does_not_delay_the_exit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Both ends are opened, so that opening does not block.
    let pipe = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut server = Server::with(|options, _| {
        options.patience = Duration::from_millis(100);
        options.access_log = Some(front_http::AccessLog {
            format: front_http::AccessLogFormat::Common,
            target: front_http::AccessLogTarget::File(path),
        });
    })
    .await;
    // More than a pipe buffers.
    let mut client = server.connect().await;
    for _ in 0..12 {
        client.send(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(10_000))).await;
        assert_eq!(client.reply().await.status, 200);
    }
    server.begin_stop();
    server.ended().await;
    // The writer's thread now gets an error, and the test can end.
    drop(pipe);
}
