//! Tests zygotes that stop or lose a frame, and workers whose end is not reported: every slot is freed.

use std::time::Duration;

use pool::{DispatchError, Options, Pool, WorkerState};

use crate::{eventually, get, options, text};

/// Returns two workers of a zygote that misbehaves as `name` says, with a second for each boot.
fn misbehaving(name: &str) -> Options {
    let mut options = options(2);
    options.boot_timeout = Duration::from_secs(1);
    options.ini = vec![(name.into(), "1".into())];
    options
}

async fn is_whole(pool: &Pool) {
    eventually("both workers are idle", || {
        let workers = pool.status().workers;
        workers.len() == 2 && workers.iter().all(|worker| worker.state == WorkerState::Idle)
    })
    .await;
}

#[tokio::test]
async fn a_zygote_that_loses_a_fork_is_replaced() {
    let pool = Pool::start(misbehaving("lose-spawn")).await.unwrap();
    // The next zygote is never asked for slot 2.
    is_whole(&pool).await;
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    ends(pool).await;
}

#[tokio::test]
async fn a_hanging_zygotes_late_forks_are_rejected() {
    let pool = Pool::start(misbehaving("stand-still")).await.unwrap();
    // It was forked from the stopped zygote, and that does not affect its request.
    let asked = get(&pool, "/sleep?2500");
    let answer = asked.await;
    assert_eq!(text(answer.unwrap()).await, "slept");
    is_whole(&pool).await;
    assert_eq!(pool.status().crashes, 0);
    ends(pool).await;
}

#[tokio::test]
async fn a_worker_with_an_unreported_exit_is_replaced() {
    let pool = Pool::start(misbehaving("lose-exit")).await.unwrap();
    is_whole(&pool).await;
    let mut died = 0;
    // Whichever of both has the request.
    for _ in 0..2 {
        let error = get(&pool, "/die").await.unwrap_err();
        assert!(matches!(error, DispatchError::WorkerDied { .. }), "{error}");
        died += 1;
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
        if pool.status().crashes < died {
            break;
        }
    }
    is_whole(&pool).await;
    eventually("its end is counted", || pool.status().crashes == died).await;
    ends(pool).await;
}

#[tokio::test]
async fn the_pool_stops_despite_an_unreported_worker_exit() {
    let pool = Pool::start(misbehaving("lose-exit")).await.unwrap();
    is_whole(&pool).await;
    ends(pool).await;
}

/// Within its patience and the time a zygote may take to end.
async fn ends(pool: Pool) {
    const LIMIT: Duration = Duration::from_secs(30);
    let ending = pool.drain(Duration::from_secs(1));
    tokio::time::timeout(LIMIT, ending).await.expect("patience is bounded");
}
