//! The egress broker alone: the real program, real curl, an origin that follows a script.

pub(crate) mod broker;
mod egress_faults;
mod intercepted;
mod load;
mod servers;

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

pub(crate) use self::servers::in_each_model_with_authority;
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
