//! Tests that the number of workers follows the load within its bounds.

use std::num::NonZeroUsize;
use std::time::Duration;

use pool::{Model, Options, Pool, Scaling};
use tokio::task::JoinSet;

use crate::{eventually, get, options, text};

/// Returns options with one worker, and up to four while they are needed.
fn growing(model: Model, idle_timeout: Duration) -> Options {
    let scaling = Scaling {
        most: NonZeroUsize::new(4).unwrap(),
        start: 0,
        idle_timeout,
        burst: NonZeroUsize::new(32).unwrap(),
    };
    Options { model, scaling: Some(scaling), ..options(1) }
}

/// Sends slow requests, all at once.
fn crowd(pool: &Pool, number: usize, target: &'static str) -> JoinSet<String> {
    let mut clients = JoinSet::new();
    for _ in 0..number {
        let pool = pool.clone();
        clients.spawn(async move { text(get(&pool, target).await.unwrap()).await });
    }
    clients
}

#[tokio::test]
async fn the_pool_scales_with_waiting_requests_in_every_model() {
    for model in
        [Model::Request, Model::Worker, Model::Spawn, Model::Prespawn, Model::Fork, Model::Snapshot]
    {
        let pool = Pool::start(growing(model, Duration::from_millis(300))).await.unwrap();
        let status = pool.status();
        assert_eq!((status.least, status.wanted, status.most), (1, 1, 4), "{model:?}");
        let clients = crowd(&pool, 12, "/sleep?200");
        eventually("it has grown", || pool.status().wanted == 4).await;
        assert_eq!(clients.join_all().await, ["slept"; 12], "{model:?}");
        assert_eq!(pool.status().grown, 3, "{model:?}");
        eventually("it has shrunk", || {
            let status = pool.status();
            status.wanted == 1 && status.workers.len() == 1
        })
        .await;
        let status = pool.status();
        assert_eq!((status.crashes, status.recycled, status.retired), (0, 0, 0), "{model:?}");
        assert!(status.shrunk >= 3 && status.ended.is_empty(), "{model:?}: {status:?}");
        assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello", "{model:?}");
        pool.drain(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn extra_workers_stay_while_used_occasionally() {
    let pool = Pool::start(growing(Model::Request, Duration::from_mins(1))).await.unwrap();
    for _ in 0..5 {
        crowd(&pool, 8, "/sleep?50").join_all().await;
    }
    eventually("it has grown", || pool.status().wanted == 4).await;
    let pids = |pool: &Pool| pool.status().workers.iter().map(|one| one.pid).collect::<Vec<_>>();
    eventually("all of them are there", || pool.status().ready() == 4).await;
    let before = pids(&pool);
    for _ in 0..5 {
        crowd(&pool, 8, "/sleep?10").join_all().await;
    }
    assert_eq!(pids(&pool), before, "no worker started or ended");
    assert_eq!((pool.status().grown, pool.status().shrunk), (3, 0));
}

#[tokio::test]
async fn a_pool_starts_with_the_requested_number_within_bounds() {
    for (start, has) in [(0, 1), (3, 3), (9, 4)] {
        let mut options = growing(Model::Request, Duration::from_mins(1));
        options.scaling.as_mut().unwrap().start = start;
        let pool = Pool::start(options).await.unwrap();
        pool.filled().await;
        assert_eq!((pool.status().workers.len(), pool.status().wanted), (has, has));
    }
}

#[tokio::test]
async fn ready_workers_stay_while_others_boot() {
    let mut options = growing(Model::Request, Duration::from_millis(50));
    options.ini = vec![("slow-to-boot".into(), "1".into())];
    let pool = Pool::start(options).await.unwrap();
    let clients = crowd(&pool, 6, "/sleep?100");
    eventually("it has grown", || pool.status().wanted == 2).await;
    clients.join_all().await;
    eventually("it has shrunk to one that is ready", || {
        let status = pool.status();
        assert!(status.ready() > 0, "{status:?}");
        status.wanted == 1 && status.workers.len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_fixed_number_of_workers_stays() {
    let pool = Pool::start(options(2)).await.unwrap();
    crowd(&pool, 20, "/sleep?30").join_all().await;
    let status = pool.status();
    assert_eq!((status.least, status.wanted, status.most, status.grown), (2, 2, 2, 0));
    assert!(status.waited >= 10 && status.waited_seconds >= status.longest_wait_seconds);
}
