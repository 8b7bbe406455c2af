use tokio::net::TcpStream;

use super::*;
use crate::ops::state::Serving;

/// Makes a desk with a recorder that is not installed: tests run side by side in one process.
fn desk(state: &Arc<State>) -> Desk {
    Desk {
        metrics: PrometheusBuilder::new().build_recorder().handle(),
        state: Arc::clone(state),
        token: None,
        readers: mpsc::channel(feed::READERS).0,
        places: Arc::new(Semaphore::new(feed::READERS)),
    }
}

async fn ask(request: http::request::Builder, state: &Arc<State>) -> Answer {
    let request = request.header("host", "127.0.0.1:9180").body(Full::<Bytes>::default()).unwrap();
    desk(state).answer(request, &Client::default()).await
}

async fn get(path: &str, state: &Arc<State>) -> (StatusCode, String) {
    let response = ask(Request::get(path), state).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn serving() -> Serving {
    Serving {
        listeners: vec!["http://127.0.0.1:8080".into()],
        explanation: "static files in /srv/<site>".into(),
        ..Serving::default()
    }
}

#[tokio::test]
async fn up_says_ok_only_between_ready_and_drain() {
    let state = State::starting();
    assert_eq!(get("/up", &state).await, (StatusCode::SERVICE_UNAVAILABLE, "starting\n".into()));
    state.ready(serving());
    assert_eq!(get("/up", &state).await, (StatusCode::OK, "ok\n".into()));
    state.lifecycle.draining();
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
async fn rejected_requests_learn_nothing_and_responses_forbid_framing() {
    let state = State::starting();
    state.ready(serving());
    for path in ["/", "/events", "/status", "/metrics", "/realtime", "/realtime/publish"] {
        let request = Request::get(path).header("origin", "https://evil.example");
        let response = ask(request, &state).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path}");
        assert!(response.headers().get("access-control-allow-origin").is_none(), "{path}");
    }
    let page = ask(Request::get("/"), &state).await;
    assert_eq!(page.headers()[X_FRAME_OPTIONS], "DENY");
    assert_eq!(page.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(page.headers()["cross-origin-resource-policy"], "same-origin");
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn the_admin_address_is_read_only() {
    let state = State::starting();
    let post = ask(Request::post("/up"), &state).await;
    assert_eq!(post.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(post.headers()[ALLOW], "GET, HEAD");
    assert_eq!(get("/etc/passwd", &state).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn durations_have_buckets_and_connections_close_at_exit() {
    let state = State::starting();
    let admin = Admin::bind(([127, 0, 0, 1], 0).into(), None, state).await.unwrap();
    let address = admin.address().unwrap();
    let end = CancellationToken::new();
    let mut server = JoinSet::new();
    server.spawn(admin.serve(end.clone().cancelled_owned()));

    metrics::histogram!("hearth_request_duration_seconds").record(0.02);
    let mut socket = TcpStream::connect(address).await.unwrap();
    let text =
        exchange(&mut socket, "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", "+Inf").await;
    assert!(text.contains("hearth_request_duration_seconds_bucket{le=\"0.025\"} 1"), "{text}");
    assert!(text.contains("# HELP hearth_request_duration_seconds"), "{text}");

    end.cancel();
    server.join_next().await.unwrap().unwrap();
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest).await.unwrap();
}

#[tokio::test]
async fn admin_requests_are_answered_at_exit() {
    let state = State::starting();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (readers, joining) = mpsc::channel(feed::READERS);
    let admin = Admin { listener, desk: Desk { readers, ..desk(&state) }, joining };
    let end = CancellationToken::new();
    let mut server = JoinSet::new();
    server.spawn(admin.serve(end.clone().cancelled_owned()));

    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut looking = TcpStream::connect(address).await.unwrap();
    // Both are accepted when the later one receives something.
    let request = "GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    exchange(&mut looking, request, "event: state").await;
    end.cancel();
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut looking, &mut rest).await.unwrap();
    let request = "GET /up HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    exchange(&mut silent, request, "starting").await;
    tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut rest).await.unwrap();
    server.join_next().await.unwrap().unwrap();
}

/// Has as many silent connections as there may be, and asks for `/up` on another one. Returns the time that took.
async fn probe_beside_silent_connections() -> Duration {
    use tokio::io::AsyncReadExt as _;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (readers, joining) = mpsc::channel(feed::READERS);
    let admin = Admin { listener, desk: Desk { readers, ..desk(&State::starting()) }, joining };
    let end = CancellationToken::new();
    let mut server = JoinSet::new();
    server.spawn(admin.serve(end.clone().cancelled_owned()));
    let began = tokio::time::Instant::now();
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut probe = TcpStream::connect(address).await.unwrap();
    exchange(&mut probe, "GET /up HTTP/1.1\r\nhost: a\r\n\r\n", "starting").await;
    let elapsed = began.elapsed();
    // The oldest one made room.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0);
    end.cancel();
    server.join_next().await.unwrap().unwrap();
    elapsed
}

#[tokio::test]
async fn connections_that_send_nothing_delay_no_probe() {
    // A machine that stands still is as slow as a probe that waits for a place.
    for _ in 0..5 {
        if probe_beside_silent_connections().await < HEADER_TIMEOUT {
            return;
        }
    }
    panic!("each probe waited for the end of a silent connection");
}

#[tokio::test]
async fn a_client_that_reads_no_answer_loses_its_connection() {
    use tokio::io::AsyncWriteExt as _;
    const LIMIT: Duration = Duration::from_mins(1);
    let (mut theirs, ours) = tokio::io::duplex(256);
    let client = Arc::new(Client::lasting(Duration::ZERO, Duration::from_millis(100)));
    let mut attended = JoinSet::new();
    let desk = desk(&State::starting());
    attended.spawn(desk.attend(ours, client, CancellationToken::new()));
    // Until there is no room for an answer, nor for a request.
    let asks =
        async { while theirs.write_all(b"GET /up HTTP/1.1\r\nhost: a\r\n\r\n").await.is_ok() {} };
    timeout(LIMIT, asks).await.expect("the connection is closed");
    attended.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn only_event_streams_with_access_outlast_the_time_limit() {
    let state = State::starting();
    let with_token = Desk { token: Some(Token::draw()), ..desk(&state) };
    let token = with_token.token.as_ref().unwrap().expose();
    for (path, given, lasts) in [
        ("/events", token, true),
        ("/realtime/events?watch=a", token, true),
        ("/events", "another", false),
        ("/status", token, false),
        ("/up", token, false),
    ] {
        let client = Client::default();
        let request = Request::get(path).header("authorization", format!("bearer {given}"));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        drop(with_token.answer(request, &client).await);
        assert_eq!(client.is_endless(), lasts, "{path} {given}");
    }
}

#[tokio::test]
async fn at_most_sixteen_dashboards_are_open() {
    let state = State::starting();
    let (readers, mut joining) = mpsc::channel(100);
    let desk = Desk { readers, ..desk(&state) };
    let look = || desk.events(CancellationToken::new());
    let mut all: Vec<Answer> = (0..feed::READERS).map(|_| look()).collect();
    assert!(all.iter().all(|answer| answer.status() == StatusCode::OK));
    assert_eq!(look().status(), StatusCode::SERVICE_UNAVAILABLE);
    all.pop();
    let mut last = look();
    assert_eq!(last.status(), StatusCode::OK);
    let mut reader = None;
    while let Ok(joined) = joining.try_recv() {
        reader = Some(joined);
    }
    assert!(reader.unwrap().send(&feed::event("{}")));
    let frame = last.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "event: state\ndata: {}\n\n");
}

/// Sends a request and reads until `mark` has come.
async fn exchange(socket: &mut TcpStream, request: &str, mark: &str) -> String {
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

#[test]
fn only_a_listener_at_the_configured_address_is_taken_over() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = listener.local_addr().unwrap();
    assert!(is_at(&listener, Some(bound)));
    assert!(is_at(&listener, Some(SocketAddr::new(bound.ip(), 0))));
    let other_port = SocketAddr::new(bound.ip(), bound.port() ^ 1);
    for other in [None, Some(other_port), Some(SocketAddr::new([127, 0, 0, 2].into(), 0))] {
        assert!(!is_at(&listener, other), "{other:?}");
    }
}
