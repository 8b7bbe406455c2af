//! Tests an overload while requests are written ahead: what is rejected has not begun.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pool::{DispatchError, Pool, RequestContext};
use tokio::task::JoinSet;

use super::{KNOWN, start_deep};
use crate::{options, request, text};

/// Connections of each client: the one with most has its requests rejected first, also those that are ahead.
const CLIENTS: [usize; 4] = [80, 20, 4, 4];

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    rejected: AtomicU64,
    /// The most requests that were ahead while requests were rejected.
    ahead: AtomicUsize,
}

async fn ask_from(pool: &Pool, client: usize) -> Result<String, DispatchError> {
    let mut asked = request("/sleep?1");
    let context = asked.extensions_mut().get_mut::<RequestContext>().unwrap();
    context.remote = SocketAddr::from(([192, 0, 2, u8::try_from(client).unwrap()], 1234));
    Ok(text(pool.dispatch(asked).await?).await)
}

#[tokio::test]
async fn requests_rejected_in_an_overload_never_run_although_some_were_ahead() {
    let mut options = options(2);
    options.backlog_target = Some(Duration::from_millis(5));
    let pool = start_deep(options).await;
    let counts = Arc::new(Counts::default());
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for (client, connections) in CLIENTS.into_iter().enumerate() {
        for _ in 0..connections {
            let (pool, counts, over) = (pool.clone(), Arc::clone(&counts), Arc::clone(&over));
            clients.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    match ask_from(&pool, client).await {
                        Ok(answer) => {
                            assert_eq!(answer, "slept");
                            counts.answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(DispatchError::Overloaded { .. }) => {
                            counts.rejected.fetch_add(1, Ordering::Relaxed);
                            let status = pool.status();
                            if status.overloaded {
                                counts.ahead.fetch_max(status.ahead, Ordering::Relaxed);
                            }
                            // As clients do that are told to retry later.
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    }
    // A minute at most: on a busy machine requests may take too long for others to be written ahead.
    let is_seen = || {
        counts.rejected.load(Ordering::Relaxed) > 200 && counts.ahead.load(Ordering::Relaxed) > 0
    };
    for _ in 0..6000 {
        if is_seen() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(is_seen(), "requests are rejected while others are ahead: {counts:?}");
    over.store(true, Ordering::Relaxed);
    clients.join_all().await;
    pool.quiet().await;
    let status = pool.status();
    assert_eq!((status.backlog, status.ahead), (0, 0));
    assert_eq!(status.refused, counts.rejected.load(Ordering::Relaxed));
    assert_eq!((status.crashes, status.recycled), (0, 0), "the workers are those of the start");
    let run: u64 = status.workers.iter().map(|worker| worker.requests).sum();
    let answered = counts.answered.load(Ordering::Relaxed);
    assert_eq!(run, KNOWN + answered, "what was rejected has not run");
}
