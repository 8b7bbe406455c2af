//! The outcome of calls when names, addresses, connections or answers are faulty.

use std::time::Duration;

use egress::{CallError, Engine, Fate, Key, Limits, Options, Reason, Scheme};
use testkit::{Greeting, Origin, Reply, Step, Turn, certificates, routes};

use crate::support::*;

fn facts(error: &CallError) -> (Fate, Reason, u8, &str) {
    (error.fate, error.reason, error.curl, &error.message)
}

async fn fails(origin: &Origin, path: &str) -> CallError {
    made(&engine(), get(&key(origin), path)).await.expect_err("it cannot be answered")
}

/// Starts an origin of HTTP/1.1 that answers with these bytes.
fn says(bytes: impl Into<Vec<u8>>) -> Origin {
    let bytes = bytes.into();
    Origin::plain(move |_| {
        Turn::Steps(vec![Step::ReadBody, Step::Send(bytes.clone()), Step::Close])
    })
}

#[tokio::test]
async fn a_refused_connection() {
    let origin = Origin::plain(routes);
    let port = origin.port();
    let key = key(&origin);
    drop(origin);
    let engine = engine();
    let error = made(&engine, get(&key, "/")).await.expect_err("the port is closed");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Connect, 7));
    let message = &error.message;
    assert!(
        message.starts_with(&format!("Failed to connect to 127.0.0.1 port {port} after ")),
        "{message}"
    );
    assert!(message.ends_with(" ms: Couldn't connect to server"), "{message}");
    assert_eq!(stats(&engine).unanswered, [(Fate::Declined, Reason::Connect, 1)]);
}

#[tokio::test]
async fn a_name_without_an_address() {
    // No label is longer than 63 bytes (RFC 1035, 2.3.4): no look-up is made.
    let name = "a".repeat(64) + ".test";
    let key = Key::plain(0, Scheme::Http, name.as_str(), 80);
    let error = made(&engine(), get(&key, "/")).await.expect_err("it has no address");
    let message = format!("Could not resolve host: {name}");
    assert_eq!(facts(&error), (Fate::Declined, Reason::Resolve, 6, message.as_str()));
}

#[tokio::test]
async fn a_tls_handshake_that_never_completes() {
    let origin = Origin::setup().tls(&certificates().origin).greet(|_| Greeting::Silence).start();
    // An address instead of a name, because a look-up takes time, too.
    let key = Key { host: "127.0.0.1".into(), ..key(&origin) };
    let mut request = get(&key, "/");
    request.limits = Limits { connect: Duration::from_millis(50), queue: LONG };
    let error = made(&engine(), request).await.expect_err("it takes too long");
    let message = "Connection timed out after 50 milliseconds";
    assert_eq!(facts(&error), (Fate::Declined, Reason::Connect, 28, message));
}

#[tokio::test]
async fn a_connection_that_ends_before_an_answer() {
    let origin = Origin::plain(routes);
    let error = fails(&origin, "/empty").await;
    assert_eq!(facts(&error), (Fate::Failed, Reason::Empty, 52, "Empty reply from server"));
    let error = fails(&origin, "/reset").await;
    let message = "Recv failure: Connection reset by peer";
    assert_eq!(facts(&error), (Fate::Failed, Reason::Reset, 56, message));
    // If a new connection breaks, the call is not made again, because the origin is at fault.
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_that_ends_too_early() {
    let origin = Origin::plain(routes);
    let message = "transfer closed with 96 bytes remaining to read";
    let error = fails(&origin, "/cut").await;
    assert_eq!(facts(&error), (Fate::Failed, Reason::Reset, 18, message));

    let message = "transfer closed with outstanding read data remaining";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let error = fails(&says(chunked), "/").await;
    assert_eq!(facts(&error), (Fate::Failed, Reason::Reset, 18, message));

    let head = "HTTP/1.1 200 OK\r\nContent-";
    let error = fails(&says(head), "/").await;
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Failed, Reason::Reset, 56));
}

#[tokio::test]
async fn an_answer_that_is_reset_in_the_middle() {
    let origin = Origin::plain(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
        Turn::Steps(vec![Step::send(head), Step::Wait(Duration::from_millis(50)), Step::Reset])
    });
    let error = fails(&origin, "/").await;
    assert_eq!((error.fate, error.reason), (Fate::Failed, Reason::Reset));
    assert!(matches!(error.curl, 18 | 56), "{error:?}");
}

#[tokio::test]
async fn a_response_that_is_not_http() {
    let error = fails(&Origin::plain(routes), "/rubbish").await;
    let message = "Received HTTP/0.9 when not allowed";
    assert_eq!(facts(&error), (Fate::Failed, Reason::Rubbish, 1, message));

    for bytes in [
        &b"HTTP/1.1 2x0 OK\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n",
        // A bare CR, and a length that is folded (RFC 9112, 2.2 and 5.2).
        b"HTTP/1.1 200 OK\r\nA: b\rInjected: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        let error = fails(&says(bytes), "/").await;
        let what = String::from_utf8_lossy(bytes);
        let (fate, reason, curl, _) = facts(&error);
        assert_eq!((fate, reason, curl), (Fate::Failed, Reason::Rubbish, 8), "{what:?}: {error:?}");
    }

    let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhalf\r\n";
    let error = fails(&says(chunk), "/").await;
    let message = "Illegal or missing hexadecimal sequence";
    assert_eq!(facts(&error), (Fate::Failed, Reason::Rubbish, 56, message));
}

#[tokio::test]
async fn a_bare_lf_ends_a_line_and_nothing_else() {
    // RFC 9112, 2.2 allows it, and libcurl accepts it. The broker writes the head again when it passes it on.
    let origin = says("HTTP/1.1 200 OK\nA: b\nContent-Length: 2\n\nok");
    let answer = made(&engine(), get(&key(&origin), "/")).await.expect("an answer");
    assert_eq!((answer.headers["a"].as_bytes(), answer.text()), (&b"b"[..], "ok"));
}

#[tokio::test]
async fn unsolicited_bytes_answer_no_call() {
    let origin = Origin::plain(|seen| match seen.number {
        0 => Turn::Steps(vec![
            Step::send(
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst\
                 HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled",
            ),
            Step::Hold,
        ]),
        _ => Reply::text("second").into(),
    });
    let engine = engine();
    let answer = made(&engine, get(&key(&origin), "/")).await.expect("an answer");
    assert_eq!(answer.text(), "first");
    let answer = made(&engine, get(&key(&origin), "/")).await.expect("an answer");
    assert_eq!((answer.text(), answer.timing.reused), ("second", false));
}

#[tokio::test]
async fn denied_networks_are_never_called() {
    let options = || {
        // A stand-in on loopback for the networks that are denied by default.
        let deny = vec!["127.0.0.2".parse().expect("a network")];
        Engine::new(Options { deny, ..Options::default() })
    };
    let origin = Origin::setup().script(routes).listen(([127, 0, 0, 2], 0).into()).start();
    let target = key(&origin);
    let message = "Connecting to 127.0.0.2 is not allowed here";
    let error = made(&options(), get(&target, "/")).await.expect_err("it is denied");
    assert_eq!(facts(&error), (Fate::Declined, Reason::Denied, 7, message));

    let mut other = Key::plain(0, Scheme::Http, "allowed.test", 80);
    other.connect_to = Some(("127.0.0.2".into(), target.port));
    let error = made(&options(), get(&other, "/")).await.expect_err("it is denied");
    assert_eq!(error.reason, Reason::Denied);

    let mapped = Key::plain(0, Scheme::Http, "::ffff:127.0.0.2", origin.port());
    let request = http::Request::get(format!("http://[::ffff:127.0.0.2]:{}/", origin.port()));
    let error = made(&options(), call(&mapped, request, empty())).await.expect_err("it is denied");
    assert_eq!(error.reason, Reason::Denied);

    // A name is denied if its addresses are.
    let loopback =
        vec!["127.0.0.0/8".parse().expect("a network"), "::1".parse().expect("a network")];
    let engine = Engine::new(Options { deny: loopback, ..Options::default() });
    let name = Key::plain(0, Scheme::Http, "localhost", origin.port());
    let error = made(&engine, get(&name, "/")).await.expect_err("it is denied");
    assert_eq!(error.reason, Reason::Denied);
    assert!(origin.connections().is_empty());

    assert_eq!(
        made(&crate::support::engine(), get(&target, "/")).await.expect("allowed").status,
        200
    );
}

#[tokio::test]
async fn an_interface_that_does_not_exist() {
    let mut key = key(&Origin::plain(routes));
    // TEST-NET-1 (RFC 5737): no machine has it.
    key.interface = Some([192, 0, 2, 1].into());
    let error = made(&engine(), get(&key, "/")).await.expect_err("it cannot be bound");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Connect, 45));
}

const ANSWER: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    4\r\nfour\r\n5\r\nfive!\r\n0\r\nX-Sum: 9\r\n\r\n";

#[tokio::test]
async fn an_answer_that_ends_anywhere_before_its_end_has_failed() {
    let origin = Origin::plain(|seen| {
        let length = seen.path().trim_start_matches('/').parse().expect("a length");
        let bytes = ANSWER.as_bytes()[..length].to_vec();
        Turn::Steps(vec![Step::Send(bytes), Step::Close])
    });
    let engine = engine();
    let key = key(&origin);
    for length in 0..ANSWER.len() {
        let error = made(&engine, get(&key, &format!("/{length}"))).await.expect_err("it is cut");
        assert_eq!(error.fate, Fate::Failed, "after {length} bytes: {error:?}");
        assert!(matches!(error.curl, 1 | 18 | 52 | 56), "after {length} bytes: {error:?}");
    }
    let answer = made(&engine, get(&key, &format!("/{}", ANSWER.len()))).await.expect("whole");
    assert_eq!((answer.text(), answer.trailers["x-sum"].as_bytes()), ("fourfive!", &b"9"[..]));
    assert_eq!(origin.requests().len(), ANSWER.len() + 1, "none was sent twice");
}

#[tokio::test]
async fn an_answer_may_come_byte_by_byte() {
    let origin =
        Origin::plain(|_| Turn::Steps(vec![Step::Drip(ANSWER.into(), Duration::ZERO), Step::Hold]));
    let mut hints = 0;
    let answer = within(engine().call(get(&key(&origin), "/"), |_| hints += 1)).await;
    let answer = whole(answer.expect("a head")).await.expect("a body");
    assert_eq!((hints, answer.text(), answer.trailers.len()), (1, "fourfive!", 1));
}

#[tokio::test]
async fn interim_responses_are_bounded() {
    for (nothing, errno, message) in [
        (
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            8,
            "Weird server reply: too much comes before the answer",
        ),
        ("\r\n", 1, "Received HTTP/0.9 when not allowed"),
    ] {
        // The limit does not depend on how much is read at a time.
        let bytes = nothing.repeat((2 << 20) / nothing.len());
        let answered = format!("{bytes}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let error = fails(&says(answered), "/").await;
        assert_eq!(facts(&error), (Fate::Failed, Reason::Rubbish, errno, message));
    }
    let hint = "a".repeat(10_000);
    let origin = Origin::tls(move |seen| {
        let count = if seen.path() == "/few" { 20 } else { 40 };
        let hinted = |reply: Reply, _| reply.interim(103, "Link", &hint);
        (0..count).fold(Reply::text("done"), hinted).into()
    });
    let answer = made(&engine(), get(&key(&origin), "/few")).await.expect("an answer");
    assert_eq!(answer.text(), "done");
    let error = fails(&origin, "/many").await;
    assert_eq!((error.fate, error.reason), (Fate::Failed, Reason::Rubbish), "{error:?}");
}
