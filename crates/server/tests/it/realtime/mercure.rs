//! The Mercure hub over HTTP: in `hearth channels`, on two nodes that share updates through a broker, and on the port
//! of an application.

use std::net::SocketAddr;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use rustix::process::Signal;
use testkit::{Answer, Client, Running, eventually};

use super::shared::cluster::{Broker, Kind, Start};
use crate::hearth::{Hearth, LIMIT, Site, command};

mod nodes;
mod tokens;

const HUB: &str = "/.well-known/mercure";
const KEY: &str = "!ChangeThisMercureHubJWTSecretKey!";
/// Signed with [`KEY`] by another program (jwt.io): may publish and receive everything.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJtZXJjdXJlIjp7InB1Ymxpc2giOlsiKiJdLCJzdWJzY3JpYmUiOlsiKiJdfX0.nINXJPMGL7u4vvquYYm3zgMosrqrxTSooTs7R_OJLZA";

const ALL: &str = r#"{"mercure":{"publish":["*"],"subscribe":["*"]}}"#;

fn token(header: &str, claims: &str, key: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", part(header), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

fn subscriber(topics: &str) -> String {
    let claims = format!(r#"{{"mercure":{{"subscribe":{topics}}}}}"#);
    token(r#"{"alg":"HS256"}"#, &claims, KEY)
}

fn settings(more: &str) -> String {
    format!(
        "[mercure]\nenabled = true\npublisher_key = \"{KEY}\"\nsubscriber_key = \"{KEY}\"\n{more}\n"
    )
}

struct Node {
    process: Running,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

fn channels(config: &str) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hearth.toml"), config).unwrap();
    let mut channels = command();
    let arguments = ["channels", "--listen", "127.0.0.1:0", "--log-format", "text"];
    channels.current_dir(folder.path()).args(arguments);
    (Running::start(&mut channels), folder)
}

fn node(config: &str) -> Node {
    let (process, folder) = channels(config);
    let url = process.log().find(LIMIT, |line| {
        Some(line.strip_prefix("hearth: ready on http://")?.trim_end().to_owned())
    });
    let url = url.unwrap_or_else(|| panic!("never ready:\n{}", process.log().text()));
    Node { process, address: url.parse().unwrap(), folder }
}

fn post(address: SocketAddr, fields: &[(&str, &str)], form: &str) -> Answer {
    let mut all = vec![("Content-Type", "application/x-www-form-urlencoded")];
    all.extend(fields);
    Client::connect(address).unwrap().request("POST", HUB, &all, form.as_bytes()).unwrap()
}

/// Publishes an update and returns its id.
fn publish(address: SocketAddr, form: &str) -> String {
    let answer = post(address, &[("Authorization", &format!("Bearer {TOKEN}"))], form);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

struct Stream {
    client: Client,
    answer: Answer,
    text: String,
}

impl Stream {
    fn open(address: SocketAddr, query: &str) -> Self {
        Self::open_with(address, query, "")
    }

    /// Opens a stream with further lines of the head.
    fn open_with(address: SocketAddr, query: &str, lines: &str) -> Self {
        let mut client = Client::connect(address).unwrap();
        client.set_timeout(LIMIT);
        client.send(format!("GET {HUB}?{query} HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).unwrap();
        let answer = client.head().unwrap();
        Self { client, answer, text: String::new() }
    }

    fn next(&mut self) -> bool {
        let chunk = self.client.chunk().unwrap();
        self.text.push_str(str::from_utf8(chunk.as_deref().unwrap_or_default()).unwrap());
        chunk.is_some()
    }

    /// Reads until what came so far is enough.
    fn read_until(&mut self, is_enough: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_enough(self) {
            assert!(Instant::now() < end, "more is missing: {}", self.text);
            assert!(self.next(), "it ended: {}", self.text);
        }
    }

    /// Reads until the stream contains a text; returns all of it so far.
    fn until(&mut self, text: &str) -> &str {
        let end = Instant::now() + LIMIT;
        let mut searched = 0_usize;
        // Only what is new is searched: an update may be large, and come in many pieces.
        while !self.text.as_bytes()[searched.saturating_sub(text.len())..]
            .windows(text.len())
            .any(|part| part == text.as_bytes())
        {
            searched = self.text.len();
            assert!(Instant::now() < end, "never {text:?}: {}", self.text);
            assert!(self.next(), "it ended: {}", self.text);
        }
        &self.text
    }
}

#[test]
fn a_mercure_update_reaches_event_streams_over_http() {
    let mut node = node(&settings("anonymous = true\nheartbeat = \"50ms\""));
    let at = node.address;
    let mut stream = Stream::open(at, "topic=https%3A%2F%2Fexample.com%2F%7Bid%7D");
    assert_eq!(stream.answer.status, 200);
    assert_eq!(stream.answer.field("content-type"), Some("text/event-stream"));
    // Alternate topics: a subscriber of any of them gets the update, once.
    let mut all = Stream::open(at, "topic=*&topic=b");
    let form = "topic=a&topic=b&topic=https://example.com/1&data=hello&type=greeting&retry=500";
    let id = publish(at, form);
    let event = format!("event: greeting\nretry: 500\nid: {id}\ndata: hello\n\n");
    for stream in [&mut stream, &mut all] {
        stream.until(&event);
    }
    publish(at, "topic=b&data=last");
    assert_eq!(all.until("data: last").matches("data: hello").count(), 1);
    // A silent stream has comments.
    stream.text.clear();
    stream.until(":\n:\n");
    assert_eq!(Client::connect(at).unwrap().get(HUB).unwrap().status, 400, "no topic");
    // The stream ends in order, so that the browser reconnects.
    node.process.signal(Signal::TERM);
    while stream.next() {}
    assert!(node.process.wait(LIMIT).success());
}

#[test]
fn mercure_tokens_that_are_wrong_expired_or_unsigned_get_401() {
    let node = node(&settings("subscriptions = true"));
    let hs256 = r#"{"alg":"HS256","typ":"JWT"}"#;
    let expired = r#"{"exp":1700000000,"mercure":{"publish":["*"],"subscribe":["*"]}}"#;
    let unsigned = token(r#"{"alg":"none"}"#, ALL, KEY);
    let (unsigned, _) = unsigned.rsplit_once('.').unwrap();
    let wrong = [
        ("another key", token(hs256, ALL, "another key of the same length....")),
        ("expired", token(hs256, expired, KEY)),
        ("another algorithm", token(r#"{"alg":"HS512"}"#, ALL, KEY)),
        ("none", token(r#"{"alg":"none"}"#, ALL, KEY)),
        ("none, unsigned", format!("{unsigned}.")),
        ("two parts", unsigned.to_owned()),
        ("changed claims", TOKEN.replacen(".eyJ", ".eyK", 1)),
        ("text", "nonsense".repeat(20)),
    ];
    for (what, token) in &wrong {
        let bearer = format!("Bearer {token}");
        let publish = post(node.address, &[("Authorization", &bearer)], "topic=a");
        assert_eq!(publish.status, 401, "{what}");
        for (query, lines) in [
            ("topic=a".to_owned(), format!("Authorization: {bearer}\r\n")),
            (format!("topic=a&authorization={token}"), String::new()),
            ("topic=a".to_owned(), format!("Cookie: mercureAuthorization={token}\r\n")),
        ] {
            let stream = Stream::open_with(node.address, &query, &lines);
            assert_eq!(stream.answer.status, 401, "{what} {query}");
        }
    }
    assert_eq!(post(node.address, &[], "topic=a").status, 401, "no token");
    assert_eq!(Stream::open(node.address, "topic=a").answer.status, 401, "no token");
    // A subscriber may not publish, and the subscription API is for those with its topic.
    let reader = format!("Bearer {}", subscriber(r#"["a"]"#));
    let publish = post(node.address, &[("Authorization", &reader)], "topic=a");
    assert_eq!(publish.status, 401);
    let api = format!("{HUB}/subscriptions");
    for (token, status) in [(reader, 401), (format!("Bearer {TOKEN}"), 200)] {
        let mut client = Client::connect(node.address).unwrap();
        let answer = client.request("GET", &api, &[("Authorization", &token)], b"").unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

#[test]
fn private_mercure_updates_and_cookies_over_http() {
    let node = node(&settings("anonymous = true\npublish_origins = \"https://example.com\""));
    let at = node.address;
    let cookie =
        format!("Cookie: mercureAuthorization={}\r\n", subscriber(r#"["https://a.example/{id}"]"#));
    let mut reader = Stream::open_with(at, "topic=*", &cookie);
    let mut anonymous = Stream::open(at, "topic=*");
    publish(at, "topic=https://a.example/1&data=secret&private=on");
    publish(at, "topic=https://b.example/1&data=foreign&private=on");
    publish(at, "topic=a&data=public");
    let text = reader.until("data: public");
    assert!(text.contains("data: secret") && !text.contains("foreign"), "{text}");
    assert!(!anonymous.until("data: public").contains("secret"));
    // A page of another origin cannot publish with the cookie of its visitor.
    let cookie = format!("mercureAuthorization={TOKEN}");
    let origin = |origin| post(at, &[("Cookie", &cookie), ("Origin", origin)], "topic=a").status;
    assert_eq!(origin("https://evil.example"), 401);
    assert_eq!(origin("https://example.com"), 200);
}

/// PHP's OpenSSL makes the keys and signs.
#[test]
fn mercure_accepts_public_keys_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        $key = openssl_pkey_new(['private_key_bits' => 2048]);
        file_put_contents($argv[1], openssl_pkey_get_details($key)['key']);
        $part = fn ($bytes) => rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
        $signed = $part('{"alg":"RS256"}') . '.' . $part($argv[2]);
        openssl_sign($signed, $signature, $key, OPENSSL_ALGO_SHA256);
        echo $signed, '.', $part($signature);"#;
    let path = folder.path().join("public.pem");
    let php = std::process::Command::new("/usr/bin/php")
        .args(["-r", script])
        .arg(&path)
        .arg(ALL)
        .output()
        .unwrap();
    assert!(php.status.success(), "{php:?}");
    let token = String::from_utf8(php.stdout).unwrap();
    let config = format!(
        "[mercure]\nenabled = true\nanonymous = true\npublisher_algorithm = \"RS256\"\npublisher_key_file = \"{}\"\n",
        path.display()
    );
    let node = node(&config);
    let status = |token: &str| {
        post(node.address, &[("Authorization", &format!("Bearer {token}"))], "topic=a").status
    };
    assert_eq!(status(&token), 200);
    // The public key is no secret: a token that it signs as one is none.
    let pem = std::fs::read_to_string(&path).unwrap();
    for pem in [&*pem, pem.trim()] {
        assert_eq!(status(&self::token(r#"{"alg":"HS256"}"#, ALL, pem)), 401);
        assert_eq!(status(&self::token(r#"{"alg":"RS256"}"#, ALL, pem)), 401);
    }
    assert!(node.folder.path().exists());
}

fn mercure_subscribers_resume(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(kind, Start::Empty, &folder);
    let scheme = if kind == Kind::Redis { "redis" } else { "nats" };
    let config = format!(
        "[realtime]\nadapter = \"{scheme}://127.0.0.1:{}\"\n{}",
        broker.port,
        settings("anonymous = true")
    );
    let (one, mut two) = (node(&config), node(&config));
    let mut stream = Stream::open(two.address, "topic=a");
    publish(one.address, "topic=a&id=n1&data=1");
    stream.until("id: n1\n");
    two.process.signal(Signal::KILL);
    two.process.wait(LIMIT);
    // Larger than a packet of the log.
    let large = "x".repeat(400_000);
    publish(one.address, &format!("topic=a&id=n2&data={large}"));
    publish(one.address, "topic=a&id=n3&data=3");
    let three = node(&config);
    for node in [&one, &three] {
        let mut stream = Stream::open(node.address, "topic=a&lastEventID=n1");
        let text = stream.until("data: 3\n");
        let ids: Vec<&str> = text.lines().filter(|line| line.starts_with("id: ")).collect();
        assert_eq!(ids, ["id: n2", "id: n3"], "{kind:?}");
        assert!(text.contains(&format!("data: {large}\n")), "{kind:?}");
        assert_eq!(stream.answer.field("last-event-id"), Some("n1"), "{kind:?}");
    }
}

#[test]
fn mercure_subscribers_resume_on_another_node_through_redis() {
    mercure_subscribers_resume(Kind::Redis);
}

#[test]
fn mercure_subscribers_resume_on_another_node_through_nats() {
    mercure_subscribers_resume(Kind::Nats);
}

/// Publishes with PHP's own HTTP client to the hub of the same server.
const PUBLISHER: &str = r#"<?php
header('Link: </.well-known/mercure>; rel="mercure"');
$hub = "http://$_GET[hub]/.well-known/mercure";
$post = ['method' => 'POST', 'content' => http_build_query(['topic' => 'page', 'data' => $_GET['data']]),
    'header' => "Authorization: Bearer TOKEN\r\nContent-Type: application/x-www-form-urlencoded"];
echo file_get_contents($hub, false, stream_context_create(['http' => $post]));
"#;

#[test]
fn an_application_publishes_to_the_mercure_hub_on_its_own_port_through_a_reload() {
    let script = PUBLISHER.replace("TOKEN", TOKEN);
    let site = Site::empty()
        .with_file("public/index.php", &script)
        .with_file("hearth.toml", &settings("anonymous = true\nheartbeat = \"50ms\""));
    let hearth = Hearth::request(&site);
    let mut stream = Stream::open(hearth.address, "topic=page");
    let publish = |data| hearth.get(&format!("/?hub={}&data={data}", hearth.address));
    let answer = publish("one");
    assert_eq!(answer.field("link"), Some(r#"</.well-known/mercure>; rel="mercure""#));
    let id = answer.text();
    stream.until(&format!("id: {id}\ndata: one\n\n"));
    hearth.process.signal(Signal::HUP);
    eventually("the new release serves", LIMIT, || hearth.status()["generation"] == 2);
    publish("two");
    stream.until("data: two\n\n");
    let metrics = hearth.admin("/metrics");
    for line in ["hearth_mercure_subscribers 1\n", "hearth_mercure_updates_total 2\n"] {
        assert!(metrics.text().contains(line), "{line}{}", metrics.text());
    }
    drop(stream);
    // A client that has closed its connection may still read: the next comments tell.
    eventually("the subscriber is gone", LIMIT, || {
        hearth.admin("/metrics").text().contains("hearth_mercure_subscribers 0\n")
    });
    assert!(hearth.stop().success());
}

/// What an application does with `symfony/mercure`, the component behind `symfony/mercure-bundle` and API Platform.
const SYMFONY: &str = r#"<?php
require 'Symfony/Component/Mercure/autoload.php';
use Symfony\Component\HttpFoundation\{Request, Response};
use Symfony\Component\Mercure\{Authorization, Discovery, Hub, HubRegistry, Update};
use Symfony\Component\Mercure\Jwt\{FactoryTokenProvider, TokenFactoryInterface};
use Symfony\Component\WebLink\HttpHeaderSerializer;

$factory = new class implements TokenFactoryInterface {
    public function create(?array $subscribe = [], ?array $publish = [], array $claims = []): string
    {
        $claims['exp'] = ($claims['exp'] ?? new DateTimeImmutable('+1 hour'))->getTimestamp();
        $part = fn ($bytes) => rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
        $signed = $part('{"typ":"JWT","alg":"HS256"}') . '.' . $part(json_encode(['mercure' => compact('subscribe', 'publish')] + $claims));
        return $signed . '.' . $part(hash_hmac('sha256', $signed, 'KEY', true));
    }
};
$request = Request::createFromGlobals();
$url = "http://{$request->query->get('hub')}/.well-known/mercure";
$hub = new Hub($url, new FactoryTokenProvider($factory, ['*'], ['*']), $factory, $url);
$registry = new HubRegistry($hub);
$topics = ['https://example.com/books/1', 'https://example.com/all'];
$ids = [
    $hub->publish(new Update($topics, json_encode(['stock' => 3]), false, 'chosen', 'stock', 700)),
    $hub->publish(new Update($topics, "two\nlines", true)),
    $hub->publish(new Update('https://example.com/books/2', 'not for this reader', true)),
    $hub->publish(new Update($topics, 'last')),
];
(new Discovery($registry))->addLink($request);
$response = new Response(json_encode($ids));
$response->headers->set('Link', (new HttpHeaderSerializer())->serialize($request->attributes->get('_links')->getLinks()));
$response->headers->setCookie((new Authorization($registry))->createCookie($request, ['https://example.com/books/1']));
$response->send();
"#;

#[test]
fn symfonys_mercure_component_works_unchanged() {
    let site = Site::empty()
        .with_file("public/index.php", &SYMFONY.replace("KEY", KEY))
        .with_file("hearth.toml", &settings("anonymous = true"));
    let hearth = Hearth::request(&site);
    let host = hearth.address.to_string();
    // The component makes cookies for the host of the request only.
    let publish = || {
        let target = format!("/?hub={host}");
        hearth.connect().request("GET", &target, &[("Host", &host)], b"").unwrap()
    };
    let answer = publish();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let link = answer.field("link").unwrap();
    assert_eq!(link, format!("<http://{}{HUB}>; rel=\"mercure\"", hearth.address));
    // The browser sends the cookie that the component made.
    let cookie = answer.field("set-cookie").unwrap().split(';').next().unwrap();
    let lines = format!("Cookie: {cookie}\r\n");
    let topic = "topic=https%3A%2F%2Fexample.com%2Fbooks%2F%7Bid%7D";
    let mut reader = Stream::open_with(hearth.address, topic, &lines);
    let mut anonymous = Stream::open(hearth.address, topic);
    let ids = publish().json();
    let id = |index: usize| ids[index].as_str().unwrap().to_owned();
    assert_eq!(id(0), "chosen");
    let first = "event: stock\nretry: 700\nid: chosen\ndata: {\"stock\":3}\n\n";
    let private = format!("id: {}\ndata: two\ndata: lines\n\n", id(1));
    let last = format!("id: {}\ndata: last\n\n", id(3));
    assert_eq!(*reader.until(&last), format!(":\n{first}{private}{last}"));
    assert_eq!(*anonymous.until(&last), format!(":\n{first}{last}"));
}

/// The client never sends the body that it announces.
#[test]
fn requests_without_a_valid_signature_or_token_are_answered_before_their_bodies() {
    let app = "[realtime.apps.1]\nkey = \"key\"\nsecret = \"secret\"\n";
    let node = node(&format!("{app}{}", settings("")));
    let stranger = token(r#"{"alg":"HS256"}"#, ALL, "another key of the same length....");
    let status = |target: &str, line: &str| {
        let mut client = Client::connect(node.address).unwrap();
        client.set_timeout(LIMIT);
        let head =
            format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n{line}\r\n");
        client.send(head).unwrap();
        client.head().unwrap().status
    };
    assert_eq!(status("/apps/1/events", ""), 401);
    assert_eq!(status("/apps/1/batch_events?auth_key=key&auth_signature=0", ""), 401);
    assert_eq!(status("/apps/2/events", ""), 404);
    assert_eq!(status("/apps/1/channels", ""), 405);
    assert_eq!(status("/other", ""), 404);
    assert_eq!(status(HUB, ""), 401);
    assert_eq!(status(HUB, &format!("Authorization: Bearer {stranger}\r\n")), 401);
    assert_eq!(status(&format!("{HUB}/subscriptions"), ""), 404);
    // That of a publisher is read.
    publish(node.address, "topic=a&data=1");
}

#[test]
fn a_mercure_hub_without_keys_does_not_start() {
    for (config, message) in [
        ("[mercure]\nenabled = true\n", "the Mercure hub has no keys"),
        (
            "[mercure]\nenabled = true\nanonymous = true\npublisher_key = \"sixteen-characters\"\npublisher_algorithm = \"none\"\n",
            "there is no algorithm none",
        ),
        (
            "[mercure]\nenabled = true\nanonymous = true\npublisher_key = \"sixteen-characters\"\npublisher_algorithm = \"RS256\"\n",
            "the key must be a public key in PEM",
        ),
    ] {
        let (mut process, _folder) = channels(config);
        assert_eq!(process.wait(LIMIT).code(), Some(2), "{config}");
        // Its last lines may be read after its end is known.
        let is_told = || {
            let text = process.log().text();
            text.contains(message) && text.contains("hint: ")
        };
        eventually(message, LIMIT, is_told);
    }
}
