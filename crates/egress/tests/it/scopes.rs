//! Calls whose connections share a limit, and the number of connections that the origin sees.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use egress::{Engine, Key, Scope};
use testkit::{Origin, Seen, Turn, certificates, routes};
use tokio::task::JoinSet;

use crate::support::*;

fn scope(name: &str, connections: usize, total: usize) -> Scope {
    let (connections, total) = (NonZeroUsize::new(connections), NonZeroUsize::new(total));
    Scope { name: name.into(), connections, total }
}

fn http1_over_tls(script: impl Fn(&Seen) -> Turn + Send + Sync + 'static) -> Origin {
    Origin::setup().tls(&certificates().origin).alpn(&["http/1.1"]).script(script).start()
}

/// Makes concurrent calls within a scope; all must be answered.
async fn calls(engine: &Engine, key: &Key, path: &str, scope: &Scope, count: usize) {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let (engine, mut call) = (engine.clone(), get(key, path));
        call.scope = Some(scope.clone());
        calls.spawn(async move { made(&engine, call).await });
    }
    while let Some(answer) = calls.join_next().await {
        assert_eq!(answer.expect("no panic").expect("an answer").status, 200);
    }
}

#[tokio::test]
async fn over_http1_a_limit_is_one_of_connections_to_the_origin() {
    for limit in [1, 2, 5, 20] {
        for origin in [Origin::plain(routes), http1_over_tls(routes)] {
            let engine = engine();
            calls(&engine, &key(&origin), "/", &scope("a", limit, 0), 100).await;
            assert_eq!(origin.requests().len(), 100);
            let connections = origin.connections().len();
            assert!((1..=limit).contains(&connections), "{connections} for {limit}");
        }
    }
}

#[tokio::test]
async fn over_http2_calls_share_what_the_limit_allows() {
    for limit in [1, 2, 5, 20, 100] {
        let origin = Origin::tls(routes);
        let engine = engine();
        for _ in 0..2 {
            calls(&engine, &key(&origin), "/", &scope("a", limit, 0), 100).await;
        }
        assert_eq!(origin.requests().len(), 200);
        let connections = origin.connections().len();
        assert!((1..=limit).contains(&connections), "{connections} for {limit}");
    }
}

#[tokio::test]
async fn over_http2_a_limit_of_one_holds_no_call_back() {
    // The origin answers none before all have arrived.
    let arrived = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&arrived);
    let origin = Origin::tls(move |call| {
        seen.lock().expect("no panic").insert(call.number);
        Turn::Never
    });
    let engine = engine();
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (engine, mut call) = (engine.clone(), get(&key(&origin), "/"));
        call.scope = Some(scope("a", 1, 0));
        tasks.spawn(async move { engine.call(call, |_| {}).await.map(drop) });
    }
    eventually("all are there", || arrived.lock().expect("no panic").len() == 50).await;
    assert_eq!(origin.connections().len(), 1);
}

#[tokio::test]
async fn scopes_are_limited_each_for_itself() {
    let origin = Origin::plain(|seen| match seen.path() {
        "/slow" => Turn::Never,
        _ => routes(seen),
    });
    let engine = engine();
    let mut tasks = JoinSet::new();
    for name in ["a", "b"] {
        for _ in 0..3 {
            let (engine, mut call) = (engine.clone(), get(&key(&origin), "/slow"));
            call.scope = Some(scope(name, 1, 0));
            tasks.spawn(async move { engine.call(call, |_| {}).await.map(drop) });
        }
    }
    eventually("one of each", || origin.requests().len() == 2).await;
    // Calls without a scope, or in another one, do not wait.
    made(&engine, get(&key(&origin), "/")).await.expect("an answer");
    calls(&engine, &key(&origin), "/", &scope("c", 1, 0), 5).await;
    assert_eq!(origin.requests().iter().filter(|seen| seen.path() == "/slow").count(), 2);
    // A cancelled call makes room for the next.
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    calls(&engine, &key(&origin), "/", &scope("a", 1, 0), 3).await;
}

#[tokio::test]
async fn a_total_is_one_of_connections_to_all_origins() {
    let origins: Vec<Origin> = (0..4)
        .map(|_| {
            Origin::plain(|seen| match seen.path() {
                "/slow" => Turn::Never,
                _ => routes(seen),
            })
        })
        .collect();
    let slow = || -> Vec<usize> {
        let slow = |origin: &Origin| {
            origin.requests().iter().filter(|seen| seen.path() == "/slow").count()
        };
        origins.iter().map(slow).collect()
    };
    let engine = engine();
    let mut tasks = JoinSet::new();
    for at in 0..12 {
        let (engine, mut call) = (engine.clone(), get(&key(&origins[at / 3]), "/slow"));
        call.scope = Some(scope("a", 2, 3));
        tasks.spawn(async move { engine.call(call, |_| {}).await.map(drop) });
        tokio::task::yield_now().await;
    }
    eventually("as many as may be", || slow() == [2, 1, 0, 0]).await;
    for origin in &origins {
        made(&engine, get(&key(origin), "/")).await.expect("an answer");
    }
    assert_eq!(slow(), [2, 1, 0, 0]);
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    calls(&engine, &key(&origins[3]), "/", &scope("a", 2, 3), 9).await;
}

#[tokio::test]
async fn an_engine_that_closes_declines_who_waits_for_a_scope() {
    let origin = Origin::plain(|_| Turn::Never);
    let engine = engine();
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let (engine, mut call) = (engine.clone(), get(&key(&origin), "/"));
        call.scope = Some(scope("a", 1, 0));
        tasks.spawn(async move { engine.call(call, |_| {}).await.map(drop) });
    }
    eventually("one is at work", || origin.requests().len() == 1).await;
    let closing = engine.clone();
    let mut closed = JoinSet::new();
    closed.spawn(async move { closing.close().await });
    let declined = within(tasks.join_next()).await.expect("a task").expect("no panic");
    assert_eq!(declined.expect_err("it waits").fate, egress::Fate::Declined);
    tasks.abort_all();
    within(closed.join_all()).await;
}
