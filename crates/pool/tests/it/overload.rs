//! Tests more requests than the workers can answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use pool::{DispatchError, Options, Pool, RequestContext};
use tokio::task::JoinSet;

use crate::{context, eventually, get, options, text};

async fn get_from(pool: &Pool, address: &str, target: &str) -> Result<String, DispatchError> {
    let remote: SocketAddr = address.parse().unwrap();
    let context = RequestContext { remote, ..context() };
    let request = Request::get(target).extension(context).body(Full::default()).unwrap();
    Ok(text(pool.dispatch(request).await?).await)
}

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicUsize,
    at_once: AtomicUsize,
    late: AtomicUsize,
}

#[tokio::test]
async fn overload_is_rejected_at_once_and_the_rest_answered() {
    const CLIENTS: usize = 120;
    let target = Some(Duration::from_millis(50));
    let pool = Pool::start(Options { backlog_target: target, ..options(2) }).await.unwrap();
    let counts = Arc::new(Counts::default());
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (pool, counts, over) = (pool.clone(), Arc::clone(&counts), Arc::clone(&over));
        clients.spawn(async move {
            let mut asked = 0;
            while !over.load(Ordering::Relaxed) {
                asked += 1;
                let count = match get(&pool, "/sleep?10").await {
                    Ok(response) => {
                        assert_eq!(text(response).await, "slept");
                        &counts.answered
                    }
                    Err(DispatchError::Overloaded { waited: Duration::ZERO }) => {
                        // As clients do that are told to retry later.
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        &counts.at_once
                    }
                    Err(DispatchError::Overloaded { .. }) => &counts.late,
                    Err(other) => panic!("{other}"),
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
            asked
        });
    }
    eventually("it is overloaded, and goes on", || {
        counts.answered.load(Ordering::Relaxed) > 100
            && counts.at_once.load(Ordering::Relaxed) > 500
    })
    .await;
    over.store(true, Ordering::Relaxed);
    let asked: usize = clients.join_all().await.into_iter().sum();
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let refused = count(&counts.at_once) + count(&counts.late);
    assert_eq!(asked, count(&counts.answered) + refused, "each request got one outcome");
    let status = pool.status();
    assert_eq!(status.refused, u64::try_from(refused).unwrap());
    assert!(count(&counts.at_once) > count(&counts.late), "{counts:?}");
    eventually("no request waits", || pool.status().backlog == 0).await;
    assert!(!pool.status().overloaded, "with the load it is over");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

#[tokio::test]
async fn a_flooding_client_excludes_no_other() {
    let pool = Pool::start(Options { backlog: 8, ..options(1) }).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut greedy = JoinSet::new();
    for port in 1..=40 {
        let (pool, over) = (pool.clone(), Arc::clone(&over));
        greedy.spawn(async move {
            let mut refused = 0;
            while !over.load(Ordering::Relaxed) {
                let address = format!("192.0.2.1:{port}");
                match get_from(&pool, &address, "/sleep?5").await {
                    Ok(_) => {}
                    Err(DispatchError::Overloaded { .. }) => {
                        refused += 1;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            refused
        });
    }
    eventually("the backlog is full", || pool.status().backlog == 8).await;
    for _ in 0..30 {
        let answer = get_from(&pool, "192.0.2.2:1", "/hello").await;
        assert_eq!(answer.expect("it has one request, and there is room for eight"), "hello");
    }
    over.store(true, Ordering::Relaxed);
    assert!(greedy.join_all().await.into_iter().sum::<usize>() >= 30);
}
