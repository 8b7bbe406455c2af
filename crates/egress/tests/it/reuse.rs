//! The rules for reusing a kept HTTP/1.1 connection, with origins that close or send at the wrong time.

use std::sync::Arc;
use std::time::Duration;

use egress::{Engine, Fate, Options};
use testkit::{Origin, Reply, Seen, Step, Turn, certificates, routes};
use tokio::sync::Notify;

use crate::support::*;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const KEPT: &str = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
const SMUGGLED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";

/// Answers one request on each connection, then reads nothing and closes it after 2 to 50 ms without notice.
fn closes_soon(answer: &'static str) -> impl Fn(&Seen) -> Turn {
    move |seen| {
        let wait = Duration::from_millis(2 + 12 * (seen.number as u64 % 5));
        Turn::Steps(vec![Step::ReadBody, Step::send(answer), Step::Wait(wait)])
    }
}

fn over_tls(script: impl Fn(&Seen) -> Turn + Send + Sync + 'static) -> Origin {
    Origin::setup().tls(&certificates().origin).alpn(&["http/1.1"]).script(script).start()
}

/// Counts the failures among 40 calls, some of which follow the previous one at once and some later.
async fn failures(engine: &Engine, call: impl Fn() -> egress::Call) -> usize {
    let mut failed = 0;
    for number in 0..40 {
        if let Err(error) = made(engine, call()).await {
            assert_eq!(error.fate, Fate::Failed, "{error:?}");
            failed += 1;
        }
        tokio::time::sleep(Duration::from_millis([0, 1, 0, 7, 30][number % 5])).await;
    }
    failed
}

#[tokio::test]
async fn posts_succeed_on_an_origin_that_closes_silently() {
    for origin in [Origin::plain(closes_soon(ANSWER)), over_tls(closes_soon(ANSWER))] {
        let (engine, key) = (engine(), key(&origin));
        let failed = failures(&engine, || post(&key, "/order", "one book")).await;
        // A pause of 100 ms in this test's process makes a connection look stable.
        assert!(failed <= 1, "{failed} of 40");
        assert_eq!(origin.requests().len(), 40 - failed, "none was sent twice");
        assert!(stats(&engine).passed_over > 0);
        eventually("its ends are seen", || stats(&engine).closed > 0).await;
    }
}

#[tokio::test]
async fn a_false_keep_alive_is_trusted_once() {
    let origin = Origin::plain(closes_soon(KEPT));
    let (engine, key) = (engine(), key(&origin));
    let failed = failures(&engine, || post(&key, "/order", "one book")).await;
    assert!(failed <= 2, "{failed} of 40");
}

#[tokio::test]
async fn repeatable_calls_succeed_on_an_origin_that_closes_silently() {
    let origin = Origin::plain(closes_soon(ANSWER));
    let (engine, key) = (engine(), key(&origin));
    assert_eq!(failures(&engine, || get(&key, "/")).await, 0);
    let both = || {
        if origin.requests().len().is_multiple_of(2) {
            get(&key, "/")
        } else {
            post(&key, "/", "x")
        }
    };
    assert!(failures(&engine, both).await <= 1);
}

#[tokio::test]
async fn posts_share_a_kept_connection() {
    // The origin announces keep-alive.
    let announcing = |_: &Seen| Reply::text("ok").field("Connection", "keep-alive").into();
    // The origin has kept connections open.
    for (origin, before) in
        [(Origin::plain(announcing), 0), (Origin::plain(routes), 2), (over_tls(routes), 2)]
    {
        let (engine, key) = (engine(), key(&origin));
        for _ in 0..before {
            made(&engine, get(&key, "/")).await.expect("an answer");
        }
        for _ in 0..40 {
            made(&engine, post(&key, "/echo", "one book")).await.expect("an answer");
        }
        assert_eq!(origin.connections().len(), 1);
        assert_eq!(stats(&engine).passed_over, 0);
    }
}

#[tokio::test]
async fn posts_alone_find_out_that_an_origin_keeps_connections() {
    let origin = Origin::plain(routes);
    let engine = Engine::new(Options { http1_connections: 3, ..Options::default() });
    let key = key(&origin);
    let mut reused = false;
    for _ in 0..1000 {
        let answer = made(&engine, post(&key, "/echo", "x")).await.expect("an answer");
        reused = answer.timing.reused;
        if reused {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(reused, "in 5 s at least");
    let made_so_far = origin.connections().len();
    for _ in 0..20 {
        let answer = made(&engine, post(&key, "/echo", "x")).await.expect("an answer");
        assert!(answer.timing.reused);
    }
    assert_eq!(origin.connections().len(), made_so_far);
}

#[tokio::test]
async fn a_queue_of_posts_finds_out_that_an_origin_keeps_connections() {
    let origin = Origin::plain(|_| Reply::text("ok").delayed(Duration::from_millis(5)).into());
    let engine = Engine::new(Options { http1_connections: 4, ..Options::default() });
    let key = key(&origin);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..600 {
        let (engine, call) = (engine.clone(), post(&key, "/", "x"));
        calls.spawn(async move { made(&engine, call).await });
    }
    while let Some(answer) = within(calls.join_next()).await {
        answer.expect("no panic").expect("an answer");
    }
    let connections = origin.connections().len();
    assert!(connections < 300, "{connections} connections for 600 calls");
}

#[tokio::test]
async fn a_post_that_leaves_kept_connections_alone_finds_a_place_at_the_limit() {
    let origin = Origin::plain(closes_soon(ANSWER));
    for options in [
        Options { http1_connections: 1, ..Options::default() },
        Options { connections: 1, ..Options::default() },
    ] {
        let (engine, key) = (Engine::new(options), key(&origin));
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..12 {
            let call = if number % 3 == 0 { get(&key, "/") } else { post(&key, "/", "x") };
            let engine = engine.clone();
            calls.spawn(async move { made(&engine, call).await });
        }
        while let Some(answer) = within(calls.join_next()).await {
            answer.expect("no panic").expect("an answer");
        }
    }
}

#[tokio::test]
async fn after_an_unasked_answer_no_connection_of_its_origin_is_kept() {
    let behind = |seen: &Seen| match seen.number {
        0 => Turn::Steps(vec![Step::send(&format!("{ANSWER}{SMUGGLED}")), Step::Hold]),
        _ => Reply::text("ok").into(),
    };
    let late = |seen: &Seen| match seen.number {
        0 => Turn::Steps(vec![
            Step::send(ANSWER),
            Step::Wait(Duration::from_millis(20)),
            Step::send(SMUGGLED),
            Step::Hold,
        ]),
        _ => Reply::text("ok").into(),
    };
    for origin in [Origin::plain(behind), over_tls(behind), Origin::plain(late), over_tls(late)] {
        let (engine, key) = (engine(), key(&origin));
        made(&engine, get(&key, "/")).await.expect("an answer");
        // Without calls, idle connections are checked once a second.
        eventually("it is noticed", || stats(&engine).unasked == 1).await;
        for _ in 0..3 {
            for call in [get(&key, "/"), post(&key, "/", "x")] {
                let answer = made(&engine, call).await.expect("an answer");
                assert_eq!((answer.text(), answer.timing.reused), ("ok", false));
            }
        }
        assert_eq!((origin.connections().len(), stats(&engine).connections), (7, 0));
    }
}

#[tokio::test]
async fn an_idle_connection_that_ends_with_408_was_closed() {
    let idle = Arc::new(Notify::new());
    let is_idle = Arc::clone(&idle);
    let origin = Origin::plain(move |seen| match seen.number {
        0 => Turn::Steps(vec![
            Step::send(ANSWER),
            Step::Notified(Arc::clone(&is_idle)),
            Step::send("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"),
            Step::Close,
        ]),
        _ => Reply::text("ok").into(),
    });
    let (engine, key) = (engine(), key(&origin));
    made(&engine, get(&key, "/")).await.expect("an answer");
    // The answer is read to its end, so the connection is idle.
    idle.notify_one();
    eventually("its end is seen", || stats(&engine).closed == 1).await;
    for reused in [false, true] {
        let answer = made(&engine, get(&key, "/")).await.expect("an answer");
        assert_eq!((answer.text(), answer.timing.reused), ("ok", reused));
    }
    assert_eq!(stats(&engine).unasked, 0);
}
