use http_body_util::BodyExt;

use super::*;

/// A recorder that is not installed: tests run side by side in one process.
fn metrics() -> PrometheusHandle {
    PrometheusBuilder::new().build_recorder().handle()
}

async fn get(path: &str, state: &State) -> (StatusCode, String) {
    let response = answer(&Request::get(path).body(()).unwrap(), Some(&metrics()), state);
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn serving() -> Serving {
    Serving {
        pool: None,
        listeners: vec!["http://127.0.0.1:8080".into()],
        model: None,
        explanation: "static files in /srv/<site>".into(),
        egress: None,
        connectors: Vec::new(),
        realtime: None,
    }
}

#[tokio::test]
async fn up_says_ok_only_between_ready_and_drain() {
    let state = State::starting();
    assert_eq!(get("/up", &state).await, (StatusCode::SERVICE_UNAVAILABLE, "starting\n".into()));
    state.ready(serving());
    assert_eq!(get("/up", &state).await, (StatusCode::OK, "ok\n".into()));
    state.draining();
    assert_eq!(get("/up", &state).await, (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into()));
}

#[tokio::test]
async fn the_status_is_json_and_the_page_escapes_what_it_shows() {
    let state = State::starting();
    state.ready(serving());
    let (_, json) = get("/status", &state).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["state"], "ready");
    assert_eq!(json["listeners"][0], "http://127.0.0.1:8080");
    assert!(json["pool"].is_null());
    let (_, page) = get("/", &state).await;
    assert!(page.contains("static files in /srv/&lt;site&gt;"), "{page}");
}

#[tokio::test]
async fn nothing_can_be_changed_and_nothing_else_is_there() {
    let state = State::starting();
    let post = answer(&Request::post("/up").body(()).unwrap(), Some(&metrics()), &state);
    assert_eq!(post.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(post.headers()[ALLOW], "GET, HEAD");
    assert_eq!(get("/etc/passwd", &state).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn durations_have_buckets_and_old_connections_end_with_the_server() {
    let state = State::starting();
    let admin = Admin::bind(([127, 0, 0, 1], 0).into(), state).await.unwrap();
    let address = admin.address().unwrap();
    let end = CancellationToken::new();
    let mut server = JoinSet::new();
    server.spawn(admin.serve(end.clone()));

    metrics::histogram!("hearth_request_duration_seconds").record(0.02);
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let text = exchange(&mut socket, "GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n", "+Inf").await;
    assert!(text.contains("hearth_request_duration_seconds_bucket{le=\"0.025\"} 1"), "{text}");
    assert!(text.contains("# HELP hearth_request_duration_seconds"), "{text}");

    end.cancel();
    server.join_next().await.unwrap().unwrap();
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest).await.unwrap();
}

/// Sends a request and reads until `mark` has come.
async fn exchange(socket: &mut tokio::net::TcpStream, request: &str, mark: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(mark) {
        let length = socket.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "connection closed early: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    text
}
