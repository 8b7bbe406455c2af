//! Features of HTTP/2: concurrent streams, refused streams, GOAWAY, and more connections for a burst.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use egress::{Engine, Fate, HttpVersions, Key, Options, Reason, Scheme};
use testkit::{DelayProxy, Distance, Greeting, Origin, Reply, Turn, certificates, routes};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::*;

#[tokio::test]
async fn an_aborted_stream_keeps_its_connection_open() {
    let origin = Origin::tls(routes);
    let engine = engine();
    let key = key(&origin);
    let given_up = made(&engine, get(&key, "/never"));
    assert!(tokio::time::timeout(Duration::from_millis(100), given_up).await.is_err());
    // If the rest of a response is not read, its window returns to the connection.
    for _ in 0..20 {
        let answer = within(engine.call(get(&key, "/bytes/3000000"), |_| {})).await;
        drop(answer.expect("a head"));
    }
    let answer = made(&engine, get(&key, "/bytes/3000000")).await.expect("an answer");
    assert_eq!(answer.body.len(), 3_000_000);
    assert!(answer.timing.reused);
    assert_eq!(origin.connections().len(), 1);
}

#[tokio::test]
async fn unread_responses_block_no_other_stream() {
    let origin = Origin::tls(routes);
    let engine = engine();
    let key = key(&origin);
    let mut unread = Vec::new();
    for _ in 0..8 {
        let answer = within(engine.call(get(&key, "/bytes/3000000"), |_| {})).await;
        unread.push(answer.expect("a head"));
    }
    let answer = made(&engine, get(&key, "/bytes/1500000")).await.expect("an answer");
    assert_eq!(answer.body.len(), 1_500_000);
    for answer in unread {
        assert_eq!(whole(answer).await.expect("an answer").body.len(), 3_000_000);
    }
    assert_eq!(origin.connections().len(), 1);
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_whatever_the_method() {
    for body in ["", "a body"] {
        let origin = Origin::tls(|seen| match seen.number {
            0 => Turn::ResetStream(7),
            _ => Reply::facts().into(),
        });
        let engine = engine();
        let answer = made(&engine, post(&key(&origin), "/", body)).await.expect("an answer");
        assert_eq!(answer.status, 200);
        let seen = origin.requests();
        assert_eq!((seen.len(), seen[1].text().as_str()), (2, body));
        assert_eq!(stats(&engine).repeated, 1);
    }
}

#[tokio::test]
async fn a_burst_respects_the_origins_stream_limit() {
    const CALLS: usize = 120;
    let origin = Origin::setup().tls(&certificates().origin).streams(10).script(routes).start();
    // The stream limit is known one round trip after the connection.
    let distance = Distance { round_trip: Duration::from_millis(20), slow_start: false };
    let proxy = DelayProxy::start(origin.address(), distance);
    let engine = engine();
    let key = Key { port: proxy.address().port(), ..key(&origin) };
    let mut all = JoinSet::new();
    for _ in 0..CALLS {
        let (engine, key) = (engine.clone(), key.clone());
        all.spawn(async move { made(&engine, post(&key, "/echo", "a body")).await });
    }
    while let Some(answer) = all.join_next().await {
        assert_eq!(answer.expect("no panic").expect("an answer").text(), "a body");
    }
    assert_eq!(origin.requests().len(), CALLS);
}

#[tokio::test]
async fn an_origin_that_always_refuses_streams_is_not_retried() {
    let origin = Origin::tls(|_| Turn::ResetStream(7));
    let error = made(&engine(), get(&key(&origin), "/")).await.expect_err("it is refused");
    // The origin has processed nothing, so the caller may make the call itself.
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Stream, 92));
    assert_eq!(error.message, "HTTP/2 stream 5 was not closed cleanly: REFUSED_STREAM (err 7)");
    assert_eq!(origin.requests().len(), 3);
    // The caller cannot repeat a body that was already read.
    let error = made(&engine(), post(&key(&origin), "/", "body")).await.expect_err("it is refused");
    assert_eq!(error.fate, Fate::Failed);
}

#[tokio::test]
async fn a_stream_that_is_reset_has_failed() {
    let origin = Origin::tls(|_| Turn::ResetStream(2));
    let error = made(&engine(), get(&key(&origin), "/")).await.expect_err("it is reset");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Failed, Reason::Stream, 92));
    assert_eq!(error.message, "HTTP/2 stream 1 was not closed cleanly: INTERNAL_ERROR (err 2)");
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn streams_unprocessed_by_goaway_are_retried() {
    for body in ["", "a body"] {
        let origin = Origin::setup()
            .tls(&certificates().origin)
            .script(routes)
            .greet(|number| if number == 0 { Greeting::GoAwayUnprocessed } else { Greeting::Serve })
            .start();
        let engine = engine();
        let answer = made(&engine, post(&key(&origin), "/echo", body)).await.expect("an answer");
        assert_eq!(answer.text(), body);
        let connections = origin.connections();
        assert_eq!(connections.len(), 2);
        assert_eq!((connections[0].requests, connections[1].requests), (1, 1));
    }
}

#[tokio::test]
async fn an_origin_that_requires_http1_gets_it() {
    let origin = Origin::tls(|seen| match seen.version {
        2 => Turn::ResetStream(13),
        _ => Reply::text("over HTTP/1.1").into(),
    });
    let engine = engine();
    for _ in 0..2 {
        let answer = made(&engine, post(&key(&origin), "/", "body")).await.expect("an answer");
        assert_eq!((answer.text(), answer.timing.http2), ("over HTTP/1.1", false));
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_closed_connection_fails_its_streams() {
    let origin = Origin::tls(routes);
    let engine = engine();
    let key = key(&origin);
    made(&engine, get(&key, "/")).await.expect("an answer");
    let never = post(&key, "/never", "");
    let ended = async {
        eventually("it is there", || origin.requests().len() == 2).await;
        drop(origin);
    };
    let (answer, ()) = tokio::join!(made(&engine, never), ended);
    let error = answer.expect_err("the origin is gone");
    assert_eq!(error.fate, Fate::Failed);
    assert!(matches!(error.reason, Reason::Empty | Reason::Reset), "{error:?}");
}

#[tokio::test]
async fn http2_without_tls_by_prior_knowledge() {
    let origin = Origin::plain(routes);
    let key = Key { http: HttpVersions::Http2, ..key(&origin) };
    let answer = made(&engine(), get(&key, "/")).await.expect("an answer");
    assert!(answer.timing.http2);
    assert_eq!(origin.requests()[0].version, 2);
}

#[tokio::test]
async fn a_burst_on_a_connection_gone_cold_brings_more_connections() {
    let origin = Origin::tls(routes);
    let cold = Duration::from_millis(20);
    let engine = Engine::new(Options { cold, ..Options::default() });
    let key = key(&origin);
    let burst = async || {
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            let (engine, call) = (engine.clone(), get(&key, "/bytes/1000"));
            calls.spawn(async move { made(&engine, call).await });
        }
        while let Some(answer) = calls.join_next().await {
            answer.expect("no panic").expect("an answer");
        }
    };
    burst().await;
    assert_eq!(origin.connections().len(), 1, "one is the best there is for a cold start");
    tokio::time::sleep(2 * cold).await;
    burst().await;
    eventually("more are there", || stats(&engine).connections == 12).await;
    tokio::time::sleep(2 * cold).await;
    burst().await;
    let connections = origin.connections();
    assert_eq!(connections.len(), 12);
    assert!(connections.iter().all(|connection| connection.requests > 0), "{connections:?}");
}

/// Copies bytes in both directions until it is ordered to go silent.
async fn relay(to: u16, silent: Arc<AtomicBool>, mut from: TcpStream) -> std::io::Result<()> {
    let mut origin = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
    let copy = copy_bidirectional(&mut from, &mut origin);
    let silenced = async {
        while !silent.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        copied = copy => return copied.map(drop),
        () = silenced => {}
    }
    std::future::pending().await
}

#[tokio::test]
async fn a_connection_that_has_gone_silent_takes_no_new_calls() {
    let origin = Origin::plain(routes);
    let to = origin.port();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let first = Arc::new(AtomicBool::new(false));
    let silent = Arc::clone(&first);
    let mut relays = JoinSet::new();
    relays.spawn(async move {
        let mut connections = JoinSet::new();
        let mut silent = Some(silent);
        while let Ok((from, _)) = listener.accept().await {
            let silent = silent.take().unwrap_or_default();
            connections.spawn(async move { drop(relay(to, silent, from).await) });
        }
    });

    // The connection's own time-out must not be the reason.
    let engine = Engine::new(Options { pong: 10 * LONG, ..Options::default() });
    let plain = Key::plain(0, Scheme::Http, "127.0.0.1", port);
    let key = Key { http: HttpVersions::Http2, ..plain };
    made(&engine, get(&key, "/")).await.expect("an answer");
    first.store(true, Relaxed);
    // The engine notices it within a few milliseconds; until then calls are answered.
    let lost = async {
        while let Ok(answer) =
            tokio::time::timeout(Duration::from_secs(1), engine.call(get(&key, "/"), |_| {})).await
        {
            answer.expect("an answer");
        }
    };
    within(lost).await;
    let answer = made(&engine, get(&key, "/")).await.expect("an answer over another one");
    assert!(!answer.timing.reused);
    assert!(made(&engine, get(&key, "/")).await.expect("an answer").timing.reused);
}

#[tokio::test]
async fn a_connection_to_a_slow_origin_stays_in_use() {
    let origin = Origin::tls(|seen| match seen.path() {
        "/never" => Reply::text("").delayed(Duration::from_hours(1)).into(),
        _ => routes(seen),
    });
    let engine = engine();
    let key = key(&origin);
    made(&engine, get(&key, "/")).await.expect("an answer");
    let never = engine.call(get(&key, "/never"), |_| {});
    assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
    // Until its PING is answered, another call may open one more connection. Pairs of calls use both.
    for _ in 0..1000 {
        let (one, two) = tokio::join!(made(&engine, get(&key, "/")), made(&engine, get(&key, "/")));
        assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
        if origin.connections()[0].requests > 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the first connection is not used any more");
}

#[tokio::test]
async fn a_connection_without_ping_replies_is_closed() {
    // A proxy that stops forwarding looks the same: the origin accepts and sends nothing.
    let origin = Origin::setup().script(routes).greet(|_| Greeting::Silence).start();
    let options = Options {
        ping: Duration::from_millis(20),
        pong: Duration::from_millis(50),
        ..Options::default()
    };
    let key = Key {
        http: HttpVersions::Http2,
        ..Key::plain(0, Scheme::Http, "127.0.0.1", origin.port())
    };
    let error = made(&Engine::new(options), post(&key, "/", "")).await.expect_err("it is dead");
    assert_eq!(error.fate, Fate::Failed);
}
