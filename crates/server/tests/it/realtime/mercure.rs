//! The Mercure hub in `hearth channels`: alone, and on two nodes that share updates through Redis.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use testkit::{Client, Running};

use super::shared::cluster::{Broker, Kind, Start};
use crate::hearth::{LIMIT, command};

const KEY: &str = "!ChangeThisMercureHubJWTSecretKey!";
/// Signed with [`KEY`]: may publish and receive everything.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJtZXJjdXJlIjp7InB1Ymxpc2giOlsiKiJdLCJzdWJzY3JpYmUiOlsiKiJdfX0.nINXJPMGL7u4vvquYYm3zgMosrqrxTSooTs7R_OJLZA";

struct Node {
    process: Running,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

fn node(more: &str) -> Node {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "{more}\n[mercure]\nenabled = true\npublisher_key = \"{KEY}\"\nsubscriber_key = \"{KEY}\"\nanonymous = true\nsubscriptions = true\n"
    );
    std::fs::write(folder.path().join("hearth.toml"), config).unwrap();
    let mut channels = command();
    channels.current_dir(folder.path()).args([
        "channels",
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "text",
    ]);
    let process = Running::start(&mut channels);
    let url = process.log().find(LIMIT, |line| {
        Some(line.strip_prefix("hearth: ready on http://")?.trim_end().to_owned())
    });
    let url = url.unwrap_or_else(|| panic!("never ready:\n{}", process.log().text()));
    Node { process, address: url.parse().unwrap(), _folder: folder }
}

fn publish(node: &Node, form: &str) -> String {
    let bearer = format!("Bearer {TOKEN}");
    let fields =
        [("Authorization", bearer.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
    let mut client = Client::connect(node.address).unwrap();
    let answer = client.request("POST", "/.well-known/mercure", &fields, form.as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().to_owned()
}

struct Stream(TcpStream, String);

impl Stream {
    fn open(node: &Node, query: &str) -> Self {
        let mut stream = TcpStream::connect(node.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "GET /.well-known/mercure?{query} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n").unwrap();
        let mut stream = Self(stream, String::new());
        stream.until("\r\n\r\n");
        stream
    }

    /// Reads until the stream contains a text; returns all of it so far.
    fn until(&mut self, text: &str) -> &str {
        while !self.1.contains(text) {
            let mut buffer = [0; 4096];
            let length = self.0.read(&mut buffer).unwrap();
            assert_ne!(length, 0, "it ended: {}", self.1);
            self.1.push_str(str::from_utf8(&buffer[..length]).unwrap());
        }
        &self.1
    }
}

#[test]
fn a_mercure_update_reaches_event_streams_over_http() {
    let mut node = node("");
    let mut stream = Stream::open(&node, "topic=https%3A%2F%2Fexample.com%2F%7Bid%7D");
    assert!(stream.1.contains("200 OK") && stream.1.contains("text/event-stream"), "{}", stream.1);
    let id = publish(&node, "topic=https%3A%2F%2Fexample.com%2F1&data=hello&type=greeting");
    let text = stream.until("data: hello");
    assert!(text.contains(&format!("event: greeting\nid: {id}\ndata: hello\n")), "{text}");
    let refused = Client::connect(node.address).unwrap().get("/.well-known/mercure").unwrap();
    assert_eq!(refused.status, 400);
    // The stream ends in order, so that the browser reconnects.
    node.process.signal(Signal::TERM);
    let mut rest = Vec::new();
    stream.0.read_to_end(&mut rest).unwrap();
    assert!(node.process.wait(LIMIT).success());
}

#[test]
fn mercure_subscribers_resume_on_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let redis = Broker::start(Kind::Redis, Start::Empty, &folder);
    let adapter = format!("[realtime]\nadapter = \"redis://127.0.0.1:{}\"\n", redis.port);
    let (one, mut two) = (node(&adapter), node(&adapter));
    let mut stream = Stream::open(&two, "topic=a");
    publish(&one, "topic=a&id=n1&data=1");
    stream.until("id: n1\n");
    two.process.signal(Signal::KILL);
    two.process.wait(LIMIT);
    publish(&one, "topic=a&id=n2&data=2");
    let three = node(&adapter);
    for node in [&one, &three] {
        let mut stream = Stream::open(node, "topic=a&lastEventID=n1");
        let text = stream.until("id: n2\n");
        assert!(
            text.to_lowercase().contains("last-event-id: n1") && !text.contains("id: n1\nd"),
            "{text}"
        );
    }
}
