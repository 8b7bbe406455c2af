//! Channels in `hearth serve`: on the application's own port, and PHP publishes to them.

mod lookup;
pub(crate) mod losses;
mod mercure;
mod shared;
mod signatures;
mod streams;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Running, eventually};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

use crate::hearth::{Hearth, LIMIT, Serve, Site, models, of_tier, whole_line};

const APP: &[&str] = &["--app", "1:key:secret"];

/// Publishes the events in the query, and prints the result.
const PUBLISH: &str = "<?php
$channels = $_GET['channels'] ?? 'news';
try {
    $said = isset($_GET['text']) ? $_GET['text'] : ['n' => (int) ($_GET['n'] ?? 0)];
    echo json_encode([hearth_can_publish(), hearth_publish($channels, 'said', $said, $_GET['except'] ?? null)]);
} catch (\\Throwable $error) {
    echo get_class($error), ': ', $error->getMessage();
}";

/// A client of channels.
pub(crate) struct Client(WebSocket<TcpStream>);

impl Client {
    /// Opens a WebSocket. The first message is `connection_established`, or an error.
    pub(crate) fn open(hearth: &Hearth, key: &str) -> Self {
        Self::open_through(hearth.address, key, &[])
    }

    /// Opens a WebSocket with the fields that a proxy adds.
    fn open_through(address: SocketAddr, key: &str, fields: &[(&'static str, &str)]) -> Self {
        let request = format!("ws://{address}/app/{key}?protocol=7");
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut request = request.into_client_request().unwrap();
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let (socket, answer) = tungstenite::client(request, stream).unwrap();
        assert_eq!(answer.status(), 101);
        Self(socket)
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    /// Returns the next message, with its data as JSON.
    pub(crate) fn next(&mut self) -> (String, Value) {
        let Message::Text(text) = self.0.read().unwrap() else { panic!("no text") };
        let message: Value = serde_json::from_str(&text).unwrap();
        let data = match &message["data"] {
            Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            other => other.clone(),
        };
        (message["event"].as_str().unwrap().to_owned(), data)
    }

    /// Returns a client that has subscribed to a public channel, and its socket id.
    fn hearing(hearth: &Hearth, channel: &str) -> (Self, String) {
        let mut client = Self::open(hearth, "key");
        let (event, data) = client.next();
        assert_eq!(event, "pusher:connection_established");
        client.send(&json!({"event": "pusher:subscribe", "data": {"channel": channel}}));
        assert_eq!(client.next().0, "pusher_internal:subscription_succeeded");
        (client, data["socket_id"].as_str().unwrap().to_owned())
    }

    /// Returns the code with which the server closes the connection.
    pub(crate) fn closed(&mut self) -> u16 {
        loop {
            match self.0.read().unwrap() {
                Message::Close(Some(frame)) => return frame.code.into(),
                Message::Close(None) => panic!("closed without a code"),
                _ => {}
            }
        }
    }
}

fn said(n: u32) -> (String, Value) {
    ("said".to_owned(), json!({ "n": n }))
}

#[test]
fn events_published_by_php_are_received_in_every_model() {
    for model in &models() {
        let (site, path) = Site::of_scripts_in(model);
        site.write("public/publish.php", PUBLISH);
        let hearth = Serve::new(path).model(model).args(APP).workers(1).start();
        let (mut one, socket) = Client::hearing(&hearth, "news");
        let (mut two, _) = Client::hearing(&hearth, "talk");
        for n in 1..4 {
            let target = format!("/publish.php?n={n}&channels[]=news&channels[]=talk");
            assert_eq!(hearth.get(&target).text(), "[true,true]", "{model}");
            assert_eq!(one.next(), said(n), "{model}");
            assert_eq!(two.next(), said(n), "{model}");
        }
        // The event is not sent back to its sender; a text is delivered unchanged.
        hearth.get(&format!("/publish.php?n=4&except={socket}"));
        hearth.get("/publish.php?text=plain");
        assert_eq!(one.next(), ("said".to_owned(), json!("plain")), "{model}");
    }
}

#[test]
fn exceeding_a_publish_limit_throws_in_php() {
    let site = Site::empty().with_file("public/index.php", PUBLISH);
    let hearth = Serve::new(site.path()).args(APP).workers(1).start();
    for (query, exception) in [
        ("channels=a+b", "must name channels"),
        ("channels[]=", "must name channels"),
        ("text=%ff", "must be UTF-8"),
        ("except=1", "must be the id of a socket"),
    ] {
        let text = hearth.get(&format!("/?{query}")).text();
        assert!(text.starts_with("ValueError: ") && text.contains(exception), "{text}");
    }
    let long = "x".repeat(10 * 1024 + 1);
    assert!(hearth.get(&format!("/?text={long}")).text().contains("at most 10240 bytes"));
}

/// Publishes to the number of channels in the query, with names and data of the given length.
const MUCH: &str = "<?php
$names = array_map(fn ($n) => str_pad((string) $n, (int) $_GET['name'], 'c'), range(1, (int) $_GET['channels']));
try {
    echo json_encode(hearth_publish($names, 'said', str_repeat('x', (int) $_GET['data'])));
} catch (\\Throwable $error) {
    echo get_class($error), ': ', $error->getMessage();
}";

#[test]
fn an_event_that_cannot_be_sent_at_once_throws() {
    let limits = "[realtime.apps.1]\nkey = \"key\"\nsecret = \"secret\"\nchannels_per_event = 200000\n\
        channel_name = 10000\nevent_data = \"10MiB\"\n";
    let site = Site::empty().with_file("public/index.php", MUCH).with_file("hearth.toml", limits);
    let hearth = Serve::new(site.path()).workers(1).start();
    let ask = |channels: usize, name: usize, data: usize| {
        hearth.get(&format!("/?channels={channels}&name={name}&data={data}")).text()
    };
    for (channels, name, data) in [(1024, 5, 10), (1024, 1000, 10), (1, 5, 1_040_000)] {
        assert_eq!(ask(channels, name, data), "true", "{channels} of {name}, {data}");
    }
    for channels in [1025, 20_000] {
        let refused = format!(
            "ValueError: hearth_publish(): Argument #1 ($channels) must name between 1 and 1024 channels, got {channels}"
        );
        assert_eq!(ask(channels, 5, 10), refused);
    }
    for (channels, name, data) in [(1024, 10_000, 10), (1, 5, 1_048_576)] {
        let refused = ask(channels, name, data);
        assert!(refused.starts_with("ValueError: hearth_publish(): an event's data and names may have 1040384 bytes in all"), "{refused}");
    }
    assert_eq!(ask(1, 5, 10), "true");
}

#[test]
fn publishing_without_an_application_gives_a_hint() {
    let site = Site::empty().with_file("public/index.php", PUBLISH);
    let hearth = Hearth::request(&site);
    let text = hearth.get("/").text();
    assert!(text.starts_with("Error: hearth_publish(): realtime is off: "), "{text}");
    // Without channels the application answers.
    assert!(hearth.get("/apps/1/channels").text().starts_with("Error: "));
}

#[test]
fn a_warm_up_publishes_nothing() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php $warm = hearth_publish('news', 'boot', 0) ? 'sent' : 'not sent';\n\
         while (hearth_handle_request(function () use ($warm) {\n\
         echo $warm; hearth_publish('news', 'said', ['n' => (int) isset($_SERVER['HEARTH_WARM_UP'])]); })) { }",
    );
    for model in of_tier(["fork", "snapshot"]) {
        let script = site.public().join("index.php");
        let hearth = Serve::new(script).model(model).args(APP).workers(1).start();
        let (mut client, _) = Client::hearing(&hearth, "news");
        assert_eq!(hearth.get("/").text(), "not sent", "{model}");
        assert_eq!(client.next(), said(0), "{model}");
        let published = hearth.status()["realtime"]["applications"][0]["published"].clone();
        assert_eq!(published, 1, "{model}");
    }
}

#[test]
fn realtime_intercepts_only_its_own_paths() {
    let site =
        Site::empty().with_file("public/index.php", "<?php echo 'php ', $_SERVER['REQUEST_URI'];");
    let hearth = Serve::new(site.path()).args(APP).workers(1).start();
    for target in ["/app/key", "/apps", "/apps/2/events", "/apps/1", "/apps/1/settings"] {
        assert_eq!(hearth.get(target).text(), format!("php {target}"));
    }
    let refused = hearth.get("/apps/1/channels");
    assert_eq!(refused.status, 401);
    assert!(refused.text().contains("auth_key"), "{}", refused.text());
    // A WebSocket with an unknown key gets an error of the protocol.
    let mut stranger = Client::open(&hearth, "unknown");
    assert_eq!(stranger.next().0, "pusher:error");
    assert_eq!(stranger.closed(), 4001);
}

#[test]
fn a_reverb_application_needs_only_its_env() {
    let site = Site::empty()
        .with_file("public/index.php", PUBLISH)
        .with_file(
            ".env",
            "BROADCAST_CONNECTION=reverb\nREVERB_APP_ID=7\nREVERB_APP_KEY=key\nREVERB_APP_SECRET=\"of reverb\"\n",
        );
    let hearth = Hearth::request(&site);
    let (mut client, _) = Client::hearing(&hearth, "news");
    hearth.get("/?n=5");
    assert_eq!(client.next(), said(5));
}

#[test]
fn a_stopping_server_asks_sockets_to_reconnect_and_finishes_requests() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php if ($_SERVER['REQUEST_URI'] === '/slow') {\n\
         while (!is_file(dirname(__DIR__) . '/gate')) { usleep(1000); clearstatcache(); } } echo 'done';",
    );
    let mut hearth = Serve::new(site.path()).args(APP).workers(1).start();
    let (mut client, _) = Client::hearing(&hearth, "news");
    eventually("the socket is counted", LIMIT, || hearth.status()["realtime"]["sockets"] == 1);
    let metrics = hearth.admin("/metrics").text();
    assert!(metrics.contains("hearth_channels_connections{app=\"1\"} 1"), "{metrics}");
    let address = hearth.address;
    let slow = std::thread::spawn(move || {
        testkit::Client::connect(address).unwrap().get("/slow").unwrap()
    });
    hearth.wait_busy(1);
    hearth.process.signal(rustix::process::Signal::TERM);
    assert_eq!(client.closed(), 4200);
    site.write("gate", "");
    assert_eq!(slow.join().unwrap().text(), "done");
    assert!(hearth.process.wait(LIMIT).success());
}

#[test]
fn webhooks_reach_the_applications_own_workers_with_a_signature() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php if ($_SERVER['REQUEST_URI'] === '/hook') {\n\
         $body = file_get_contents('php://input');\n\
         $fine = hash_equals(hash_hmac('sha256', $body, 'secret'), $_SERVER['HTTP_X_PUSHER_SIGNATURE']) && $_SERVER['HTTP_X_PUSHER_KEY'] === 'key';\n\
         file_put_contents(dirname(__DIR__) . '/told', ($fine ? $body : 'forged') . \"\\n\", FILE_APPEND);\n\
         }",
    );
    let hearth =
        Serve::new(site.path()).args(APP).args(&["--webhook", "php:/hook"]).workers(1).start();
    let (_client, _) = Client::hearing(&hearth, "news");
    let told = site.path().join("told");
    let told: Value = serde_json::from_str(&whole_line(&told)).unwrap();
    assert_eq!(told["events"], json!([{"name": "channel_occupied", "channel": "news"}]));
}

#[test]
fn a_rejected_webhook_is_sent_again() {
    let site = Site::empty().with_file("public/index.html", "");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hooks?a=b", listener.local_addr().unwrap());
    let hearth = Serve::new(site.path()).args(APP).args(&["--webhook", &url]).start();
    let (_client, _) = Client::hearing(&hearth, "news");
    let mut requests = Vec::new();
    for status in ["500 No", "200 OK"] {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut request = String::new();
        while !request.ends_with("]}") {
            let mut buffer = [0; 4096];
            let length = std::io::Read::read(&mut socket, &mut buffer).unwrap();
            assert_ne!(length, 0, "it broke off: {request}");
            request.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        }
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut socket, answer.as_bytes()).unwrap();
        requests.push(request);
    }
    assert!(requests[0].starts_with("POST /hooks?a=b HTTP/1.1\r\n"), "{}", requests[0]);
    let lower = requests[0].to_ascii_lowercase();
    assert!(
        lower.contains("\r\nx-pusher-key: key\r\n") && lower.contains("\r\nx-pusher-signature: ")
    );
    assert!(requests[0].contains("channel_occupied"), "{}", requests[0]);
    assert_eq!(requests[0].split("\r\n\r\n").nth(1), requests[1].split("\r\n\r\n").nth(1));
}

/// This asserts the current behaviour, which is a known limitation: after such a start a user of webhooks requests `GET
/// /channels`.
#[test]
fn a_kill_loses_debounced_events_and_no_accepted_ones() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php if ($_SERVER['REQUEST_URI'] === '/hook') {\n\
         if (!is_file(dirname(__DIR__) . '/up')) { http_response_code(500); exit; }\n\
         $body = file_get_contents('php://input');\n\
         foreach (json_decode($body, true)['events'] as $event) {\n\
         file_put_contents(dirname(__DIR__) . '/told', \"{$event['name']} {$event['channel']}\\n\", FILE_APPEND); } }",
    );
    let spool = tempfile::tempdir().unwrap();
    let start = || {
        Serve::new(site.path())
            .args(APP)
            .args(&["--webhook", "php:/hook"])
            .set("HEARTH_REALTIME_WEBHOOK_SPOOL", spool.path().to_str().unwrap())
            .workers(1)
            .start()
    };
    let mut hearth = start();
    let (news, _) = Client::hearing(&hearth, "news");
    hearth.log().find(LIMIT, |line| line.contains("webhook refused").then_some(())).unwrap();
    let left = Instant::now();
    drop(news);
    eventually("its disconnect is noticed", LIMIT, || hearth.status()["realtime"]["sockets"] == 0);
    hearth.process.signal(rustix::process::Signal::KILL);
    hearth.process.wait(LIMIT);
    // If this much time has passed, the client's leaving may have been reported before the kill.
    let settled = left.elapsed() >= Duration::from_secs(3);
    site.write("up", "");
    let hearth = start();
    let (_talk, _) = Client::hearing(&hearth, "talk");
    let told = || std::fs::read_to_string(site.path().join("told")).unwrap_or_default();
    let both = ["channel_occupied news", "channel_occupied talk"];
    eventually("both are reported", LIMIT, || both.iter().all(|event| told().contains(event)));
    // Channels are independent of each other; the events of one channel are in order.
    let told = told();
    let of = |channel: &str| -> Vec<&str> {
        told.lines().filter(|line| line.ends_with(channel)).collect()
    };
    let vacated =
        if settled && told.contains("vacated") { &["channel_vacated news"][..] } else { &[] };
    assert_eq!(of(" news"), [&both[..1], vacated].concat());
    assert_eq!(of(" talk"), both[1..]);
}

/// Sends one request to the control socket of a server.
fn control(run_dir: &std::path::Path, request: &str) -> std::os::unix::net::UnixStream {
    let mut socket = std::os::unix::net::UnixStream::connect(run_dir.join("control.sock")).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

/// Reads until the text contains `mark`.
fn read_until(socket: &mut impl std::io::Read, mark: &str) -> String {
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !text.contains(mark) {
        let length = socket.read(&mut part).unwrap();
        assert_ne!(length, 0, "it ended before {mark:?}: {text}");
        text.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    text
}

#[test]
fn watching_channels_requires_the_token_or_the_control_socket() {
    const WISH: &str = r#"{"app":"1","channel":"private-a","event":"said","data":"{\"n\":7}"}"#;
    let publish = |fields: &str| {
        let length = WISH.len();
        format!(
            "POST /realtime/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{fields}\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{WISH}"
        )
    };
    let watch = |fields: &str| {
        format!("GET /realtime/events?watch=private-a HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}\r\n")
    };
    let ask = |address: SocketAddr, request: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        socket
    };
    let site = Site::of_scripts();
    let run_dir = tempfile::tempdir().unwrap();
    let shown = run_dir.path().to_str().unwrap();
    let open = Serve::new(site.path()).args(APP).args(&["--run-dir", shown]).start();
    // Without a token there are figures, but no contents of channels.
    for figures in ["/", "/status", "/metrics", "/up"] {
        assert_eq!(open.admin(figures).status, 200, "{figures}");
    }
    for path in ["/realtime", "/realtime/events", "/realtime/events?watch=private-a"] {
        let refused = open.admin(path);
        assert_eq!(refused.status, 403, "{path}");
        let text = refused.text();
        assert!(text.contains("HEARTH_ADMIN_TOKEN") && text.contains("control.sock"), "{text}");
    }
    let refused = read_until(&mut ask(open.admin, &publish("")), "admin.token");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    let channels = open.status()["realtime"].clone();
    // The server's own user can use the control socket.
    let mut watching = control(run_dir.path(), &watch(""));
    read_until(&mut watching, "\"watched\":\"private-a\"");
    let sent = read_until(&mut control(run_dir.path(), &publish("")), "{}");
    assert!(sent.starts_with("HTTP/1.1 200 "), "{sent} {channels}");
    let told = read_until(&mut watching, "\"said\"");
    assert!(told.contains("event: message"), "{told}");
    drop(watching);
    drop(open);

    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    let closed =
        Serve::new(site.path()).args(APP).set("HEARTH_ADMIN_TOKEN", "0123456789abcdef").start();
    let refused = read_until(&mut ask(closed.admin, &publish("")), "\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let mut watching = ask(closed.admin, &watch(token));
    read_until(&mut watching, "\"watched\":\"private-a\"");
    let sent = read_until(&mut ask(closed.admin, &publish(token)), "{}");
    assert!(sent.starts_with("HTTP/1.1 200 "), "{sent}");
    read_until(&mut watching, "\"said\"");
}
