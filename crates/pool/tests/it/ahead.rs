//! Tests requests that are written ahead to busy workers: 16 with one worker, the running one included.
#![expect(clippy::disallowed_methods, reason = "every task here is awaited or aborted")]

mod bodies;
mod shedding;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use pool::{CompleteBody, DispatchError, Model, Options, Pool, RequestContext};
use tokio::time::Instant;

use crate::{context, eventually, get, options, request, text};

/// Number of requests after which the pool knows that they are short.
const KNOWN: u64 = 20;

/// Starts a pool that writes requests ahead.
async fn start_deep(options: Options) -> Pool {
    let pool = Pool::start(options).await.unwrap();
    learn(&pool).await;
    pool
}

async fn learn(pool: &Pool) {
    for _ in 0..KNOWN {
        assert_eq!(text(get(pool, "/hello").await.unwrap()).await, "hello");
    }
}

async fn ask(pool: &Pool, target: &str) -> Result<String, DispatchError> {
    match get(pool, target).await {
        Ok(response) => {
            let body = response.into_body().collect().await;
            Ok(String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap())
        }
        Err(error) => Err(error),
    }
}

/// Sends a request in a task of its own.
fn send(pool: &Pool, target: &str) -> tokio::task::JoinHandle<Result<String, DispatchError>> {
    let (pool, target) = (pool.clone(), target.to_owned());
    tokio::spawn(async move { ask(&pool, &target).await })
}

/// Notes the number of requests ahead; returns the most until now.
fn most_ahead(pool: &Pool, most: &AtomicUsize) -> usize {
    let ahead = pool.status().ahead;
    ahead.max(most.fetch_max(ahead, Ordering::Relaxed))
}

async fn until_ahead(pool: &Pool, number: usize) {
    eventually("requests are written ahead", || pool.status().ahead == number).await;
}

fn died(result: &Result<String, DispatchError>) -> bool {
    matches!(result, Err(DispatchError::WorkerDied { .. }))
}

#[tokio::test]
async fn requests_ahead_are_answered_in_order_and_wait_like_others() {
    let pool = start_deep(options(1)).await;
    let first = send(&pool, "/sleep?1000");
    let asked: Vec<_> = (0..20).map(|n| send(&pool, &format!("/request?n={n}"))).collect();
    // On a busy machine they take longer, and fewer are ahead.
    eventually("several are ahead", || pool.status().ahead >= 3).await;
    let status = pool.status();
    assert_eq!(status.backlog, 20);
    assert!(status.ahead <= 15, "{}", status.ahead);
    assert_eq!(first.await.unwrap().unwrap(), "slept");
    for (n, answer) in asked.into_iter().enumerate() {
        let answer = answer.await.unwrap().unwrap();
        assert!(answer.contains(&format!("QUERY_STRING=n={n}\n")), "{answer}");
    }
    assert_eq!((pool.status().backlog, pool.status().ahead), (0, 0));
}

#[tokio::test]
async fn one_shot_workers_and_slow_applications_get_one_request_at_a_time() {
    for model in [Model::Spawn, Model::Request] {
        let mut options = options(1);
        options.model = model;
        let pool = Pool::start(options).await.unwrap();
        for _ in 0..10 {
            ask(&pool, "/sleep?8").await.unwrap();
        }
        let asked: Vec<_> = (0..5).map(|_| send(&pool, "/sleep?50")).collect();
        eventually("four wait", || pool.status().backlog == 4).await;
        assert_eq!(pool.status().ahead, 0, "{model:?}");
        for answer in asked {
            assert_eq!(answer.await.unwrap().unwrap(), "slept");
        }
    }
}

#[tokio::test]
async fn a_long_request_holds_up_no_request_behind_it_while_another_worker_is_free() {
    let pool = start_deep(options(2)).await;
    let long = send(&pool, "/sleep?3000");
    let short = send(&pool, "/sleep?50");
    let behind: Vec<_> = (0..6).map(|_| send(&pool, "/hello")).collect();
    for answer in behind {
        assert_eq!(answer.await.unwrap().unwrap(), "hello");
    }
    assert!(!long.is_finished(), "they did not wait for it");
    short.await.unwrap().unwrap();
    // The worker skips what was taken from it.
    assert_eq!(long.await.unwrap().unwrap(), "slept");
    learn(&pool).await;
    let served: u64 = pool.status().workers.iter().map(|worker| worker.requests).sum();
    assert_eq!(served, 8 + 2 * KNOWN, "each was answered once");
}

#[tokio::test]
async fn a_client_that_takes_a_long_answer_slowly_holds_up_no_request_behind_it() {
    let pool = start_deep(options(2)).await;
    let busy = send(&pool, "/sleep?200");
    let asked = tokio::spawn({
        let pool = pool.clone();
        async move { get(&pool, "/large?20000000").await.unwrap().into_body() }
    });
    let behind: Vec<_> = (0..6).map(|_| send(&pool, "/hello")).collect();
    let mut body = asked.await.unwrap();
    let mut taken = 0;
    while taken < 100_000 {
        taken += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    for answer in behind {
        assert_eq!(answer.await.unwrap().unwrap(), "hello");
    }
    busy.await.unwrap().unwrap();
    while let Some(frame) = body.frame().await {
        taken += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(taken, 20_000_000);
}

#[tokio::test]
async fn requests_behind_one_that_kills_its_worker_are_answered_by_another_and_none_twice() {
    for deadly in ["/die", "/die-after-head", "/malformed"] {
        let pool = start_deep(options(1)).await;
        let first = send(&pool, "/sleep?500");
        let asked = send(&pool, deadly);
        let behind: Vec<_> = (0..2).map(|_| send(&pool, "/hello")).collect();
        until_ahead(&pool, 3).await;
        assert_eq!(first.await.unwrap().unwrap(), "slept");
        if deadly == "/die-after-head" {
            assert!(asked.await.is_err(), "its body is cut, which `ask` does not expect");
        } else {
            assert!(died(&asked.await.unwrap()), "{deadly}");
        }
        for answer in behind {
            let answer = answer.await.unwrap();
            // What follows on a protocol violation may have begun: then it is not sent again.
            assert!(answer.is_ok() || (deadly == "/malformed" && died(&answer)), "{deadly}");
        }
        assert_eq!(ask(&pool, "/hello").await.unwrap(), "hello");
    }
}

#[tokio::test]
async fn requests_behind_one_after_which_its_worker_retires_go_to_another() {
    for _ in 0..3 {
        let mut options = options(1);
        options.model = Model::Snapshot;
        let pool = start_deep(options).await;
        let first = send(&pool, "/sleep?500");
        let asked = send(&pool, "/retire");
        let behind: Vec<_> = (0..2).map(|_| send(&pool, "/hello")).collect();
        until_ahead(&pool, 3).await;
        assert_eq!(first.await.unwrap().unwrap(), "slept");
        assert_eq!(asked.await.unwrap().unwrap(), "answered");
        for answer in behind {
            assert_eq!(answer.await.unwrap().unwrap(), "hello");
        }
        eventually("it has retired", || pool.status().retired == 1).await;
        assert_eq!(pool.status().crashes, 0);
    }
}

#[tokio::test]
async fn requests_behind_one_over_its_time_limit_have_a_time_of_their_own() {
    let mut options = options(1);
    options.request_timeout = Some(Duration::from_secs(1));
    let pool = start_deep(options).await;
    let long = send(&pool, "/sleep?60000");
    let behind: Vec<_> = (0..3).map(|_| send(&pool, "/sleep?600")).collect();
    until_ahead(&pool, 3).await;
    assert!(matches!(long.await.unwrap(), Err(DispatchError::TimedOut { .. })));
    for answer in behind {
        assert_eq!(answer.await.unwrap().unwrap(), "slept");
    }
    assert_eq!((pool.status().timeouts, pool.status().crashes), (1, 0));
}

#[tokio::test]
async fn a_request_behind_one_over_its_time_limit_never_begins_on_the_worker_that_is_killed() {
    let mut options = options(1);
    options.request_timeout = Some(Duration::from_secs(1));
    options.ini = vec![("kill-late".into(), "1".into())];
    let pool = start_deep(options).await;
    let long = send(&pool, "/sleep?1200");
    let behind = send(&pool, "/sleep?700");
    until_ahead(&pool, 1).await;
    // It may end before the kill.
    drop(long.await.unwrap());
    assert_eq!(behind.await.unwrap().unwrap(), "slept");
    assert_eq!((pool.status().timeouts, pool.status().crashes), (1, 0));
}

#[tokio::test]
async fn a_client_that_leaves_while_its_request_is_ahead_costs_no_work() {
    let pool = start_deep(options(1)).await;
    let long = send(&pool, "/sleep?300");
    let gone: Vec<_> = (0..3).map(|_| send(&pool, "/hello")).collect();
    until_ahead(&pool, 3).await;
    for request in gone {
        request.abort();
        assert!(request.await.is_err());
    }
    assert_eq!((pool.status().backlog, pool.status().ahead), (0, 0));
    long.await.unwrap().unwrap();
    learn(&pool).await;
    let workers = pool.status().workers;
    assert_eq!(workers.len(), 1);
    assert_eq!(workers.first().unwrap().requests, 1 + 2 * KNOWN, "the three were skipped");
}

#[tokio::test]
async fn a_client_that_leaves_is_told_to_the_worker_when_others_are_behind() {
    let pool = start_deep(options(1)).await;
    let mut body = get(&pool, "/drip?3000").await.unwrap().into_body();
    let behind: Vec<_> = (0..3).map(|_| send(&pool, "/hello")).collect();
    until_ahead(&pool, 3).await;
    body.frame().await.unwrap().unwrap();
    drop(body);
    let began = Instant::now();
    for answer in behind {
        assert_eq!(answer.await.unwrap().unwrap(), "hello");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "the drip ended early");
}

#[tokio::test]
async fn a_deadline_that_passes_while_a_request_is_ahead_costs_no_worker() {
    let pool = start_deep(options(1)).await;
    let long = send(&pool, "/sleep?400");
    let mut asked = request("/hello");
    let context = asked.extensions_mut().get_mut::<RequestContext>().unwrap();
    context.deadline = Some(Instant::now() + Duration::from_millis(100));
    let error = tokio::spawn({
        let pool = pool.clone();
        async move { pool.dispatch(asked).await.map(drop).unwrap_err() }
    });
    until_ahead(&pool, 1).await;
    assert!(matches!(error.await.unwrap(), DispatchError::TimedOut { .. }));
    long.await.unwrap().unwrap();
    learn(&pool).await;
    let status = pool.status();
    assert_eq!((status.timeouts, status.crashes), (0, 0));
    assert_eq!(status.workers.first().unwrap().requests, 1 + 2 * KNOWN, "it was not run");
}

#[tokio::test]
async fn a_full_backlog_drops_the_newest_of_the_client_with_most_although_it_is_ahead() {
    let mut options = options(1);
    options.backlog = 3;
    let pool = start_deep(options).await;
    let long = send(&pool, "/sleep?300");
    let mut greedy: Vec<_> = (0..3).map(|_| send(&pool, "/hello")).collect();
    until_ahead(&pool, 3).await;
    let error = ask(&pool, "/hello").await.unwrap_err();
    assert!(matches!(error, DispatchError::Overloaded { .. }), "its own are first come");
    let mut asked = request("/hello");
    let context = asked.extensions_mut().get_mut::<RequestContext>().unwrap();
    context.remote = "198.51.100.1:1234".parse().unwrap();
    assert_eq!(text(pool.dispatch(asked).await.unwrap()).await, "hello");
    let newest = greedy.pop().unwrap().await.unwrap();
    assert!(matches!(newest, Err(DispatchError::Overloaded { .. })));
    for answer in greedy {
        assert_eq!(answer.await.unwrap().unwrap(), "hello");
    }
    long.await.unwrap().unwrap();
    assert_eq!(pool.status().workers.first().unwrap().requests, 4 + KNOWN);
}

#[tokio::test]
async fn a_request_that_waits_too_long_is_taken_back_and_refused() {
    let mut options = options(1);
    options.backlog_timeout = Duration::from_millis(200);
    let pool = start_deep(options).await;
    let long = send(&pool, "/sleep?1500");
    let behind: Vec<_> = (0..3).map(|_| send(&pool, "/hello")).collect();
    until_ahead(&pool, 3).await;
    for answer in behind {
        let error = answer.await.unwrap().unwrap_err();
        assert!(matches!(error, DispatchError::Overloaded { .. }), "{error}");
    }
    assert!(!long.is_finished());
    long.await.unwrap().unwrap();
    learn(&pool).await;
    assert_eq!(pool.status().workers.first().unwrap().requests, 1 + 2 * KNOWN);
}

#[tokio::test]
async fn workers_are_recycled_with_requests_ahead_and_none_serves_more_than_it_may() {
    let mut options = options(2);
    options.max_requests = std::num::NonZeroU64::new(9);
    let pool = start_deep(options).await;
    let most = AtomicUsize::new(0);
    for _ in 0..20 {
        let asked: Vec<_> = (0..16).map(|n| send(&pool, &format!("/request?n={n}"))).collect();
        for (n, answer) in asked.into_iter().enumerate() {
            most_ahead(&pool, &most);
            let answer = answer.await.unwrap().unwrap();
            assert!(answer.contains(&format!("QUERY_STRING=n={n}\n")), "{answer}");
        }
    }
    let status = pool.status();
    assert!(status.recycled >= 5, "{}", status.recycled);
    assert_eq!(status.crashes, 0);
    assert!(most_ahead(&pool, &most) > 0, "requests were ahead");
}

#[tokio::test]
async fn renewed_workers_leave_their_requests_to_their_successors() {
    let pool = start_deep(options(1)).await;
    let long = send(&pool, "/sleep?300");
    let behind: Vec<_> = (0..3).map(|_| send(&pool, "/pid")).collect();
    until_ahead(&pool, 3).await;
    let before = pool.status().workers.first().unwrap().pid.to_string();
    assert!(pool.renew().await.unwrap());
    long.await.unwrap().unwrap();
    for answer in behind {
        assert_ne!(answer.await.unwrap().unwrap(), before);
    }
    assert_eq!(pool.status().crashes, 0);
}

#[tokio::test]
async fn a_drain_answers_what_is_ahead_and_an_impatient_one_refuses_it() {
    for (patience, is_answered) in [(10_000, true), (100, false)] {
        let pool = start_deep(options(1)).await;
        let long = send(&pool, "/sleep?1000");
        let behind: Vec<_> = (0..3).map(|_| send(&pool, "/hello")).collect();
        until_ahead(&pool, 3).await;
        pool.drain(Duration::from_millis(patience)).await;
        assert_eq!(long.await.unwrap().is_ok(), is_answered);
        for answer in behind {
            assert_eq!(answer.await.unwrap().is_ok(), is_answered);
        }
        assert!(matches!(ask(&pool, "/hello").await, Err(DispatchError::Draining)));
    }
}

#[tokio::test]
async fn a_body_that_streams_has_its_worker_for_itself_and_its_turn_comes() {
    let pool = start_deep(options(1)).await;
    let (pieces, body) = tokio::sync::mpsc::channel::<&'static [u8]>(1);
    let body = body_of(body);
    let upload = tokio::spawn({
        let (pool, body) = (pool.clone(), body);
        async move {
            let request = http::Request::post("/echo").extension(context()).body(body).unwrap();
            text(pool.dispatch(request).await.unwrap()).await
        }
    });
    pieces.send(b"one ").await.unwrap();
    eventually("it runs", || pool.status().workers.iter().any(|w| w.running.is_some())).await;
    let behind: Vec<_> = (0..4).map(|_| send(&pool, "/hello")).collect();
    eventually("four wait", || pool.status().backlog == 4).await;
    assert_eq!(pool.status().ahead, 0, "nothing may follow an unfinished body");
    // The time of a client is none of the application's: others are written ahead as before.
    tokio::time::sleep(Duration::from_millis(400)).await;
    pieces.send(b"two").await.unwrap();
    drop(pieces);
    assert_eq!(upload.await.unwrap(), "one two");
    for answer in behind {
        assert_eq!(answer.await.unwrap().unwrap(), "hello");
    }
    // One with a body waits among others that have none.
    let long = send(&pool, "/sleep?500");
    let others: Vec<_> = (0..3).map(|_| send(&pool, "/hello")).collect();
    until_ahead(&pool, 3).await;
    let body = Full::new(bytes::Bytes::from_static(b"a form"));
    let form = http::Request::post("/echo").extension(context()).body(body).unwrap();
    assert_eq!(text(pool.dispatch(form).await.unwrap()).await, "a form");
    long.await.unwrap().unwrap();
    for answer in others {
        assert_eq!(answer.await.unwrap().unwrap(), "hello");
    }
}

/// A body of pieces that come over a channel.
fn body_of(
    pieces: tokio::sync::mpsc::Receiver<&'static [u8]>,
) -> impl http_body::Body<Data = bytes::Bytes, Error = std::convert::Infallible> {
    struct Pieces(tokio::sync::mpsc::Receiver<&'static [u8]>);
    impl http_body::Body for Pieces {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
            let frame = |piece| Ok(http_body::Frame::data(bytes::Bytes::from_static(piece)));
            self.0.poll_recv(cx).map(|piece| piece.map(frame))
        }
    }
    Pieces(pieces)
}

/// Many clients, some of which leave, and workers that end: every answer is that of its own request.
async fn storm(workers: usize, clients: u64, rounds: u64) {
    let mut options = options(workers);
    options.backlog = 1000;
    let pool = start_deep(options).await;
    let most = Arc::new(AtomicUsize::new(0));
    let clients = (0..clients).map(|client| {
        let (pool, most) = (pool.clone(), Arc::clone(&most));
        tokio::spawn(async move {
            for round in 0..rounds {
                let n = client * rounds + round;
                most_ahead(&pool, &most);
                if n % 13 == 7 {
                    let leave = Duration::from_micros(n * 7 % 900);
                    drop(tokio::time::timeout(leave, ask(&pool, "/cleanup?1")).await);
                } else if n % 211 == 5 {
                    ask(&pool, "/die-in-cleanup").await.unwrap();
                } else if n % 17 == 3 {
                    let body = Full::new(bytes::Bytes::from(format!("form {n}")));
                    let form = http::Request::post("/echo").extension(context());
                    let form =
                        if n.is_multiple_of(2) { form.extension(CompleteBody) } else { form }
                            .body(body);
                    let answer = text(pool.dispatch(form.unwrap()).await.unwrap()).await;
                    assert_eq!(answer, format!("form {n}"));
                } else {
                    let answer = ask(&pool, &format!("/request?n={n}")).await.unwrap();
                    assert!(answer.contains(&format!("QUERY_STRING=n={n}\n")), "{answer}");
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    pool.quiet().await;
    assert!(most.load(Ordering::Relaxed) > 0, "requests were ahead");
    assert_eq!((pool.status().backlog, pool.status().ahead), (0, 0));
    pool.drain(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn every_answer_is_that_of_its_own_request_on_one_thread() {
    storm(2, 24, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_answer_is_that_of_its_own_request_on_several_threads() {
    storm(3, 24, 100).await;
}
