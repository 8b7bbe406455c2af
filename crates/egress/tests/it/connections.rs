//! The choice of a connection for a call, and when connections close.

use std::sync::Arc;
use std::time::Duration;

use egress::{CallError, Engine, Fate, Key, Limits, Options, Reason};
use http::{Method, Request};
use http_body_util::BodyExt;
use testkit::{After, Body, Origin, Reply, Seen, Turn, certificates, routes};
use tokio::task::JoinSet;

use crate::support::*;

fn http1_over_tls(script: impl Fn(&Seen) -> Turn + Send + Sync + 'static) -> Origin {
    Origin::setup().tls(&certificates().origin).alpn(&["http/1.1"]).script(script).start()
}

/// A script whose `/slow` never gets an answer.
fn slow(seen: &Seen) -> Turn {
    match seen.path() {
        "/slow" => Turn::Never,
        _ => routes(seen),
    }
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_noticed_before_anything_is_written() {
    for method in [Method::GET, Method::POST] {
        for origin in [Origin::plain(routes), http1_over_tls(routes)] {
            let engine = engine();
            let key = key(&origin);
            made(&engine, get(&key, "/")).await.expect("an answer");
            origin.close_idle();
            eventually("the origin has closed", || origin.open() == 0).await;
            // Directly after an answer, the engine does not ask the kernel about a connection if the call may be
            // repeated.
            tokio::time::sleep(Duration::from_millis(1)).await;

            let request = Request::builder().method(method.clone()).uri(url(&key, "/"));
            let answer = made(&engine, call(&key, request, full("once"))).await.expect("an answer");
            assert!(!answer.timing.reused);
            assert_eq!(origin.requests().len(), 2);
            assert_eq!(stats(&engine).repeated, 0);
        }
    }
}

#[tokio::test]
async fn a_post_on_a_connection_that_dies_under_it_is_never_sent_twice() {
    for origin in [Origin::plain(routes), http1_over_tls(routes)] {
        let engine = engine();
        let key = key(&origin);
        made(&engine, get(&key, "/stale")).await.expect("an answer");
        // A connection that has been idle for this long is still used.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let error = made(&engine, post(&key, "/order", "one book")).await.expect_err("it died");
        assert_eq!((error.fate, error.reason, error.curl), (Fate::Failed, Reason::Empty, 52));
        let posts = origin.requests().iter().filter(|seen| seen.method == "POST").count();
        assert_eq!(posts, 1);
    }
}

#[tokio::test]
async fn an_idempotent_call_is_retried_once() {
    for (method, body) in [(Method::GET, ""), (Method::PUT, "whole"), (Method::DELETE, "")] {
        let origin = Origin::plain(routes);
        let engine = engine();
        let key = key(&origin);
        made(&engine, get(&key, "/stale")).await.expect("an answer");
        let request = Request::builder().method(method).uri(url(&key, "/echo"));
        let answer = made(&engine, call(&key, request, full(body))).await.expect("an answer");
        assert_eq!((answer.text(), answer.timing.reused), (body, false));
        assert_eq!(origin.requests().len(), 3);
        assert_eq!(stats(&engine).repeated, 1);
    }

    // It is not repeated twice.
    let origin = Origin::plain(|seen| match seen.number {
        0 | 1 => Reply::text("").after(After::CloseAtNext).into(),
        _ => Turn::Steps(vec![]),
    });
    let engine = engine();
    let error = async {
        made(&engine, get(&key(&origin), "/")).await?;
        made(&engine, get(&key(&origin), "/")).await
    };
    let error: CallError = error.await.expect_err("it dies twice");
    assert_eq!((error.fate, error.reason), (Fate::Failed, Reason::Empty));
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_signed_in_connection_carries_no_other_call() {
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let engine = engine();
        let key = key(&origin);
        for scheme in ["Negotiate YII=", "ntlm TlRM"] {
            made(&engine, get(&key, "/")).await.expect("an answer");
            let request = Request::get(url(&key, "/mailbox")).header("Authorization", scheme);
            let signed = made(&engine, call(&key, request, empty())).await.expect("an answer");
            assert!(!signed.timing.http2);
            made(&engine, get(&key, "/")).await.expect("an answer");
        }
        let seen = origin.requests();
        for signed in seen.iter().filter(|seen| seen.path() == "/mailbox") {
            let after = &seen[signed.number + 1..];
            assert!(after.iter().all(|seen| seen.connection != signed.connection), "{seen:?}");
        }
    }
    let key = Key { http: egress::HttpVersions::Http2, ..key(&Origin::plain(routes)) };
    let request = Request::get(url(&key, "/")).header("Authorization", "Negotiate YII=");
    let error = made(&engine(), call(&key, request, empty())).await.expect_err("declined");
    assert_eq!((error.fate, error.reason), (Fate::Declined, Reason::Unsupported));
}

#[tokio::test]
async fn different_keys_share_no_connection() {
    let origin = Origin::plain(routes);
    let engine = engine();
    let mine = key(&origin);
    let others = [
        Key { uid: 1000, ..mine.clone() },
        Key { interface: Some([127, 0, 0, 1].into()), ..mine.clone() },
        Key { connect_to: Some(("127.0.0.1".into(), origin.port())), ..mine.clone() },
        Key { family: egress::IpFamily::V4, ..mine.clone() },
    ];
    for key in others.iter().chain([&mine]).chain(&others) {
        made(&engine, get(key, "/")).await.expect("an answer");
    }
    let connections = origin.connections();
    let requests: Vec<_> = connections.iter().map(|connection| connection.requests).collect();
    assert_eq!(requests, [2, 2, 2, 2, 1]);
    // The report counts it as one origin.
    assert_eq!(stats(&engine).calls, 9);
}

#[tokio::test]
async fn a_thousand_callers_are_all_answered_over_a_few_connections() {
    let http2 = Origin::tls(routes);
    for (origin, most) in [(Origin::plain(routes), 20), (http1_over_tls(routes), 20), (http2, 12)] {
        let engine = engine();
        let key = key(&origin);
        for _ in 0..2 {
            let mut calls = JoinSet::new();
            for _ in 0..1000 {
                let (engine, call) = (engine.clone(), get(&key, "/bytes/2000"));
                calls.spawn(async move { made(&engine, call).await });
            }
            while let Some(answer) = calls.join_next().await {
                let answer = answer.expect("no panic").expect("an answer");
                assert_eq!(answer.body.len(), 2000);
            }
        }
        assert_eq!(origin.requests().len(), 2000);
        let connections = origin.connections().len();
        assert!((1..=most).contains(&connections), "{connections} connections");
        assert_eq!(stats(&engine).waiting, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_on_several_threads() {
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let engine = engine();
        let key = key(&origin);
        let mut calls = JoinSet::new();
        for _ in 0..1000 {
            let (engine, call) = (engine.clone(), get(&key, "/bytes/2000"));
            calls.spawn(async move { made(&engine, call).await });
        }
        while let Some(answer) = calls.join_next().await {
            assert_eq!(answer.expect("no panic").expect("an answer").body.len(), 2000);
        }
        assert_eq!(origin.requests().len(), 1000);
    }
}

#[tokio::test]
async fn a_call_that_waits_too_long_is_declined() {
    let origin = Origin::plain(slow);
    let engine = Engine::new(Options { http1_connections: 1, waiting: 2, ..Options::default() });
    let key = key(&origin);
    let mut tasks = JoinSet::new();
    let never = engine.clone();
    let first = get(&key, "/slow");
    tasks.spawn(async move { made(&never, first).await });
    eventually("it is at work", || origin.requests().len() == 1).await;

    let mut second = get(&key, "/");
    second.limits = Limits { connect: LONG, queue: Duration::from_millis(50) };
    let error = made(&engine, second).await.expect_err("there is one connection only");
    assert_eq!((error.fate, error.reason, error.curl), (Fate::Declined, Reason::Queue, 28));

    // The limit allows two waiting calls, not three.
    for _ in 0..2 {
        let (engine, call) = (engine.clone(), get(&key, "/"));
        tasks.spawn(async move { made(&engine, call).await });
    }
    eventually("two wait", || stats(&engine).waiting == 2).await;
    let error = made(&engine, get(&key, "/")).await.expect_err("the queue is full");
    assert_eq!((error.fate, error.reason), (Fate::Declined, Reason::Queue));
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn a_waiting_call_gets_the_next_free_connection() {
    let origin = Origin::plain(|seen| match seen.path() {
        "/first" => Reply::text("first").delayed(Duration::from_millis(50)).into(),
        _ => routes(seen),
    });
    let engine = Engine::new(Options { http1_connections: 1, ..Options::default() });
    let key = key(&origin);
    let (one, two) =
        tokio::join!(made(&engine, get(&key, "/first")), made(&engine, get(&key, "/second")));
    one.expect("an answer");
    assert!(two.expect("an answer").timing.reused);
    assert_eq!(origin.connections().len(), 1);
}

#[tokio::test]
async fn an_aborted_call_closes_its_http1_connection() {
    let origin = Origin::plain(slow);
    let engine = Engine::new(Options { http1_connections: 1, ..Options::default() });
    let key = key(&origin);
    let given_up = made(&engine, get(&key, "/slow"));
    assert!(tokio::time::timeout(Duration::from_millis(50), given_up).await.is_err());
    // The place of a connection is free again.
    assert!(!made(&engine, get(&key, "/")).await.expect("an answer").timing.reused);
    eventually("the other one is closed", || origin.open() == 1).await;
}

#[tokio::test]
async fn a_small_unread_rest_is_drained() {
    for (size, reused) in [(60_000, true), (600_000, false)] {
        let origin = Origin::plain(routes);
        let engine = Engine::new(Options { http1_connections: 1, ..Options::default() });
        let key = key(&origin);
        let answer = within(engine.call(get(&key, &format!("/bytes/{size}")), |_| {})).await;
        drop(answer.expect("a head"));
        let answer = made(&engine, get(&key, "/")).await.expect("an answer");
        assert_eq!(answer.timing.reused, reused, "{size} bytes");
    }
}

#[tokio::test]
async fn an_unread_response_is_not_buffered() {
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let engine = engine();
        let key = key(&origin);
        let answer = within(engine.call(get(&key, "/bytes/100000000"), |_| {})).await;
        let mut body = answer.expect("a head").response.into_body();
        let mut at = 0;
        while at < 5_000_000 {
            let frame = within(body.frame()).await.expect("more").expect("no failure");
            let data = frame.into_data().expect("data");
            for (byte, position) in data.iter().zip(at..) {
                assert_eq!(*byte, testkit::pattern(position), "at {position}");
            }
            at += data.len() as u64;
        }
        // Another call at the same time is answered.
        assert_eq!(made(&engine, get(&key, "/bytes/10")).await.expect("an answer").body.len(), 10);
    }
}

#[tokio::test]
async fn connections_without_calls_are_closed_after_a_while() {
    let idle = Duration::from_millis(100);
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let engine = Engine::new(Options { idle, age: 2 * idle, ..Options::default() });
        made(&engine, get(&key(&origin), "/")).await.expect("an answer");
        assert_eq!(origin.open(), 1);
        eventually("it is closed", || origin.open() == 0).await;
        eventually("and forgotten", || stats(&engine).connections == 0).await;
    }
}

#[tokio::test]
async fn a_short_keep_alive_is_learnt() {
    let origin = Origin::plain(|_| Reply::text("").field("Keep-Alive", "timeout=1").into());
    let engine = engine();
    for _ in 0..2 {
        let answer = made(&engine, get(&key(&origin), "/")).await.expect("an answer");
        assert!(!answer.timing.reused);
    }
}

#[tokio::test]
async fn an_old_connection_serves_until_it_is_replaced() {
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let age = Duration::from_millis(300);
        let engine = Engine::new(Options { age, ..Options::default() });
        let key = key(&origin);
        made(&engine, get(&key, "/")).await.expect("an answer");
        tokio::time::sleep(age).await;
        // The sweep may have closed it already; then there is no connection to replace.
        let answer = made(&engine, get(&key, "/")).await.expect("an answer");
        if answer.timing.reused {
            eventually("the successor has started", || origin.connections().len() == 2).await;
            let number = async || {
                made(&engine, get(&key, "/")).await.expect("an answer");
                origin.requests().last().expect("requests").connection
            };
            for _ in 0..100 {
                if number().await != 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_ne!(number().await, 0);
        }
    }
}

#[tokio::test]
async fn at_the_limit_an_idle_connection_is_closed() {
    let (one, two) = (Origin::plain(routes), Origin::tls(routes));
    let engine = Engine::new(Options { connections: 1, ..Options::default() });
    for origin in [&one, &two, &one, &two] {
        made(&engine, get(&key(origin), "/")).await.expect("an answer");
    }
    assert_eq!((one.connections().len(), two.connections().len()), (2, 2));
    eventually("one is left", || one.open() + two.open() == 1).await;

    // A busy connection makes room as soon as it is idle.
    let delayed = |_: &Seen| Reply::text("").delayed(Duration::from_millis(50)).into();
    for slow in [Origin::plain(delayed), Origin::tls(delayed)] {
        made(&engine, get(&key(&slow), "/")).await.expect("an answer");
        let busy = get(&key(&slow), "/");
        let other = get(&key(&one), "/");
        let (first, second) = tokio::join!(made(&engine, busy), made(&engine, other));
        first.expect("an answer");
        second.expect("an answer");
    }
}

#[tokio::test]
async fn a_delayed_connection_opens_only_for_waiting_calls() {
    let origin = Origin::plain(routes);
    let engine = Engine::new(Options { connections: 1, ..Options::default() });
    let key = key(&origin);
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let (engine, call) = (engine.clone(), get(&key, "/"));
        calls.spawn(async move { made(&engine, call).await });
    }
    while let Some(answer) = calls.join_next().await {
        answer.expect("no panic").expect("an answer");
    }
    for _ in 0..12 {
        made(&engine, get(&key, "/")).await.expect("an answer");
    }
    assert_eq!(origin.connections().len(), 1);
}

#[tokio::test]
async fn a_connection_can_be_opened_before_the_first_call() {
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let key = key(&origin);
        let engine = engine();
        engine.prewarm([key.clone(), key.clone()]);
        eventually("it is there", || stats(&engine).connections == 1).await;
        let answer = made(&engine, get(&key, "/")).await.expect("an answer");
        let timing = answer.timing;
        assert_eq!((timing.resolved, timing.connected, timing.secured), Default::default());
        assert_eq!(origin.connections().len(), 1);
    }
}

#[tokio::test]
async fn called_origins_are_remembered() {
    let origins = [Origin::plain(routes), Origin::plain(routes), Origin::plain(routes)];
    let engine = engine();
    let [one, two, three] = origins.each_ref().map(key);
    let two_for_another = Key { family: egress::IpFamily::V4, ..two.clone() };
    engine.prewarm([three]);
    for key in [&one, &two, &two, &two_for_another] {
        made(&engine, get(key, "/")).await.expect("an answer");
    }
    assert_eq!(engine.remembered(), [two, one]);
}

#[tokio::test]
async fn closing_waits_for_running_calls() {
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let engine = engine();
        let key = key(&origin);
        made(&engine, get(&key, "/")).await.expect("an answer");
        let answer =
            within(engine.call(get(&key, "/bytes/3000000"), |_| {})).await.expect("a head");
        let closing = engine.close();
        tokio::pin!(closing);
        let early = tokio::time::timeout(Duration::from_millis(20), &mut closing).await;
        assert_eq!(whole(answer).await.expect("a body").body.len(), 3_000_000);
        if early.is_err() {
            within(closing).await;
        }
        eventually("all are closed", || origin.open() == 0).await;
        let error = made(&engine, get(&key, "/")).await.expect_err("it is closed");
        assert_eq!(error.fate, Fate::Declined);
    }
}

#[tokio::test]
async fn a_dropped_engine_leaves_nothing_open() {
    for origin in [Origin::plain(routes), Origin::tls(routes)] {
        let engine = Arc::new(engine());
        made(&engine, get(&key(&origin), "/")).await.expect("an answer");
        drop(engine);
        eventually("all are closed", || origin.open() == 0).await;
    }
}

#[tokio::test]
async fn an_echo_is_as_slow_as_its_reader() {
    for origin in [Origin::plain(routes), Origin::tls(|_| Reply::text("").body(Body::Echo).into())]
    {
        let engine = engine();
        let key = key(&origin);
        let (mut sender, body) = channel();
        let request = call(&key, Request::post(url(&key, "/echo")), body);
        let answer = within(engine.call(request, |_| {})).await.expect("a head");
        // The origin reads nothing, so in the end no more is accepted.
        let piece = bytes::Bytes::from(vec![7; 65_536]);
        let mut sent = 0;
        while let Ok(result) =
            tokio::time::timeout(Duration::from_millis(300), sender.send_data(piece.clone())).await
        {
            result.expect("it is read");
            sent += piece.len();
            assert!(sent < 64 << 20, "it has no end");
        }
        drop(answer);
        let refused = async { while sender.send_data(piece.clone()).await.is_ok() {} };
        within(refused).await;
    }
}
