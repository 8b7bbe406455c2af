//! Tests limits and time-outs for what clients send.

use std::sync::atomic::Ordering;
use std::time::Duration;

use front_http::{ClientLimit, RequestBuffering};

use crate::support::{Server, until};

#[tokio::test]
async fn a_body_of_a_known_length_over_the_limit_never_reaches_php() {
    let server = Server::with(|options, _| options.max_body = 10).await;
    let mut client = server.connect().await;
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n01234567890").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.field("connection").as_deref()), (413, Some("close")));
    assert_eq!(server.app.called.load(Ordering::SeqCst), 0);
    let reply = server
        .ask("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789")
        .await;
    assert_eq!(reply.text(), "10 bytes");
}

#[tokio::test]
async fn a_chunked_body_is_cut_at_the_limit() {
    let server = Server::with(|options, _| options.max_body = 10).await;
    let mut client = server.connect().await;
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n").await;
    client.send("8\r\n01234567\r\n0\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 413);
}

#[tokio::test]
async fn a_paused_body_is_answered_with_408() {
    let server = Server::with(|options, _| options.body_timeout = Duration::from_millis(100)).await;
    let mut client = server.connect().await;
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.field("connection").as_deref()), (408, Some("close")));
    assert_eq!(server.limited(ClientLimit::SlowBody), 1);
}

#[tokio::test]
async fn a_slow_but_steady_body_is_accepted() {
    // The total exceeds the limit, but each pause is far below it.
    let server = Server::with(|options, _| options.body_timeout = Duration::from_secs(3)).await;
    let mut client = server.connect().await;
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n").await;
    for _ in 0..8 {
        client.send("x").await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(client.reply().await.text(), "8 bytes");
}

#[tokio::test]
async fn an_incomplete_body_is_an_error() {
    let server =
        Server::with(|options, _| options.request_buffering = RequestBuffering::Forms).await;
    let mut client = server.connect().await;
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234").await;
    until(&server.app.read, 5).await;
    drop(client);
    // The next request shows that the front still runs.
    assert_eq!(server.get("/a").await.status, 200);
}

#[tokio::test]
async fn heads_over_the_limits_are_refused() {
    let server = Server::with(|options, _| {
        options.max_head = 8192;
        options.max_headers = 20;
        options.max_uri = 100;
    })
    .await;
    let many = "X: 1\r\n".repeat(25);
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(9000)), 431),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"), 431),
        (format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(100)), 414),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(7000)), 200),
    ] {
        assert_eq!(server.ask(&request).await.status, status);
    }
}

#[tokio::test]
async fn a_slowly_sent_head_is_cut() {
    let server =
        Server::with(|options, _| options.header_timeout = Duration::from_millis(300)).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n").await;
    // It would continue for ten seconds, or forever if each line restarted the time-out.
    let mut lines = 0;
    while lines < 200 && client.send_if_taken("X: y\r\n").await {
        tokio::time::sleep(Duration::from_millis(50)).await;
        lines += 1;
    }
    assert!(lines < 200);
    assert_eq!(server.app.called.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_slow_head_gets_408_and_silence_does_not() {
    let server =
        Server::with(|options, _| options.header_timeout = Duration::from_millis(100)).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHo").await;
    assert!(client.rest().await.starts_with(b"HTTP/1.1 408 "));
    assert_eq!(server.limited(ClientLimit::SlowHead), 1);
    let mut client = server.connect().await;
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn later_slowly_sent_heads_are_cut_too() {
    let server =
        Server::with(|options, _| options.header_timeout = Duration::from_millis(100)).await;
    let mut client = server.connect().await;
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.reply().await.status, 200);
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.send("GET /a HT").await;
    assert!(client.rest().await.starts_with(b"HTTP/1.1 408 "));
}

#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected_in_bounded_memory() {
    let server = Server::with(|options, _| {
        options.write_timeout = Duration::from_millis(200);
        options.buffers.answer_memory = 64 << 10;
        options.buffers.answer_file = 256 << 10;
    })
    .await;
    let mut client = server.connect().await;
    client.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&server.app.abandoned, 1).await;
    assert_eq!(server.limited(ClientLimit::SlowReading), 1);
    let taken = server.app.taken.load(Ordering::SeqCst) * (16 << 10);
    assert!(taken < 64 << 20, "{taken} bytes were made for a client that reads none");
}

#[tokio::test]
async fn a_client_above_its_rate_gets_429_with_retry_after() {
    let server = Server::with(|options, _| {
        options.rules.rate_limits =
            ["/login 2/h", "/assets 1/h"].map(|rule| rule.parse().unwrap()).into();
    })
    .await;
    server.write("assets/app.css", "body{}");
    for path in ["/login", "//login/../login"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    for path in ["/login", "/%6cogin", "/login/", "/index.php/login", "/login?again"] {
        let refused = server.get(path).await;
        assert_eq!(refused.status, 429, "{path}");
        let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
        assert!((1790..=1800).contains(&wait), "{wait}");
    }
    for _ in 0..3 {
        assert_eq!(server.get("/assets/app.css").await.status, 200, "files are not counted");
    }
    assert_eq!(server.get("/other").await.status, 200);
    assert_eq!(server.limited(ClientLimit::Rate), 5);
}

#[tokio::test]
async fn rates_count_the_client_that_a_trusted_proxy_names() {
    let server = Server::with(|options, _| {
        options.rules.rate_limits = vec!["/ 1/h".parse().unwrap()];
        options.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    })
    .await;
    let of = |client: &str| format!("X-Forwarded-For: {client}");
    for (client, status) in [
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        ("192.0.2.2", 200),
        ("2001:db8::1", 200),
        ("2001:db8::2", 429),
    ] {
        assert_eq!(server.get_with("/", &of(client)).await.status, status, "{client}");
    }
    // The proxy itself, for its own checks.
    for _ in 0..3 {
        assert_eq!(server.get("/").await.status, 200);
    }
}
