//! Tests requests that wait for the answer to another one which is not stored: purged meanwhile, or a failure.

use tokio::task::JoinSet;

use super::{PATH, called, calls, get, send, start, text, waiting};
use crate::support::{Reply, Server, ask_at, eventually};

/// Starts this many requests with an order, each on a connection of its own.
fn ask(server: &Server, clients: &mut JoinSet<Reply>, times: u64, order: &str) {
    let address = server.address();
    for _ in 0..times {
        let head = format!("GET {PATH} HTTP/1.1\r\nHost: a.example\r\norder: {order}\r\n\r\n");
        clients.spawn(async move { ask_at(address, &head).await });
    }
}

/// Starts this many requests with an order, and waits until all but one of them wait for that one.
pub(super) async fn one_and_waiting(server: &Server, times: u64, order: &str) -> JoinSet<Reply> {
    let mut clients = JoinSet::new();
    ask(server, &mut clients, times, order);
    waiting(server, times - 1).await;
    clients
}

/// Lets the application answer the requests that it holds, and collects all answers.
pub(super) async fn release_all(server: &Server, clients: &mut JoinSet<Reply>) -> Vec<Reply> {
    for _ in 0..clients.len() {
        server.app.release.notify_one();
        tokio::task::yield_now().await;
    }
    let mut replies = Vec::new();
    while let Some(reply) = clients.join_next().await {
        replies.push(reply.unwrap());
    }
    replies
}

#[tokio::test]
async fn after_a_purge_one_of_those_that_wait_asks_again() {
    let server = start().await;
    let order = "hold | cache-control: max-age=60 | cache-tag: a";
    let mut clients = one_and_waiting(&server, 4, order).await;
    server.cache.as_ref().unwrap().purge_tags(["a"]);
    server.app.release.notify_one();
    assert_eq!(text(&clients.join_next().await.unwrap().unwrap()), "call 1");
    called(&server, 2).await;
    waiting(&server, 2).await;
    server.app.release.notify_one();
    while let Some(reply) = clients.join_next().await {
        assert_eq!(text(&reply.unwrap()), "call 2");
    }
    assert_eq!(calls(&server), 2);
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 2");
}

/// What removes an answer while the application makes it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Removed {
    ByTag,
    ByUnsafeRequest,
    WithAll,
}

/// Removes the answers for [`PATH`]. Returns how often the application was called for that.
async fn remove(server: &Server, by: Removed) -> usize {
    let cache = server.cache.as_ref().unwrap();
    match by {
        Removed::ByTag => drop(cache.purge_tags(["a"])),
        Removed::WithAll => drop(cache.purge_all()),
        Removed::ByUnsafeRequest => {
            assert_eq!(send(server, "POST", PATH, &["Content-Length: 0"]).await.status, 200);
        }
    }
    usize::from(by == Removed::ByUnsafeRequest)
}

#[tokio::test]
async fn while_purges_are_faster_than_the_answer_no_request_waits() {
    for by in [Removed::ByTag, Removed::ByUnsafeRequest, Removed::WithAll] {
        for vary in ["", " | vary: x-test"] {
            let server = start().await;
            let cache = server.cache.as_ref().unwrap();
            let order = format!("hold | cache-control: max-age=60 | cache-tag: a{vary}");
            let mut clients = one_and_waiting(&server, 4, &order).await;
            let mut wanted = 1;
            for _ in 0..2 {
                let call = format!("call {wanted}");
                wanted += remove(&server, by).await;
                server.app.release.notify_one();
                assert_eq!(text(&clients.join_next().await.unwrap().unwrap()), call);
                wanted += 1;
                called(&server, wanted).await;
            }
            // The two that waited go on, and of those that come later none waits for another, after further purges, too.
            wanted += 1;
            called(&server, wanted).await;
            wanted += remove(&server, by).await;
            ask(&server, &mut clients, 2, &order);
            wanted += 2;
            let waits = || cache.report().waiting > 0;
            eventually("the last are there", || waits() || calls(&server) == wanted).await;
            assert_eq!((calls(&server), cache.report().waiting), (wanted, 0), "{by:?}{vary}");
            release_all(&server, &mut clients).await;
            // The last answer is stored: it was not purged.
            assert!(text(&get(&server, PATH, &[]).await).starts_with("call "));
            assert_eq!(calls(&server), wanted, "{by:?}{vary}");
        }
    }
}

#[tokio::test]
async fn once_an_answer_is_stored_requests_wait_for_each_other_again() {
    let server = start().await;
    let mut clients = one_and_waiting(&server, 2, "hold | cache-control: no-store").await;
    server.app.release.notify_one();
    clients.join_next().await.unwrap().unwrap();
    called(&server, 2).await;
    release_all(&server, &mut clients).await;
    // None would wait now, but this answer is stored.
    get(&server, PATH, &["order: cache-control: max-age=0 | etag: \"a\""]).await;
    let mut clients = one_and_waiting(&server, 3, "hold | cache-control: max-age=60").await;
    server.app.release.notify_one();
    for reply in release_all(&server, &mut clients).await {
        assert_eq!(text(&reply), "call 4");
    }
}

/// Sends one more request, and waits until it and the two that waited are at the application together: none waits for
/// the failure of another one.
pub(super) async fn none_waits(
    server: &Server,
    clients: &mut JoinSet<Reply>,
    order: &str,
    wanted: usize,
) {
    let cache = server.cache.as_ref().unwrap();
    called(server, wanted - 2).await;
    ask(server, clients, 1, order);
    let waits = || cache.report().waiting == 2;
    eventually("the last request is there", || waits() || calls(server) == wanted).await;
    assert_eq!((calls(server), cache.report().waiting), (wanted, 0), "{order}");
}

#[tokio::test]
async fn a_request_that_gets_no_answer_holds_no_other_back() {
    let server = start().await;
    let mut clients = one_and_waiting(&server, 3, "hold | dies").await;
    server.app.release.notify_one();
    assert_eq!(clients.join_next().await.unwrap().unwrap().status, 502);
    none_waits(&server, &mut clients, "hold | dies", 4).await;
    for reply in release_all(&server, &mut clients).await {
        assert_eq!(reply.status, 502);
    }
}

#[tokio::test]
async fn a_failure_that_a_stale_answer_hides_holds_no_request_back() {
    for failure in ["hold | dies", "hold | status=503"] {
        let server = start().await;
        get(&server, PATH, &["order: cache-control: max-age=0, stale-if-error=60"]).await;
        let mut clients = one_and_waiting(&server, 3, failure).await;
        server.app.release.notify_one();
        assert_eq!(text(&clients.join_next().await.unwrap().unwrap()), "call 1");
        none_waits(&server, &mut clients, failure, 5).await;
        for reply in release_all(&server, &mut clients).await {
            assert_eq!((reply.status, text(&reply).as_str()), (200, "call 1"), "{failure}");
        }
    }
}
