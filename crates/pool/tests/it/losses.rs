//! Tests workers that die, send invalid frames or hang, and clients that disconnect.

use std::time::Duration;

use http_body_util::BodyExt;
use pool::{DispatchError, Model, Pool, WorkerState};

use crate::{eventually, get, options, start, text};

fn all_idle(pool: &Pool) -> bool {
    let workers = pool.status().workers;
    !workers.is_empty() && workers.iter().all(|worker| worker.state == WorkerState::Idle)
}

#[tokio::test]
async fn a_dead_worker_is_named_with_its_signal_and_replaced() {
    let pool = start(1).await;
    let error = get(&pool, "/die").await.unwrap_err();
    let DispatchError::WorkerDied { how, .. } = &error else { panic!("{error}") };
    assert_eq!(how, "signal 11 (SIGSEGV)");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    assert_eq!(pool.status().crashes, 1);
}

#[tokio::test]
async fn a_worker_death_cuts_its_response() {
    let pool = start(1).await;
    let mut body = get(&pool, "/die-after-head").await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(&first[..], b"half of ");
    assert!(body.frame().await.unwrap().is_err(), "the end is missing and that shows");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

#[tokio::test]
async fn a_request_written_ahead_to_a_dying_worker_is_tried_again() {
    let pool = start(1).await;
    for _ in 0..5 {
        get(&pool, "/die-in-cleanup").await.unwrap();
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    }
}

#[tokio::test]
async fn a_dead_workers_children_delay_nothing() {
    const LIMIT: Duration = Duration::from_secs(30);
    for model in [Model::Request, Model::Spawn] {
        let mut options = options(1);
        options.model = model;
        options.ini = vec![("keep-sockets".into(), "1".into())];
        let pool = Pool::start(options).await.unwrap();
        let asking = async {
            for _ in 0..3 {
                let error = get(&pool, "/die").await.unwrap_err();
                assert!(matches!(error, DispatchError::WorkerDied { .. }), "{model:?}: {error}");
                // A request whose response is dropped.
                drop(get(&pool, "/die-after-head").await.unwrap());
                assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
            }
            pool.quiet().await;
        };
        tokio::time::timeout(LIMIT, asking).await.expect("no socket is waited for");
        assert_eq!(pool.status().crashes, 6, "{model:?}");
    }
}

#[tokio::test]
async fn a_malformed_frame_costs_its_own_request_only() {
    let pool = start(2).await;
    for path in ["/malformed", "/out-of-turn", "/huge"] {
        let slow = tokio::task::JoinSet::from_iter([{
            let pool = pool.clone();
            async move { text(get(&pool, "/sleep?200").await.unwrap()).await }
        }]);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let error = get(&pool, path).await.unwrap_err();
        let DispatchError::WorkerDied { how, .. } = &error else { panic!("{error}") };
        assert!(how.starts_with("sent a malformed frame: "), "{how}");
        assert_eq!(slow.join_all().await, ["slept"]);
    }
    eventually("both workers are back", || pool.status().workers.len() == 2 && all_idle(&pool))
        .await;
}

#[tokio::test]
async fn a_request_over_its_time_limit_loses_its_worker() {
    let mut options = options(1);
    options.request_timeout = Some(Duration::from_secs(3));
    let pool = Pool::start(options).await.unwrap();
    let error = get(&pool, "/sleep?60000").await.unwrap_err();
    assert!(matches!(error, DispatchError::TimedOut { .. }), "{error}");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    let status = pool.status();
    assert_eq!((status.timeouts, status.crashes), (1, 0));
}

#[tokio::test]
async fn disconnecting_clients_cost_no_worker() {
    let pool = start(2).await;
    for wait in 0..40 {
        for path in ["/sleep?10", "/drip?5", "/large?1000000", "/finish?10", "/cleanup?10"] {
            let leave = tokio::time::timeout(Duration::from_millis(wait / 4), async {
                let mut body = get(&pool, path).await.unwrap().into_body();
                while let Some(Ok(_)) = body.frame().await {}
            });
            let _left_or_not = leave.await;
        }
    }
    eventually("all workers are idle again", || all_idle(&pool)).await;
    let status = pool.status();
    assert_eq!((status.workers.len(), status.crashes, status.recycled), (2, 0, 0));
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

#[tokio::test]
async fn a_client_abort_is_sent_to_the_worker() {
    let pool = start(1).await;
    let mut body = get(&pool, "/drip?3000").await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    let started = tokio::time::Instant::now();
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    assert!(started.elapsed() < Duration::from_secs(20), "the drip ended early");
}

#[tokio::test]
async fn a_full_backlog_refuses_at_once_and_a_long_wait_ends() {
    let mut options = options(1);
    options.backlog = 1;
    options.backlog_timeout = Duration::from_millis(200);
    let pool = Pool::start(options).await.unwrap();
    let (busy, waiting, refused) =
        tokio::join!(get(&pool, "/sleep?600"), get(&pool, "/hello"), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            get(&pool, "/hello").await
        },);
    assert_eq!(text(busy.unwrap()).await, "slept");
    let DispatchError::Overloaded { waited } = waiting.unwrap_err() else { panic!("overloaded") };
    assert!(waited >= Duration::from_millis(200));
    let DispatchError::Overloaded { waited } = refused.unwrap_err() else { panic!("overloaded") };
    assert!(waited.is_zero());
}
