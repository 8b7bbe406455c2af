//! Tests the HTTP requirements of responses, and the front's own pages.

use crate::support::Server;

#[tokio::test]
async fn connection_fields_are_set_by_the_front() {
    let server = Server::start().await;
    let reply = server.get("/fields").await;
    assert!(reply.head.starts_with("HTTP/1.1 200 Fine\r\n"), "{}", reply.head);
    for name in ["connection", "transfer-encoding", "keep-alive"] {
        assert_eq!(reply.field(name), None, "{name}");
    }
    assert_eq!(reply.field("set-cookie").as_deref(), Some("a=1|b=2"));
    assert_eq!(reply.field("server").as_deref(), Some("PHP"));
    assert!(reply.field("date").is_some());
}

#[tokio::test]
async fn head_204_and_304_have_no_body_and_leave_the_connection_usable() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    for status in [204, 304] {
        client.send(format!("GET /status?{status} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let head = client.head().await;
        assert_eq!(head.status, status);
        assert_eq!(head.field("transfer-encoding"), None);
    }
    client
        .send("HEAD /missing-in-app HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.reply().await.text(), "app /b");
    assert_eq!(server.app.abandoned.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_wrong_content_length_of_a_whole_answer_is_corrected() {
    let server = Server::start().await;
    let reply = server.get("/wrong-length").await;
    assert_eq!(
        (reply.field("content-length").as_deref(), reply.text().as_str()),
        (Some("3"), "abc")
    );
}

#[tokio::test]
async fn contradictory_lengths_lose_no_response() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    for (said, length) in [
        ("200,stream,5,6", None),
        ("200,stream,5,5", Some("5")),
        ("200,stream,five", None),
        ("200,whole,5,6", Some("5")),
        ("200,whole,5,5", Some("5")),
        ("204,whole,5", None),
        ("204,stream,5,6", None),
        ("304,stream,5,6", None),
    ] {
        client.send(format!("GET /lengths?{said} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let reply = client.reply().await;
        assert_eq!(reply.field("content-length").as_deref(), length, "{said}: {}", reply.head);
        let body = if reply.status == 200 { "abcde" } else { "" };
        assert_eq!(reply.text(), body, "{said}");
    }
    for (said, length) in [("200,stream,5,6", None), ("200,whole,7,7", Some("7"))] {
        client.send(format!("HEAD /lengths?{said} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let head = client.head().await;
        assert_eq!((head.status, head.field("content-length").as_deref()), (200, length), "{said}");
    }
}

#[tokio::test]
async fn an_answer_shorter_than_promised_ends_the_connection() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /short-of-length HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.head().await.field("content-length").as_deref(), Some("10"));
    assert_eq!(client.rest().await, b"abc");
}

#[tokio::test]
async fn dispatch_errors_map_to_status_codes() {
    let server = Server::start().await;
    for (how, status, retry) in [
        ("overloaded", 503, true),
        ("draining", 503, true),
        ("died", 502, false),
        ("late", 504, false),
        ("head", 431, false),
    ] {
        let reply = server.get_with(&format!("/fails?{how}"), "Accept: application/json").await;
        assert_eq!(reply.status, status, "{how}");
        assert_eq!(reply.field("retry-after").is_some(), retry, "{how}");
        assert_eq!(
            reply.field("connection").as_deref(),
            (how == "draining").then_some("close"),
            "{how}"
        );
        let json = reply.json();
        assert_eq!(json["status"], status);
        assert_eq!(json["request_id"].as_str(), reply.field("x-request-id").as_deref());
        assert!(!reply.text().contains("secret"), "{}", reply.text());
    }
}

#[tokio::test]
async fn each_response_has_the_request_id_given_to_php() {
    let server = Server::start().await;
    let first = server.get("/describe").await;
    let second = server.get("/describe").await;
    assert_eq!(first.json()["id"].as_str(), first.field("x-request-id").as_deref());
    assert_ne!(first.field("x-request-id"), second.field("x-request-id"));
    let server = Server::with(|options, _| {
        options.request_id_header = false;
        options.server_header = false;
    })
    .await;
    let reply = server.get("/a").await;
    assert_eq!((reply.field("x-request-id"), reply.field("server")), (None, None));
}

#[tokio::test]
async fn requests_are_logged_with_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut server = Server::with(|options, _| {
        options.access_log = Some(front_http::AccessLog {
            format: front_http::AccessLogFormat::Json,
            target: front_http::AccessLogTarget::File(path.clone()),
        });
    })
    .await;
    let reply = server.get_with("/a?b=1", "User-Agent: probe").await;
    server.get("/.env").await;
    server.begin_stop();
    server.ended().await;
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["url.path"], "/a");
    assert_eq!(lines[0]["url.query"], "b=1");
    assert_eq!(lines[0]["http.response.status_code"], 200);
    assert_eq!(lines[0]["http.response.body.size"], 6);
    assert_eq!(lines[0]["user_agent.original"], "probe");
    assert_eq!(lines[0]["request_id"].as_str(), reply.field("x-request-id").as_deref());
    assert_eq!(lines[1]["http.response.status_code"], 404);
}

#[tokio::test]
async fn the_server_field_is_the_one_of_the_reference_unless_the_application_sends_its_own() {
    let reference = include_str!("../../../../docs/reference/config.md");
    let section = reference.split("### `http.server_header`").nth(1).unwrap();
    let documented = section.split("`Server: ").nth(1).unwrap().split('`').next().unwrap();
    for on in [true, false] {
        let server = Server::with(|options, _| options.server_header = on).await;
        let of_front = on.then_some(documented);
        assert_eq!(server.get("/a").await.field("server").as_deref(), of_front);
        assert_eq!(server.get("/%zz").await.field("server").as_deref(), of_front);
        assert_eq!(server.get("/fields").await.field("server").as_deref(), Some("PHP"));
    }
}
