//! Tests requests with bodies of up to 32 KiB that are written ahead: the promises of those without a body hold for them.

use std::time::Duration;

use http_body_util::Full;
use pool::{CompleteBody, DispatchError, Pool};

use super::{KNOWN, died, learn, send, start_deep, until_ahead};
use crate::models::Trickle;
use crate::{context, options, text};

/// Sends a request whose body has arrived completely.
fn post(
    pool: &Pool,
    target: &str,
    form: String,
) -> tokio::task::JoinHandle<Result<String, DispatchError>> {
    let body = Full::new(bytes::Bytes::from(form));
    let request = http::Request::post(target).extension(context()).extension(CompleteBody);
    let (pool, request) = (pool.clone(), request.body(body).unwrap());
    tokio::spawn(async move { Ok(text(pool.dispatch(request).await?).await) })
}

/// Sends three requests with bodies, and waits until they are in the socket of a busy worker.
async fn three_forms(pool: &Pool) -> Vec<tokio::task::JoinHandle<Result<String, DispatchError>>> {
    let forms = (0..3).map(|n| post(pool, "/echo", format!("form {n}"))).collect();
    until_ahead(pool, 3).await;
    forms
}

async fn are_echoed(forms: Vec<tokio::task::JoinHandle<Result<String, DispatchError>>>) {
    for (n, answer) in forms.into_iter().enumerate() {
        assert_eq!(answer.await.unwrap().unwrap(), format!("form {n}"));
    }
}

#[tokio::test]
async fn requests_with_bodies_are_ahead_in_order_and_wait_like_others() {
    let pool = start_deep(options(1)).await;
    let first = send(&pool, "/sleep?300");
    let middle = "m".repeat(20_000);
    let with_middle = post(&pool, "/echo", middle.clone());
    let form = post(&pool, "/echo", "form 0".to_owned());
    let large = "x".repeat(40_000);
    let last = post(&pool, "/echo", large.clone());
    until_ahead(&pool, 2).await;
    assert_eq!(pool.status().backlog, 3, "a large body waits for a free worker");
    first.await.unwrap().unwrap();
    assert_eq!(with_middle.await.unwrap().unwrap(), middle);
    are_echoed(vec![form]).await;
    assert_eq!(last.await.unwrap().unwrap(), large);
    assert_eq!((pool.status().backlog, pool.status().ahead), (0, 0));
}

#[tokio::test]
async fn the_largest_bodies_that_may_be_ahead_fit_into_the_socket() {
    let pool = start_deep(options(1)).await;
    let first = send(&pool, "/sleep?300");
    let body = |n: usize| n.to_string().repeat(31_000);
    let forms: Vec<_> = (0..3).map(|n| post(&pool, "/echo", body(n))).collect();
    until_ahead(&pool, 3).await;
    first.await.unwrap().unwrap();
    for (n, answer) in forms.into_iter().enumerate() {
        assert!(answer.await.unwrap().unwrap() == body(n), "the body of request {n} comes back");
    }
}

#[tokio::test]
async fn bodies_behind_a_long_request_go_to_a_free_worker() {
    let pool = start_deep(options(2)).await;
    let long = send(&pool, "/sleep?3000");
    let short = send(&pool, "/sleep?50");
    let forms = (0..6).map(|n| post(&pool, "/echo", format!("form {n}"))).collect();
    are_echoed(forms).await;
    assert!(!long.is_finished(), "they did not wait for it");
    short.await.unwrap().unwrap();
    assert_eq!(long.await.unwrap().unwrap(), "slept");
    learn(&pool).await;
    let served: u64 = pool.status().workers.iter().map(|worker| worker.requests).sum();
    assert_eq!(
        served,
        8 + 2 * KNOWN,
        "each was answered once, and what was taken back was skipped"
    );
}

#[tokio::test]
async fn bodies_behind_a_request_that_kills_its_worker_are_answered_by_another() {
    let pool = start_deep(options(1)).await;
    let first = send(&pool, "/sleep?100");
    let deadly = send(&pool, "/die");
    let forms = (0..2).map(|n| post(&pool, "/echo", format!("form {n}"))).collect();
    until_ahead(&pool, 3).await;
    first.await.unwrap().unwrap();
    assert!(died(&deadly.await.unwrap()));
    are_echoed(forms).await;
}

#[tokio::test]
async fn bodies_whose_clients_leave_while_they_are_ahead_are_skipped() {
    let pool = start_deep(options(1)).await;
    let long = send(&pool, "/sleep?300");
    for form in three_forms(&pool).await {
        form.abort();
        assert!(form.await.is_err());
    }
    assert_eq!((pool.status().backlog, pool.status().ahead), (0, 0));
    long.await.unwrap().unwrap();
    let form = post(&pool, "/echo", "the next".to_owned());
    assert_eq!(form.await.unwrap().unwrap(), "the next");
    assert_eq!(pool.status().workers.first().unwrap().requests, 2 + KNOWN);
}

#[tokio::test]
async fn bodies_that_wait_too_long_are_taken_back_and_refused() {
    let mut options = options(1);
    options.backlog_timeout = Duration::from_millis(200);
    let pool = start_deep(options).await;
    let long = send(&pool, "/sleep?1500");
    for form in three_forms(&pool).await {
        let error = form.await.unwrap().unwrap_err();
        assert!(matches!(error, DispatchError::Overloaded { .. }), "{error}");
    }
    long.await.unwrap().unwrap();
    learn(&pool).await;
    assert_eq!(pool.status().workers.first().unwrap().requests, 1 + 2 * KNOWN);
}

#[tokio::test]
async fn bodies_with_a_renewed_worker_go_to_its_successor() {
    let pool = start_deep(options(1)).await;
    let long = send(&pool, "/sleep?300");
    let forms = three_forms(&pool).await;
    assert!(pool.renew().await.unwrap());
    long.await.unwrap().unwrap();
    are_echoed(forms).await;
    assert_eq!(pool.status().crashes, 0);
}

#[tokio::test]
async fn a_drain_answers_bodies_that_are_ahead() {
    let pool = start_deep(options(1)).await;
    let long = send(&pool, "/sleep?300");
    let forms = three_forms(&pool).await;
    pool.drain(Duration::from_secs(10)).await;
    long.await.unwrap().unwrap();
    are_echoed(forms).await;
    assert_eq!(pool.status().crashes, 0);
}

#[tokio::test]
async fn the_time_in_which_a_body_arrives_is_not_the_applications() {
    let pool = start_deep(options(1)).await;
    for _ in 0..KNOWN {
        let slow = Trickle::of(b'a'..b'd');
        let request = http::Request::post("/length").extension(context()).body(slow).unwrap();
        assert_eq!(text(pool.dispatch(request).await.unwrap()).await, "3000");
    }
    let first = send(&pool, "/sleep?300");
    are_echoed(three_forms(&pool).await).await;
    first.await.unwrap().unwrap();
}
