//! Applications that are not in the settings: Hearth looks them up in PHP or at a URL.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};
use testkit::{Running, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, command, every_model, root, whole_line};
use crate::realtime::Client;

/// Answers look-ups from `apps.json` with the helper of packages/core, and records them; if a file `status` exists,
/// answers with its status. Every other request gets the signature for a call of the HTTP API.
const APPLICATIONS: &str = r#"<?php
require_once 'CORE/src/Realtime/Applications.php';
require_once 'CORE/src/Realtime/LookUp.php';
require_once 'CORE/src/Realtime/Application.php';
if (!class_exists('Told', false)) {
    final class Told implements Hearth\Realtime\Applications {
        private function find(string $by, string $value): ?array {
            file_put_contents('FOLDER/asked', "{$by} {$value}\n", FILE_APPEND);
            foreach (json_decode(file_get_contents('FOLDER/apps.json'), true) as $app) {
                if ($app[$by] === $value) {
                    return $app;
                }
            }
            return null;
        }
        public function withKey(string $key): ?array { return $this->find('key', $key); }
        public function withId(string $id): ?array { return $this->find('id', $id); }
    }
}
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if ($path === '/hearth/apps') {
    [$status, $body] = (new Hearth\Realtime\LookUp(new Told(), 'another token'))->answer($_GET, $_SERVER['HTTP_AUTHORIZATION'] ?? '');
    http_response_code(is_file('FOLDER/status') ? (int) file_get_contents('FOLDER/status') : $status);
    header('Content-Type: application/json');
    echo $body;
} elseif ($path === '/sign') {
    echo (new Hearth\Realtime\Application($_GET['id'], $_GET['key'], $_GET['secret']))->query($_GET['method'], $_GET['path'], $_GET['body'] ?? '');
} elseif ($path === '/hook') {
    file_put_contents('FOLDER/told', file_get_contents('php://input') . "\n", FILE_APPEND);
}
"#;

const SHOP: &str = r#"{"id":"shop","key":"key","secret":"secret","client_events":true}"#;

fn site() -> Site {
    let site = Site::empty();
    let folder = site.path().to_str().unwrap().to_owned();
    let core = root().join("packages/core");
    let script = APPLICATIONS.replace("CORE", core.to_str().unwrap()).replace("FOLDER", &folder);
    site.write("public/index.php", &script);
    site.write(
        "worker.php",
        "<?php while (hearth_handle_request(function () { require __DIR__ . '/public/index.php'; })) { }",
    );
    site.write("apps.json", &format!("[{SHOP}]"));
    // An answer is valid for a second.
    site.write(
        "hearth.toml",
        "[realtime]\nlookup = \"php:/hearth/apps\"\nlookup_age = \"1s\"\nlookup_absence_age = \"1s\"\nlookup_timeout = \"20s\"\n",
    );
    site
}

fn serve(site: &Site) -> Hearth {
    Serve::new(site.path()).model("request").workers(2).start()
}

/// Returns the look-ups that PHP has received.
fn asked(site: &Site) -> Vec<String> {
    let text = fs::read_to_string(site.path().join("asked")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn greeted(hearth: &Hearth, key: &str) -> Client {
    let mut client = Client::open(hearth, key);
    assert_eq!(client.next().0, "pusher:connection_established");
    client
}

/// Returns a signed target.
fn signed(hearth: &Hearth, secret: &str, method: &str, path: &str, body: &str) -> String {
    let mut encoded = String::new();
    for byte in body.bytes() {
        write!(encoded, "%{byte:02x}").unwrap();
    }
    let sign =
        format!("/sign?id=shop&key=key&secret={secret}&method={method}&path={path}&body={encoded}");
    format!("{path}?{}", hearth.get(&sign).text())
}

#[test]
fn php_answers_application_look_ups_in_every_model() {
    for model in every_model() {
        let site = site();
        let path = site.served_in(model, "worker.php");
        let hearth = Serve::new(path)
            .args(&["--model", model, "--config"])
            .args(&[site.path().join("hearth.toml").to_str().unwrap()])
            .workers(2)
            .start();
        let mut client = greeted(&hearth, "key");
        client.send(&json!({"event": "pusher:subscribe", "data": {"channel": "news"}}));
        assert_eq!(client.next().0, "pusher_internal:subscription_succeeded", "{model}");
        let body = r#"{"name":"said","channel":"news","data":"{\"n\":1}"}"#;
        let target = signed(&hearth, "secret", "POST", "/apps/shop/events", body);
        let answer = hearth.post(&target, &[], body.as_bytes());
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        assert_eq!(client.next(), ("said".to_owned(), json!({"n": 1})), "{model}");
        assert_eq!(asked(&site)[0], "key key", "{model}");
        // No client outside gets an answer, although the path is public.
        for fields in [&[][..], &[("Authorization", "Bearer x")], &[("Authorization", "Bearer ")]] {
            let answer = hearth.connect().request("GET", "/hearth/apps?key=key", fields, b"");
            assert_eq!(answer.unwrap().status, 403, "{model}");
        }
    }
}

#[test]
fn an_unknown_key_is_refused_and_looked_up_rarely() {
    let site = site();
    site.write(
        "hearth.toml",
        "[realtime]\nlookup = \"php:/hearth/apps\"\nlookup_absence_age = \"1h\"\n",
    );
    let hearth = serve(&site);
    for _ in 0..5 {
        let mut stranger = Client::open(&hearth, "unknown");
        assert_eq!(stranger.next().0, "pusher:error");
        assert_eq!(stranger.closed(), 4001);
    }
    let answer = hearth.get("/apps/unknown/channels");
    assert_eq!(
        (answer.status, answer.json()["error"].clone()),
        (404, json!("application does not exist"))
    );
    assert_eq!(asked(&site), ["key unknown", "id unknown"]);
    assert_eq!(hearth.get("/app/unknown/sse?channels=news").status, 404);
    let status = hearth.status()["realtime"]["lookup"].clone();
    assert_eq!((status["absent"].clone(), status["known"].clone()), (json!(2), json!(0)));
}

#[test]
fn clients_reconnect_while_look_ups_fail_and_connected_ones_stay() {
    let site = site();
    let hearth = serve(&site);
    let mut there = greeted(&hearth, "key");
    for (status, why) in [("500", "it answers 500"), ("404", "nothing is at that path")] {
        site.write("status", status);
        let mut client = Client::open(&hearth, "new");
        assert_eq!(client.next().0, "pusher:error");
        assert_eq!(client.closed(), 4100);
        let answer = hearth.get("/apps/new/channels");
        assert_eq!(answer.status, 503);
        assert_eq!(answer.field("retry-after"), Some("1"));
        hearth.log().find(LIMIT, |line| line.contains(why).then_some(())).expect("it is logged");
        // The known application stays valid after its age limit, because the look-up failed.
        let failed = hearth.status()["realtime"]["lookup"]["failed"].as_u64().unwrap();
        eventually("the application in use is looked up again", LIMIT, || {
            hearth.status()["realtime"]["lookup"]["failed"].as_u64().unwrap() > failed
        });
        there.send(&json!({"event": "pusher:ping", "data": {}}));
        assert_eq!(there.next().0, "pusher:pong");
        greeted(&hearth, "key");
    }
    fs::remove_file(site.path().join("status")).unwrap();
    site.write("apps.json", &format!(r#"[{SHOP},{{"id":"2","key":"new","secret":"s"}}]"#));
    eventually("the new one is found", LIMIT, || {
        Client::open(&hearth, "new").next().0 == "pusher:connection_established"
    });
}

#[test]
fn application_changes_apply_to_open_sockets() {
    let site = site();
    let hearth = serve(&site);
    let mut client = greeted(&hearth, "key");
    let whisper = json!({"event": "client-hi", "channel": "private-a", "data": {}});
    client.send(&whisper);
    let refusal = |client: &mut Client| client.next().1["message"].as_str().unwrap().to_owned();
    // The client has not subscribed.
    let before = refusal(&mut client);
    site.write("apps.json", &format!("[{}]", SHOP.replace("true", "false")));
    eventually("client events are off for it", LIMIT, || {
        client.send(&whisper);
        refusal(&mut client) != before
    });
    // The new secret is valid for signatures, the old one is not.
    site.write(
        "apps.json",
        &format!("[{}]", SHOP.replace("\"secret\":\"secret\"", "\"secret\":\"new\"")),
    );
    eventually("the new secret is valid", LIMIT, || {
        hearth.get(&signed(&hearth, "new", "GET", "/apps/shop/channels", "")).status == 200
    });
    assert_eq!(
        hearth.get(&signed(&hearth, "secret", "GET", "/apps/shop/channels", "")).status,
        401
    );
    client.send(&json!({"event": "pusher:ping", "data": {}}));
    assert_eq!(client.next().0, "pusher:pong");

    let mut of_old_key = greeted(&hearth, "key");
    site.write("apps.json", &format!("[{}]", SHOP.replace("\"key\":\"key\"", "\"key\":\"other\"")));
    assert_eq!(of_old_key.closed(), 4001);
    assert_eq!(client.closed(), 4001);
    let mut disabled = greeted(&hearth, "other");
    let off = SHOP.replace("\"key\":\"key\"", "\"key\":\"other\",\"enabled\":false");
    site.write("apps.json", &format!("[{off}]"));
    assert_eq!(disabled.closed(), 4003);
    site.write("apps.json", &format!("[{SHOP}]"));
    let mut gone = None;
    eventually("it exists again", LIMIT, || {
        let mut client = Client::open(&hearth, "key");
        let came = client.next().0 == "pusher:connection_established";
        gone = came.then_some(client);
        came
    });
    site.write("apps.json", "[]");
    assert_eq!(gone.unwrap().closed(), 4001);
    let metrics = hearth.admin("/metrics").text();
    assert!(metrics.contains("hearth_channels_lookups_total{outcome=\"found\"}"), "{metrics}");
    assert!(metrics.contains("hearth_channels_lookup_changes_total"), "{metrics}");
}

#[test]
fn webhooks_use_the_looked_up_applications_url() {
    let site = site();
    site.write(
        "apps.json",
        &format!("[{}]", SHOP.replace("true", "true,\"webhook\":\"php:/hook\"")),
    );
    let hearth = serve(&site);
    let mut client = greeted(&hearth, "key");
    client.send(&json!({"event": "pusher:subscribe", "data": {"channel": "news"}}));
    let told = site.path().join("told");
    let told: Value = serde_json::from_str(&whole_line(&told)).unwrap();
    assert_eq!(told["events"], json!([{"name": "channel_occupied", "channel": "news"}]));
}

#[test]
fn the_channels_command_looks_applications_up_by_url() {
    let site = site();
    let php = serve(&site);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}/hearth/apps", php.address);
    let token = fs::read_to_string(format!("/proc/{}/environ", php.worker_pids()[0])).unwrap();
    let name = "HEARTH_REALTIME_LOOKUP_TOKEN=";
    let token = token.split('\0').find_map(|variable| variable.strip_prefix(name)).unwrap();
    let start = |token: Option<&str>, url: &str| {
        let mut channels = command();
        channels.current_dir(folder.path()).args([
            "channels",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--lookup",
            url,
        ]);
        if let Some(token) = token {
            channels.env("HEARTH_REALTIME_LOOKUP_TOKEN", token);
        }
        Running::start(&mut channels)
    };
    let ready = |process: Running| {
        let find = |prefix: &'static str| {
            process.log().find(LIMIT, |line| Some(line.strip_prefix(prefix)?.to_owned()))
        };
        let url = find("hearth: ready on ").unwrap();
        let admin = find("hearth: admin on http://").unwrap();
        let address = url.strip_prefix("http://").unwrap().parse().unwrap();
        Hearth { address, url, admin: admin.parse().unwrap(), process }
    };
    let channels = ready(start(Some(token), &url));
    let mut client = greeted(&channels, "key");
    client.send(&json!({"event": "pusher:subscribe", "data": {"channel": "news"}}));
    assert_eq!(client.next().0, "pusher_internal:subscription_succeeded");
    let target = signed(&php, "secret", "GET", "/apps/shop/channels", "");
    assert_eq!(channels.get(&target).text(), r#"{"channels":{"news":{}}}"#);

    let strange = ready(start(Some("another-token-as-long"), &url));
    let mut other = Client::open(&strange, "key");
    assert_eq!(other.next().0, "pusher:error");
    assert_eq!(other.closed(), 4100);
    for (token, url, hint) in
        [(None, &*url, "realtime.lookup_token"), (Some(token), "php:/apps", "no PHP runs here")]
    {
        let mut refused = start(token, url);
        let (status, said) = refused.finish(LIMIT);
        assert_eq!(status.code(), Some(2), "{url}: {said}");
        assert!(said.contains(hint), "{said}");
    }
}

#[test]
fn nodes_with_look_ups_share_channels_per_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let host = testkit::Database::HOST;
    let port = std::net::TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port();
    let mut redis = std::process::Command::new("redis-server");
    redis.args(["--port", &port.to_string(), "--bind", host, "--save", "", "--dir"]);
    let _redis = Running::start(redis.arg(folder.path()));
    let sites = [site(), site(), site()];
    // Nothing is stored: the second node knows the channel only from the first.
    let node = |site: &Site, prefix: &str| {
        let adapter = format!("redis://{host}:{port}");
        Serve::new(site.path())
            .args(&["--model", "request", "--adapter", &adapter])
            .set("HEARTH_REALTIME_ADAPTER_PREFIX", prefix)
            .workers(2)
            .start()
    };
    let nodes = [node(&sites[0], "ours"), node(&sites[1], "ours"), node(&sites[2], "theirs")];
    let others = |at: usize| nodes[at].status()["realtime"]["nodes"].clone();
    eventually("two requests have met", LIMIT, || others(0) == 1 && others(1) == 1);
    assert_eq!(others(2), 0);
    let hearing = |at: usize| {
        let mut client = greeted(&nodes[at], "key");
        client.send(&json!({"event": "pusher:subscribe", "data": {"channel": "news"}}));
        assert_eq!(client.next().0, "pusher_internal:subscription_succeeded");
        client
    };
    let (mut near, mut stranger) = (hearing(1), hearing(2));
    let publish = |at: usize, n: u32| {
        let body = format!(r#"{{"name":"said","channel":"news","data":"{n}"}}"#);
        let target = signed(&nodes[at], "secret", "POST", "/apps/shop/events", &body);
        assert_eq!(nodes[at].post(&target, &[], body.as_bytes()).status, 200);
    };
    // The first node has no client. It looks the application up for the call, and for the other node's messages.
    publish(0, 1);
    // Messages of two nodes have no order between them.
    assert_eq!(near.next().1, json!(1));
    publish(2, 2);
    publish(1, 3);
    assert_eq!(near.next().1, json!(3));
    assert_eq!(stranger.next().1, json!(2));
    let target = || signed(&nodes[0], "secret", "GET", "/apps/shop/channels", "");
    eventually("the first node knows the second one's subscriber", LIMIT, || {
        nodes[0].get(&target()).text() == r#"{"channels":{"news":{}}}"#
    });
}
