//! The egress broker alone: the real program, real curl, an origin that follows a script.

pub(crate) mod broker;
mod egress_faults;
mod intercepted;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use testkit::{Origin, ProcessFacts, Reply, Turn, certificates, eventually, routes};

use crate::egress::broker::{Broker, Curled};
use crate::hearth::{Hearth, LIMIT, Serve, Site, admin_of, command, models, signal};

#[test]
fn a_call_through_the_listener_gets_the_origins_response() {
    let broker = Broker::start(&[]);
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let answer = broker.curl(&["--header", "X-oDD: 1"], &origin.url("/headers?a=b"));
        assert_eq!(answer.status, 0, "{answer:?}");
        let facts: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(facts["method"], "GET", "{answer:?}");
        assert_eq!(facts["target"], "/headers?a=b");
    }
}

#[test]
fn the_origin_sees_exactly_the_callers_request() {
    let broker = Broker::start(&[]);
    let origin = Origin::plain(routes);
    let control = format!("Hearth-Control: token=\"{}\", timing", broker.token());
    let fields = [
        "X-oDD: 1",
        "x-odd: 2",
        "Accept: text/x",
        &control,
        "Connection: X-Hop",
        "X-Hop: 1",
        "User-Agent: test",
    ];
    let mut arguments = vec!["--data-binary", "body"];
    for field in fields {
        arguments.extend(["--header", field]);
    }
    let answer = broker.curl(&arguments, &origin.url("/cookies?a=b"));
    assert_eq!(answer.status, 0, "{answer:?}");
    let seen = &origin.requests()[0];
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/cookies?a=b"));
    assert_eq!(seen.text(), "body");
    let expected: Vec<(String, String)> = [
        ("Host", seen.authority.as_str()),
        ("X-oDD", "1"),
        ("x-odd", "2"),
        ("Accept", "text/x"),
        ("User-Agent", "test"),
        ("Content-Length", "4"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let sorted = |mut fields: Vec<(String, String)>| {
        fields.sort();
        fields
    };
    assert_eq!(sorted(seen.fields.clone()), sorted(expected));
    assert_eq!(seen.authority, format!("127.0.0.1:{}", origin.port()));
    // The answer keeps the origin's order and case of fields; only the origin adds a date.
    let names: Vec<&str> =
        answer.heads.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let expected = [
        "Content-Type",
        "Set-Cookie",
        "Set-Cookie",
        "X-Between",
        "Content-Length",
        "hearth-timing",
        "connection",
    ];
    assert_eq!(names, expected, "{}", answer.heads);
    let timing = answer.field("hearth-timing").unwrap();
    assert!(timing.contains("reused=?0") && timing.contains("protocol=\"1.1\""), "{timing}");
}

#[test]
fn calls_of_many_processes_share_a_connection() {
    let broker = Broker::start(&["--admin", "127.0.0.1:0"]);
    for (origin, version) in [(Origin::plain(routes), 1), (Origin::tls(routes), 2)] {
        let control = format!("Hearth-Control: token=\"{}\", timing", broker.token());
        for call in 0..5 {
            let answer = broker.curl(&["--header", &control], &origin.url("/bytes/10"));
            assert_eq!(answer.body.len(), 10, "{answer:?}");
            let reused = answer.field("hearth-timing").unwrap().contains("reused=?1");
            assert_eq!(reused, call > 0, "{answer:?}");
        }
        assert_eq!(origin.connections().len(), 1);
        assert!(origin.requests().iter().all(|seen| seen.version == version));
    }
    let admin = broker.process.log().wait_for("hearth: admin on http://");
    let address = admin.rsplit('/').next().unwrap().parse().unwrap();
    let status = admin_of(address, "/status").json();
    assert_eq!(status["egress"]["calls"], 10, "{status}");
    assert_eq!(status["egress"]["callers"], 0, "{status}");
    let origins = status["egress"]["origins"].as_array().unwrap();
    assert_eq!(origins.len(), 2, "{status}");
    for origin in origins {
        assert_eq!((&origin["calls"], &origin["reused"]), (&5.into(), &4.into()), "{status}");
    }
    let metrics = admin_of(address, "/metrics").text();
    let ratios = metrics.lines().filter(|line| line.starts_with("hearth_egress_reuse_ratio{"));
    assert_eq!(ratios.filter(|line| line.ends_with(" 0.8")).count(), 2, "{metrics}");
}

#[test]
fn interim_answers_and_trailers_pass() {
    let broker = Broker::start(&[]);
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let hinted = broker.curl(&[], &origin.url("/early-hints"));
        assert!(hinted.heads.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{hinted:?}");
        assert!(hinted.heads.contains("HTTP/1.1 200 OK\r\n"), "{hinted:?}");
        assert_eq!(hinted.text(), "hinted");
        let trailed = broker.curl(&["--raw"], &origin.url("/trailers"));
        let end = "0\r\nx-checksum: abc\r\n\r\n";
        assert!(trailed.text().to_lowercase().ends_with(end), "{trailed:?}");
    }
}

#[test]
fn a_stale_connection_never_repeats_a_post() {
    let posts =
        |origin: &Origin| origin.requests().iter().filter(|seen| seen.method == "POST").count();
    let stale = || Origin::plain(routes);

    let origin = stale();
    let stock = Command::new("curl")
        .args(["--silent", "--output", "/dev/null", &origin.url("/stale"), "--next", "--silent"])
        .args(["--output", "/dev/null", "--data", "order=1", &origin.url("/headers")])
        .status()
        .unwrap();
    assert!(stock.success());
    assert_eq!(posts(&origin), 2, "stock curl has changed: {:?}", origin.requests());

    let broker = Broker::start(&[]);
    let origin = stale();
    assert_eq!(broker.curl(&[], &origin.url("/stale")).text(), "fresh");
    // A connection that has been idle for this long is still used for a POST.
    std::thread::sleep(Duration::from_millis(150));
    let answer = broker.curl(&["--data", "order=1"], &origin.url("/headers"));
    assert!(answer.heads.starts_with("HTTP/1.1 502 "), "{answer:?}");
    let failed = answer.field("hearth-failed").unwrap();
    assert!(
        failed.starts_with("empty; errno=52; message=") || failed.starts_with("reset; errno=56"),
        "{failed}"
    );
    assert_eq!(posts(&origin), 1, "{:?}", origin.requests());

    // Calls that may be repeated are repeated: no caller gets an error.
    let origin = stale();
    assert_eq!(broker.curl(&[], &origin.url("/stale")).text(), "fresh");
    assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
}

#[test]
fn every_origin_fault_has_curls_error_number() {
    let broker = Broker::start(&[]);
    let origin = Origin::plain(routes);
    for (path, failed) in [
        ("/empty", "empty; errno=52"),
        ("/reset", "reset; errno=56"),
        ("/rubbish", "rubbish; errno=1"),
    ] {
        let answer = broker.curl(&["--data", "x"], &origin.url(path));
        assert!(answer.heads.starts_with("HTTP/1.1 502 "), "{path}: {answer:?}");
        let told = answer.field("hearth-failed").unwrap_or_default();
        assert!(told.starts_with(failed), "{path}: {answer:?}");
    }
    // The caller gets the part of the body that arrived, and then an early end: curl's error 18, as without a broker.
    let cut = broker.curl(&[], &origin.url("/cut"));
    assert_eq!((cut.status, cut.text().as_str()), (18, "half"), "{cut:?}");

    let closed = "http://127.0.0.1:1/";
    let refused = broker.curl(&[], closed);
    assert!(
        refused.field("hearth-declined").unwrap().starts_with("connect; errno=7"),
        "{refused:?}"
    );
    let unknown = broker.curl(&[], "http://no-such-name.invalid/");
    assert!(
        unknown.field("hearth-declined").unwrap().starts_with("resolve; errno=6"),
        "{unknown:?}"
    );
    let all = certificates();
    for certificate in [&all.expired, &all.other_host, &all.stranger] {
        let origin = Origin::setup().tls(certificate).script(routes).start();
        let answer = broker.curl(&[], &origin.url("/"));
        let told = answer.field("hearth-declined").unwrap_or_default();
        assert!(told.starts_with("certificate; errno=60"), "{answer:?}");
        assert!(origin.requests().is_empty());
    }
    // The log has one line for each origin and reason.
    let line = broker.process.log().wait_for("no-such-name.invalid");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["message"], "outgoing call declined");
    assert_eq!(
        (&line["reason"], &line["origin"]),
        (&"resolve".into(), &"http://no-such-name.invalid".into())
    );
}

#[test]
fn verification_cannot_be_disabled_without_the_token() {
    let broker = Broker::start(&[]);
    let origin = Origin::setup().tls(&certificates().stranger).script(routes).start();
    let url = origin.url("/headers");
    let token = broker.token();
    let wrong = token.replace(char::is_numeric, "a");
    let right = format!("Hearth-Control: token=\"{token}\", verify=?0");
    for control in [
        "Hearth-Control: verify=?0".to_owned(),
        format!("Hearth-Control: token=\"{wrong}\", verify=?0"),
        "Hearth-Control: token=\"\", verify=?0".to_owned(),
    ] {
        let answer = broker.curl(&["--header", &control], &url);
        assert!(answer.heads.starts_with("HTTP/1.1 403 "), "{control}: {answer:?}");
        assert!(answer.field("hearth-declined").unwrap().starts_with("token;"), "{answer:?}");
        // An application may forward its client's fields beside its own.
        let both = broker.curl(&["--header", &control, "--header", &right], &url);
        assert!(both.heads.starts_with("HTTP/1.1 403 "), "{control}: {both:?}");
    }
    assert!(origin.connections().is_empty(), "nothing was sent");
    let answer = broker.curl(&["--header", &right], &url);
    assert_eq!(answer.status, 0, "{answer:?}");
    assert!(!answer.text().to_lowercase().contains("hearth-control"), "{}", answer.text());
    // Calls that verify certificates do not share connections with calls that do not.
    let verifying = broker.curl(&[], &url);
    assert!(
        verifying.field("hearth-declined").unwrap().starts_with("certificate;"),
        "{verifying:?}"
    );
}

#[test]
fn ambiguous_requests_are_rejected_and_not_sent() {
    let broker = Broker::start(&[]);
    let origin = Origin::plain(routes);
    let url = origin.url("/headers");
    let host = "Host: hearth\r\n";
    for (request, reason) in [
        (
            format!(
                "POST {url} HTTP/1.1\r\n{host}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            "request",
        ),
        (
            format!(
                "POST {url} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
            ),
            "request",
        ),
        (
            format!(
                "POST {url} HTTP/1.1\r\n{host}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"
            ),
            "request",
        ),
        // hyper would answer these itself, and the caller could not see that the answer is not the origin's.
        (
            format!("POST {url} HTTP/1.1\r\n{host}Content-Length: 99999999999999999999\r\n\r\n"),
            "request",
        ),
        (
            format!("POST {url} HTTP/1.1\r\n{host}Content-Length: 18446744073709551615\r\n\r\n"),
            "request",
        ),
        (format!("GET http://a:b:c/ HTTP/1.1\r\n{host}\r\n"), "target"),
        (format!("GET {url} HTTP/1.1\r\n{host}X: a\r\n b\r\n\r\n"), "request"),
        (format!("GET {url} HTTP/1.1\r\n{host}X: a\rY: b\r\n\r\n"), "request"),
        (format!("GET {url} HTTP/1.1\r\n{host}X: a\nY: b\r\n\r\n"), "request"),
        (format!("GET {url} HTTP/1.1\n{host}\n"), "request"),
        (format!("GET {url} HTTP/1.0\r\n{host}\r\n"), "request"),
        (format!("GET {url} HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(70_000)), "request"),
        (format!("GET {url} HTTP/1.1\r\nHost: other.test\r\n\r\n"), "host"),
        (format!("GET {url} HTTP/1.1\r\n{host}Hearth-Origin: http://other.test\r\n\r\n"), "target"),
        (format!("GET / HTTP/1.1\r\n{host}\r\n"), "target"),
        (format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n{host}\r\n", origin.port()), "target"),
        (
            format!(
                "GET {url} HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            ),
            "unsupported",
        ),
        (
            format!("GET {url} HTTP/1.1\r\n{host}Authorization: Negotiate YII=\r\n\r\n"),
            "unsupported",
        ),
    ] {
        let mut stream = UnixStream::connect(broker.socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // The broker may refuse the call before it has read the whole request.
        let _sent = stream.write_all(request.as_bytes()).is_ok();
        let mut answer = String::new();
        let _read = stream.read_to_string(&mut answer).is_ok();
        let told = format!("hearth-declined: {reason};");
        let request: String = request.chars().take(200).collect();
        assert!(answer.contains(&told), "{request:?}: {answer:?}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

#[test]
fn link_local_metadata_addresses_are_denied() {
    // 127.0.0.2 stands in for a metadata service.
    let broker = Broker::start_with(&[("HEARTH_EGRESS_DENY", "127.0.0.2/32, 169.254.0.0/16")], &[]);
    let address = "127.0.0.2:0".parse().unwrap();
    let origin = Origin::setup().script(routes).listen(address).start();
    let told = |answer: &Curled| answer.field("hearth-declined").unwrap_or_default().to_owned();
    let direct = broker.curl(&[], &format!("http://127.0.0.2:{}/", origin.port()));
    assert!(told(&direct).starts_with("denied;"), "{direct:?}");
    let mapped = broker.curl(&[], &format!("http://[::ffff:127.0.0.2]:{}/", origin.port()));
    assert!(told(&mapped).starts_with("denied;"), "{mapped:?}");
    let control = format!(
        "Hearth-Control: token=\"{}\", connect-to=\"127.0.0.2:{}\"",
        broker.token(),
        origin.port()
    );
    let other = broker.curl(&["--header", &control], "http://localhost/");
    assert!(told(&other).starts_with("denied;"), "{other:?}");
    assert!(origin.connections().is_empty());
}

#[test]
fn bodies_of_100_mb_pass_both_ways_in_bounded_memory() {
    const LENGTH: u64 = 100_000_000;
    let broker = Broker::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    let bytes: Vec<u8> = (0..LENGTH).map(testkit::pattern).collect();
    std::fs::write(&file, &bytes).unwrap();
    let upload = format!("@{}", file.display());
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let before = ProcessFacts::of(broker.process.pid()).unwrap().resident;
        let over = AtomicBool::new(false);
        let (answer, most) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(ProcessFacts::of(broker.process.pid()).unwrap().resident);
                    std::thread::sleep(Duration::from_millis(10));
                }
                most
            });
            let arguments = ["--max-time", "120", "--data-binary", &upload];
            let answer = broker.curl(&arguments, &origin.url("/echo"));
            over.store(true, Ordering::Relaxed);
            (answer, watcher.join().unwrap())
        });
        assert_eq!(answer.status, 0, "{}", answer.heads);
        assert!(answer.body == bytes, "{} bytes came back changed", answer.body.len());
        let grown = most.saturating_sub(before);
        assert!(grown < 16 << 20, "{before} bytes resident have grown by {grown}");
    }
}

#[test]
fn a_thousand_callers_at_once_are_all_answered() {
    const CALLERS: usize = 1000;
    let broker = Broker::start(&[]);
    let origin = Origin::tls(|_| Reply::text("done").delayed(Duration::from_millis(300)).into());
    let request = format!("GET {} HTTP/1.1\r\nHost: hearth\r\n\r\n", origin.url("/"));
    let mut callers: Vec<UnixStream> = (0..CALLERS)
        .map(|_| {
            let mut stream = UnixStream::connect(broker.socket()).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut answered = 0;
    for caller in &mut callers {
        let mut answer = String::new();
        caller.read_to_string(&mut answer).unwrap();
        if answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done") {
            answered += 1;
        } else {
            // A declined call is answered too: the caller makes the call itself.
            assert!(answer.contains("hearth-declined: queue;"), "{answer}");
        }
    }
    assert!(answered > CALLERS / 2, "{answered} of {CALLERS}");
    assert!(origin.connections().len() <= 8, "{}", origin.connections().len());
}

#[test]
fn a_full_broker_declines_and_recovers() {
    let broker = Broker::start_with(&[("HEARTH_EGRESS_CALLERS", "2")], &[]);
    let origin = Origin::plain(|seen| match seen.path() {
        "/hold" => Turn::Never,
        _ => routes(seen),
    });
    let hold = format!("GET {} HTTP/1.1\r\nHost: hearth\r\n\r\n", origin.url("/hold"));
    let mut held: Vec<UnixStream> = (0..2)
        .map(|_| {
            let mut stream = UnixStream::connect(broker.socket()).unwrap();
            stream.write_all(hold.as_bytes()).unwrap();
            stream
        })
        .collect();
    eventually("both calls have reached the origin", LIMIT, || origin.requests().len() == 2);
    let answer = broker.curl(&[], &origin.url("/bytes/1"));
    assert!(answer.field("hearth-declined").unwrap().starts_with("full;"), "{answer:?}");
    held.pop();
    eventually("there is room again", LIMIT, || {
        broker.curl(&[], &origin.url("/bytes/1")).body.len() == 1
    });
}

#[test]
fn a_killed_caller_ends_only_its_own_call() {
    let broker = Broker::start(&[]);
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        assert_eq!(broker.curl(&[], &origin.url("/bytes/1")).body.len(), 1);
        let mut caller = Command::new("curl")
            .args(["--silent", "--unix-socket", broker.socket().to_str().unwrap()])
            .args(["--request-target", &origin.url("/never"), "--header", "Host: hearth"])
            .arg("http://hearth/")
            .spawn()
            .unwrap();
        eventually("the call has reached the origin", LIMIT, || origin.requests().len() == 2);
        caller.kill().unwrap();
        caller.wait().unwrap();
        if origin.url("").starts_with("http:") {
            // HTTP/1.1 can end a call only by closing its connection.
            eventually("its connection is closed", LIMIT, || origin.open() == 0);
        }
        assert_eq!(broker.curl(&[], &origin.url("/bytes/2")).body.len(), 2);
        let expected = if origin.url("").starts_with("http:") { 2 } else { 1 };
        assert_eq!(origin.connections().len(), expected);
    }
}

#[test]
fn a_killed_broker_restarts_at_the_same_socket() {
    let mut broker = Broker::start(&[]);
    let origin = Origin::plain(routes);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/1")).body.len(), 1);
    let token = broker.token();
    broker.process.signal(Signal::KILL);
    broker.process.wait(LIMIT);
    assert!(broker.socket().exists(), "the socket is still there");
    // curl's error for a refused connection: the caller calls the origin directly.
    assert_eq!(broker.curl(&[], &origin.url("/bytes/1")).status, 7);
    let broker = Broker::start_in(broker.folder, &[]);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/1")).body.len(), 1);
    assert_ne!(broker.token(), token);

    let mut second = command();
    second.args(["egress", "--socket"]).arg(broker.socket());
    let second = second.output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        stderr.contains("another broker serves") && stderr.contains("\"hint\":\"end the other"),
        "{stderr}"
    );
    assert_eq!(broker.curl(&[], &origin.url("/bytes/1")).body.len(), 1);
}

#[test]
fn term_finishes_running_calls_and_removes_the_socket() {
    let mut broker = Broker::start(&[]);
    let origin = Origin::plain(routes);
    let mut caller = UnixStream::connect(broker.socket()).unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: hearth\r\n\r\n", origin.url("/delay/500"));
    caller.write_all(request.as_bytes()).unwrap();
    eventually("the call has reached the origin", LIMIT, || origin.requests().len() == 1);
    broker.process.signal(Signal::TERM);
    eventually("no new connection is accepted", LIMIT, || {
        UnixStream::connect(broker.socket()).is_err()
    });
    let mut answer = String::new();
    caller.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("late"), "{answer}");
    assert_eq!(broker.process.wait(LIMIT).code(), Some(0));
    assert!(!broker.socket().exists());
    assert!(!broker.folder.path().join("egress.token").exists());
}

#[test]
fn early_responses_reach_callers_that_are_still_sending() {
    let broker = Broker::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, vec![b'x'; 5_000_000]).unwrap();
    let upload = format!("@{}", file.display());
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        for expect in ["Expect:", "Expect: 100-continue"] {
            let arguments = ["--header", expect, "--data-binary", &upload];
            let answer = broker.curl(&arguments, &origin.url("/early"));
            assert!(answer.heads.contains("HTTP/1.1 413 "), "{expect}: {answer:?}");
            assert_eq!(answer.text(), "too large", "{expect}");
        }
        // The answer is known at once, but `100 Continue` is sent first and the body is read, or the caller would wait
        // for it.
        for _ in 0..5 {
            let arguments = ["--header", "Expect: 100-continue", "--data-binary", &upload];
            let answer = broker.curl(&arguments, &origin.url("/echo"));
            assert!(answer.heads.starts_with("HTTP/1.1 100 Continue"), "{}", answer.heads);
            assert!(answer.heads.contains("HTTP/1.1 200 "), "{}", answer.heads);
        }
        // The call is declined before the body is requested, so the caller still has the whole body.
        let closed = "http://127.0.0.1:1/";
        let arguments = ["--header", "Expect: 100-continue", "--data-binary", &upload];
        let answer = broker.curl(&arguments, closed);
        assert!(answer.heads.starts_with("HTTP/1.1 502 "), "{answer:?}");
        assert!(answer.field("hearth-declined").unwrap().starts_with("connect;"), "{answer:?}");
    }
}

#[test]
fn origins_of_the_last_run_are_connected_at_the_start() {
    let mut broker = Broker::start(&[]);
    let origin = Origin::tls(routes);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/1")).body.len(), 1);
    broker.process.signal(Signal::TERM);
    assert_eq!(broker.process.wait(LIMIT).code(), Some(0));
    let broker = Broker::start_in(broker.folder, &[]);
    eventually("a connection is opened without a call", LIMIT, || origin.connections().len() == 2);
    let control = format!("Hearth-Control: token=\"{}\", timing", broker.token());
    eventually("it is used", LIMIT, || {
        let answer = broker.curl(&["--header", &control], &origin.url("/bytes/1"));
        answer.field("hearth-timing").unwrap().contains("tls=0, ")
    });
    assert_eq!(origin.connections().len(), 2);
}

/// A script that makes calls with ext-curl through the broker in the environment, and prints each result as JSON.
const CALLS: &str = r"<?php
$call = function (string $url, array $options = []): array {
    $fields = [];
    $curl = curl_init('http://hearth' . parse_url($url, PHP_URL_PATH));
    curl_setopt_array($curl, $options + [
        CURLOPT_UNIX_SOCKET_PATH => getenv('HEARTH_EGRESS'),
        CURLOPT_HTTPHEADER => ['Hearth-Origin: ' . substr($url, 0, -strlen(parse_url($url, PHP_URL_PATH)))],
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_HEADERFUNCTION => function ($curl, string $line) use (&$fields): int {
            $fields[] = trim($line);
            return strlen($line);
        },
    ]);
    $body = curl_exec($curl);
    return ['errno' => curl_errno($curl), 'status' => curl_getinfo($curl, CURLINFO_RESPONSE_CODE),
        'fields' => $fields, 'body' => $body];
};
";

#[test]
fn php_in_every_model_calls_through_the_servers_broker() {
    for (model, site, hearth) in in_each_model_with_authority(&format!(
        "{CALLS} echo json_encode($call($_GET['url'], isset($_GET['post']) ? [CURLOPT_POSTFIELDS => $_GET['post']] : []));"
    )) {
        let origin = Origin::tls(routes);
        for call in 0..3 {
            let answer = hearth.get(&format!("/call.php?post=a{call}&url={}", origin.url("/echo")));
            let answer = answer.json();
            assert_eq!(answer["errno"], 0, "{model}: {answer}");
            assert_eq!(answer["body"], format!("a{call}"), "{model}: {answer}");
        }
        assert_eq!(origin.connections().len(), 1, "{model}");
        let origins = hearth.status()["egress"]["origins"].clone();
        assert_eq!(origins[0]["reused"], 2, "{model}: {origins}");
        let socket = hearth.status()["egress"]["socket"].as_str().unwrap().to_owned();
        assert_eq!(hearth.stop().code(), Some(0), "{model}");
        assert!(!Path::new(&socket).exists(), "{model}");
        drop(site);
    }
}

/// Starts each model with one script, `call.php`, and a broker that trusts the tests' authority. Streams use the broker
/// as curl's calls do.
pub(crate) fn in_each_model_with_authority(
    script: &str,
) -> impl Iterator<Item = (&'static str, Site, Hearth)> {
    models().into_iter().map(move |model| {
        let (site, path) = Site::of_scripts_in(model);
        site.write("public/call.php", script);
        let (authority, _) = certificates().authority.write(site.path(), "authority");
        let hearth = Serve::new(path)
            .model(model)
            .workers(1)
            .set("HEARTH_EGRESS_CA", authority.to_str().unwrap())
            .ini("hearth.intercept_streams", "1")
            .start();
        (model, site, hearth)
    })
}

#[test]
fn a_killed_php_process_ends_its_call_and_its_successor_can_call() {
    let script = format!("{CALLS} echo json_encode($call($_GET['url']));");
    let site =
        Site::empty().with_file("public/index.php", "").with_file("public/call.php", &script);
    let hearth = Hearth::request(&site);
    let origin = Origin::plain(routes);
    let mut client = hearth.connect();
    let never = format!("/call.php?url={}", origin.url("/never"));
    client.send(testkit::head("GET", &never, &[], 0)).unwrap();
    eventually("the call has reached the origin", LIMIT, || origin.requests().len() == 1);
    signal(hearth.worker_pid(), Signal::KILL);
    assert_eq!(client.answer_to("GET").unwrap().status, 502);
    eventually("the broker has closed its connection", LIMIT, || origin.open() == 0);
    let answer = hearth.get(&format!("/call.php?url={}", origin.url("/bytes/5"))).json();
    assert_eq!(answer["body"].as_str().unwrap().len(), 5, "{answer}");
    let declined = hearth.get("/call.php?url=http://no-such-name.invalid/").json();
    assert_eq!(declined["status"], 502, "{declined}");
    assert!(
        declined["fields"].to_string().contains("hearth-declined: resolve; errno=6"),
        "{declined}"
    );
}

#[test]
fn a_server_without_a_broker_announces_none() {
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo json_encode(getenv('HEARTH_EGRESS'));");
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_EGRESS_ENABLED", "off")
        .start();
    assert_eq!(hearth.get("/").json(), serde_json::json!(false));
    assert!(hearth.status()["egress"].is_null());
}

#[test]
fn another_user_needs_permission_and_shares_no_connection() {
    /// An unprivileged account of the system, and its group.
    const UNPRIVILEGED: &str = "65534";
    if !rustix::process::geteuid().is_root() {
        // Only root can run processes as another user.
        return;
    }
    let origin = Origin::plain(routes);
    let call = |broker: &Broker, control: &str| -> String {
        let output = Command::new("setpriv")
            .args([
                "--reuid",
                UNPRIVILEGED,
                "--regid",
                UNPRIVILEGED,
                "--clear-groups",
                "curl",
                "--silent",
            ])
            .args(["--include", "--max-time", "30", "--unix-socket"])
            .arg(broker.socket())
            .args(["--header", "Host: hearth", "--header", control, "--request-target"])
            .args([&origin.url("/bytes/3"), "http://hearth/"])
            .output()
            .unwrap();
        format!("{:?} {}", output.status.code(), String::from_utf8_lossy(&output.stdout))
    };
    let open_folder = || {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        folder
    };
    let group = ("HEARTH_EGRESS_GROUP", UNPRIVILEGED);

    let stranger = Broker::launch(open_folder(), &[], &[]);
    assert!(call(&stranger, "X: 1").starts_with("Some(7)"), "the socket's mode keeps it out");
    let in_the_group = Broker::launch(open_folder(), &[group], &[]);
    let refused = call(&in_the_group, "X: 1");
    assert!(
        refused.contains("HTTP/1.1 403 ") && refused.contains("hearth-declined: user;"),
        "{refused}"
    );
    assert!(origin.connections().is_empty());

    let allowed = [group, ("HEARTH_EGRESS_ALLOW_USERS", UNPRIVILEGED)];
    let broker = Broker::launch(open_folder(), &allowed, &[]);
    assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    assert!(call(&broker, "X: 1").starts_with("Some(0) HTTP/1.1 200 "));
    assert_eq!(origin.connections().len(), 2, "no connection is shared between users");
    // The broker does not read the file, whether or not it could.
    let ca = broker.folder.path().join("authority.pem");
    let control = format!("Hearth-Control: token=\"{}\", ca=\"{}\"", broker.token(), ca.display());
    let refused = call(&broker, &control);
    assert!(refused.contains("hearth-declined: control;"), "{refused}");
}

#[test]
fn php_on_the_command_line_finds_a_running_broker() {
    let said = |socket: &Path| {
        let mut command = command();
        command.env("HEARTH_EGRESS_SOCKET", socket);
        let output = command.args(["php", "-r", "echo getenv('HEARTH_EGRESS');"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap())
    };
    let mut broker = Broker::start(&[]);
    assert_eq!(said(&broker.socket()), broker.socket());
    broker.process.signal(Signal::KILL);
    broker.process.wait(LIMIT);
    assert_eq!(said(&broker.socket()), PathBuf::new());
}

#[test]
fn every_method_and_framing_passes() {
    let broker = Broker::start(&[]);
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let last = || origin.requests().pop().unwrap();

        let head = broker.curl(&["--head"], &origin.url("/bytes/10"));
        assert_eq!((head.status, head.field("content-length")), (0, Some("10")), "{head:?}");
        assert_eq!(last().method, "HEAD");
        for status in ["204", "304"] {
            let answer = broker.curl(&[], &origin.url(&format!("/status/{status}")));
            assert!(answer.heads.starts_with(&format!("HTTP/1.1 {status} ")), "{answer:?}");
            assert_eq!((answer.status, answer.body.len()), (0, 0), "{answer:?}");
        }
        // POST without a length, POST with length 0, and methods that rarely have a body.
        let chunked = ["--header", "Transfer-Encoding: chunked", "--data-binary", "piece"];
        assert_eq!(broker.curl(&chunked, &origin.url("/echo")).text(), "piece");
        assert_eq!(broker.curl(&["--data-binary", ""], &origin.url("/echo")).text(), "");
        assert!(last().complete && last().method == "POST");
        let delete = ["--request", "DELETE", "--data-binary", "which"];
        assert_eq!(broker.curl(&delete, &origin.url("/echo")).text(), "which");
        assert_eq!(last().method, "DELETE");
        let own = ["--request", "PURGE"];
        assert!(broker.curl(&own, &origin.url("/headers")).text().contains("PURGE"));

        let expecting = ["--header", "Expect: 100-continue", "--data-binary", "body"];
        let answer = broker.curl(&expecting, &origin.url("/early-hints"));
        let statuses: Vec<&str> =
            answer.heads.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")).collect();
        let expected = ["100 Continue", "103 Early Hints", "200 OK"];
        assert_eq!(statuses, expected, "{answer:?}");
        assert_eq!((answer.text().as_str(), last().text().as_str()), ("hinted", "body"));

        let fields: Vec<String> =
            (0..300).map(|number| format!("X-{number}: {}", "v".repeat(100))).collect();
        let mut many: Vec<&str> = Vec::new();
        for field in &fields {
            many.extend(["--header", field]);
        }
        let answer = broker.curl(&many, &origin.url("/headers"));
        assert_eq!(answer.status, 0, "{}", answer.heads);
        assert!(last().field("x-299").is_some(), "{}", answer.heads);
        assert_eq!(
            broker.curl(&["--compressed"], &origin.url("/gzip")).text(),
            "compressed by gzip"
        );
    }
}

#[test]
fn the_servers_own_admin_address_is_denied() {
    let token = [("HEARTH_ADMIN_TOKEN", "0123456789abcdef")];
    for (listens, tried) in [
        ("127.0.0.1:0", &["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"][..]),
        // All addresses of this machine.
        ("0.0.0.0:0", &["127.0.0.1", "127.1.2.3", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"]),
    ] {
        let broker = Broker::start_with(&token, &["--admin", listens]);
        let admin = broker.process.log().wait_for("hearth: admin on http://");
        let port = admin.rsplit(':').next().unwrap().trim();
        for host in tried {
            let answer = broker.curl(&[], &format!("http://{host}:{port}/up"));
            let told = answer.field("hearth-declined").unwrap_or_default().to_owned();
            // A name may have further addresses on which nothing listens. Then the reason belongs to the last address
            // that was tried.
            let other = *host == "localhost" && told.starts_with("connect;");
            assert!(told.starts_with("denied;") || other, "{host} for {listens}: {answer:?}");
        }
        // Other ports of this machine can still be called.
        let origin = Origin::plain(routes);
        assert_eq!(broker.curl(&[], &origin.url("/bytes/3")).body.len(), 3);
    }
}
