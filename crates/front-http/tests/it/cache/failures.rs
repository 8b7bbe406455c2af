//! Tests answers that a fatal error of PHP has cut.

use super::flights::{none_waits, one_and_waiting, release_all};
use super::{FRESH, PATH, calls, get, revalidated, start, text};

#[tokio::test]
async fn an_answer_that_a_fatal_error_has_cut_is_sent_and_not_stored() {
    let server = start().await;
    for (order, body) in [("fatal", "call 1"), ("chunks | fatal", "one two")] {
        let order = format!("order: {order} | cache-control: max-age=60");
        assert_eq!(text(&get(&server, PATH, &[&order]).await), body);
    }
    assert_eq!(server.cache.as_ref().unwrap().report().stored, 0);
    assert_eq!(text(&get(&server, PATH, &[FRESH]).await), "call 3");
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 3");
}

#[tokio::test]
async fn an_answer_that_a_fatal_error_has_cut_replaces_no_stale_one() {
    let server = start().await;
    let stale = "order: cache-control: max-age=0, stale-while-revalidate=60";
    let cut = "order: fatal | cache-control: max-age=60";
    get(&server, PATH, &[stale]).await;
    for call in 2..4 {
        assert_eq!(text(&get(&server, PATH, &[cut]).await), "call 1");
        revalidated(&server, call).await;
    }
    assert_eq!((calls(&server), server.cache.as_ref().unwrap().report().stored), (3, 1));
}

#[tokio::test]
async fn an_answer_that_a_fatal_error_has_cut_holds_no_request_back() {
    let server = start().await;
    let order = "hold | fatal | cache-control: max-age=60";
    let mut clients = one_and_waiting(&server, 3, order).await;
    server.app.release.notify_one();
    assert_eq!(text(&clients.join_next().await.unwrap().unwrap()), "call 1");
    none_waits(&server, &mut clients, order, 4).await;
    assert_eq!(release_all(&server, &mut clients).await.len(), 3);
}
