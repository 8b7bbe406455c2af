//! Tests HTTP/1.1 connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use front_http::RequestBuffering;

use crate::support::{PIECES, Server, until};

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    for path in ["/a", "/b", "/c"] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert_eq!(client.reply().await.text(), format!("app {path}"));
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client
        .send("GET /slow?100 HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    for expected in ["slow", "app /a", "app /b"] {
        assert_eq!(client.reply().await.text(), expected);
    }
}

#[tokio::test]
async fn early_hints_come_before_the_answer_and_between_answers() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send("GET /hint HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let hint = client.head().await;
        assert_eq!(
            hint.head,
            "HTTP/1.1 103 Early Hints\r\nlink: </app.css>; rel=preload; as=style\r\n\r\n"
        );
        assert_eq!(client.reply().await.text(), "after the hint");
    }
}

#[tokio::test]
async fn a_hint_in_a_pipeline_never_cuts_into_another_answer() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let large = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
    let hint = "GET /hint HTTP/1.1\r\nHost: x\r\n\r\n";
    let at_once = "GET /hint?at-once HTTP/1.1\r\nHost: x\r\n\r\n";
    client.send([large, hint, large, at_once, large].concat()).await;
    let mut bodies = Vec::new();
    while bodies.len() < 5 {
        let reply = client.reply().await;
        if reply.status == 200 {
            bodies.push(reply.body.len());
        } else {
            assert_eq!(reply.status, 103);
        }
    }
    assert_eq!(bodies, [65_536, 14, 65_536, 14, 65_536]);
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_no_hint_and_no_chunks() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /hint HTTP/1.0\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "after the hint"));
    let mut client = server.connect().await;
    client.send("GET /chunks HTTP/1.0\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!(reply.field("transfer-encoding"), None);
    assert_eq!(reply.text(), "one two three");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_chunked() {
    let server = Server::start().await;
    let reply = server.get("/chunks").await;
    assert_eq!(reply.field("transfer-encoding").as_deref(), Some("chunked"));
    assert_eq!(reply.text(), "one two three");
}

#[tokio::test]
async fn a_cut_answer_ends_the_connection_without_its_last_chunk() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /cut HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.rest().await, b"5\r\nbegin\r\n");
}

#[tokio::test]
async fn long_pieces_that_have_arrived_are_one_chunk_and_a_cut_behind_them_is_one() {
    let server = Server::start().await;
    let chunk = [format!("{:X}\r\n", 112 << 10).as_bytes(), PIECES[0], PIECES[1], b"\r\n"].concat();
    for (path, end) in [("/long", &b"0\r\n\r\n"[..]), ("/long?cut", b"")] {
        let mut client = server.connect().await;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(client.head().await.status, 200);
        let rest = client.rest().await;
        assert!(rest == [&chunk, end].concat(), "{path}: {} bytes", rest.len());
    }
}

#[tokio::test]
async fn expect_100_continue_is_answered_when_the_body_is_read() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let head =
        "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    client.send(head).await;
    assert_eq!(client.head().await.status, 100);
    client.send("hello").await;
    assert_eq!(client.reply().await.text(), "5 bytes");
    // A body that is passed on as it arrives is not requested if nothing reads it.
    let server =
        Server::with(|options, _| options.request_buffering = RequestBuffering::Forms).await;
    let mut client = server.connect().await;
    client.send(head.replace("/upload", "/a")).await;
    assert_eq!(client.reply().await.text(), "app /a");
}

#[tokio::test]
async fn a_disconnected_client_ends_its_request() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&server.app.called, 1).await;
    // A client that only closes its sending side does that together with its request.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.app.abandoned.load(Ordering::SeqCst), 0);
    drop(client);
    until(&server.app.abandoned, 1).await;
}

#[tokio::test]
async fn a_half_closed_client_gets_its_response() {
    let server = Server::start().await;
    for (request, answer) in [
        ("GET /slow?1000 HTTP/1.1\r\nHost: x\r\n\r\n", "slow"),
        ("GET /chunks HTTP/1.1\r\nHost: x\r\n\r\n", "one two three"),
        ("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "5 bytes"),
        (
            "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            "2 bytes",
        ),
    ] {
        let mut client = server.connect().await;
        client.send(request).await;
        client.finish_sending().await;
        assert_eq!(client.reply().await.text(), answer, "{request}");
        assert_eq!(client.rest().await, b"", "then the connection ends");
    }
    // Half a body is none.
    let mut client = server.connect().await;
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhello").await;
    client.finish_sending().await;
    assert!(!client.rest().await.starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_failed_write_ends_the_request_at_once() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    client.head().await;
    drop(client);
    until(&server.app.abandoned, 1).await;
}

#[tokio::test]
async fn a_pipelined_request_is_answered_next() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    client.send("hello").await;
    assert_eq!(client.reply().await.text(), "5 bytes");
    for number in 0..3 {
        client.send("GET /slow?100 HTTP/1.1\r\nHost: x\r\n\r\n").await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert_eq!(client.reply().await.text(), "slow");
        assert_eq!(client.reply().await.text(), format!("app /{number}"));
    }
}

#[tokio::test]
async fn ambiguous_lengths_are_rejected_or_close_the_connection() {
    let server = Server::start().await;
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding:\r\n chunked",
    ] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /upload HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\nhelloGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"))
            .await;
        let everything = String::from_utf8(client.rest().await).unwrap();
        assert!(everything.starts_with("HTTP/1.1 400"), "{fields}: {everything}");
        assert!(!everything.contains("smuggled"), "{fields}: {everything}");
    }
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
    ] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /upload HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"))
            .await;
        let everything = String::from_utf8(client.rest().await).unwrap();
        assert!(everything.contains("0 bytes") && !everything.contains("smuggled"), "{everything}");
    }
    assert_eq!(server.app.called.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn requests_without_a_valid_host_or_target_are_refused() {
    let server = Server::start().await;
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 204),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
    ] {
        assert_eq!(server.ask(request).await.status, status, "{request:?}");
    }
}

#[tokio::test]
async fn an_absolute_target_names_the_host() {
    let server = Server::start().await;
    let told = server
        .ask("GET http://right.example:81/describe?q HTTP/1.1\r\nHost: wrong\r\n\r\n")
        .await
        .json();
    assert_eq!(told["uri"], "/describe?q");
    assert_eq!(told["server_name"], "right.example");
    assert_eq!(told["headers"], serde_json::json!([["host", "right.example:81"]]));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_keep_alive_timeout() {
    let server = Server::with(|options, _| {
        options.keep_alive_timeout = Duration::from_secs(2);
    })
    .await;
    let mut client = server.connect().await;
    // The total exceeds the limit, but each pause is far below it.
    for _ in 0..4 {
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(client.reply().await.status, 200);
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn a_request_may_take_longer_than_every_idle_timeout() {
    let server = Server::with(|options, _| {
        options.keep_alive_timeout = Duration::from_millis(50);
        options.header_timeout = Duration::from_millis(50);
    })
    .await;
    assert_eq!(server.get("/slow?300").await.text(), "slow");
}

#[tokio::test]
async fn a_unix_socket_serves_as_a_trusted_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("front.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut server = Server::with(|options, _| {
        let address = front_http::Address::Unix(path.clone());
        options.listen = vec![front_http::Listen::plain(address)];
    })
    .await;
    let mut client =
        crate::support::Client::new(tokio::net::UnixStream::connect(&path).await.unwrap());
    client
        .send("GET /describe HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\r\n")
        .await;
    let told = client.reply().await.json();
    assert_eq!(
        (told["remote"].as_str(), told["scheme"].as_str()),
        (Some("203.0.113.9:0"), Some("Https"))
    );
    server.begin_stop();
    server.ended().await;
    assert!(!path.exists());
}

/// hyper adds its cached date after all other fields, and its cache does not follow a clock that is set back.
#[tokio::test]
async fn a_response_has_one_current_date() {
    let server = Server::start().await;
    for (path, line) in [("/a", "content-length"), ("/chunks", "transfer-encoding")] {
        let reply = server.get(path).await;
        let at = |name: &str| reply.head.find(&format!("\r\n{name}: "));
        assert!(at("date").unwrap() < at(line).unwrap(), "{}", reply.head);
        let date = reply.field("date").unwrap();
        assert!(httpdate::parse_http_date(&date).is_ok(), "{date}");
    }
}

#[tokio::test]
async fn an_answer_to_an_unread_upload_reaches_a_client_that_still_sends() {
    let server = Server::start().await;
    server.write("a.txt", "text");
    let piece = vec![b'x'; 64 << 10];
    for (request, status) in [
        ("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 500000000\r\n\r\n", 413),
        ("POST /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n", 405),
        ("POST /a b HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n", 400),
    ] {
        let mut client = server.connect().await;
        client.send(request).await;
        // The client looks for the answer after 8 MiB, which are more than the buffers of both sockets.
        for _ in 0..128 {
            assert!(client.send_if_taken(&piece).await, "{status}: reset");
        }
        let reply = client.reply().await;
        assert_eq!(reply.status, status);
        assert!(client.rest().await.is_empty());
    }
}
