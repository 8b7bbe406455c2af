//! Tests the answer cache. The application answers as the request's field `order` says, which is not part of the key.

mod conditions;
mod failures;
mod flights;
mod targets;

use std::sync::atomic::Ordering;

use front_http::{CacheOptions, DiskOptions, Release};
use tokio::task::JoinSet;

use crate::http2::Http2;
use crate::support::{Reply, Server, ask_at, eventually, until};

fn options() -> CacheOptions {
    CacheOptions {
        memory: 4 << 20,
        answer: 64 << 10,
        disk: None,
        ignored_cookies: vec!["_ga*".to_owned()],
        status_header: true,
    }
}

async fn start() -> Server {
    Server::with(|front, _| front.cache = Some(options())).await
}

const PATH: &str = "/made-to-order/page";
const FRESH: &str = "order: cache-control: max-age=60";

/// Sends a GET with further fields, one in each line.
async fn get(server: &Server, path: &str, fields: &[&str]) -> Reply {
    send(server, "GET", path, fields).await
}

async fn send(server: &Server, method: &str, path: &str, fields: &[&str]) -> Reply {
    let fields = [fields, &[""]].concat().join("\r\n");
    let head = format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
    server.ask(&head).await
}

fn calls(server: &Server) -> usize {
    server.app.called.load(Ordering::SeqCst)
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

fn status(reply: &Reply) -> String {
    reply.field("cache-status").unwrap_or_default()
}

#[tokio::test]
async fn a_fresh_answer_is_sent_without_the_application() {
    let server = start().await;
    let first = get(&server, PATH, &[FRESH]).await;
    assert_eq!((text(&first).as_str(), first.field("age")), ("call 1", None));
    assert_eq!(status(&first), "Hearth; fwd=uri-miss; stored; ttl=60");
    let second = get(&server, PATH, &[]).await;
    assert_eq!((text(&second).as_str(), second.field("age").as_deref()), ("call 1", Some("0")));
    assert!(status(&second).starts_with("Hearth; hit; ttl="), "{}", status(&second));
    assert_eq!(second.field("content-length").as_deref(), Some("6"));
    assert!(second.field("date").is_some() && second.field("x-request-id").is_some());
    let mut client = server.connect().await;
    client.send(&format!("HEAD {PATH} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
    let head = client.head().await;
    assert_eq!((head.body.len(), head.field("content-length").as_deref()), (0, Some("6")));
    assert_eq!(calls(&server), 1);
    let report = server.cache.as_ref().unwrap().report();
    assert_eq!((report.hits, report.misses, report.stored), (2, 1, 1));
    assert!(report.bytes > 0 && report.bytes < report.limit);
}

#[tokio::test]
async fn an_answer_in_pieces_is_stored_whole() {
    let server = start().await;
    let order = "order: chunks | cache-control: max-age=60";
    assert_eq!(text(&get(&server, PATH, &[order]).await), "one two");
    let hit = get(&server, PATH, &[]).await;
    assert_eq!(
        (text(&hit).as_str(), hit.field("content-length").as_deref()),
        ("one two", Some("7"))
    );
    assert_eq!(calls(&server), 1);
}

#[tokio::test]
async fn what_is_for_one_user_is_never_stored() {
    let server = start().await;
    for (number, (fields, reason)) in [
        (&["order: cache-control: private, max-age=60"][..], "private"),
        (&["order: cache-control: no-store, max-age=60"], "no-store"),
        (&["order: cache-control: public, max-age=60 | set-cookie: id=1"], "set-cookie"),
        (&[FRESH, "Authorization: Basic YTpi"], "authorization"),
        (&["order: cache-control: public, max-age=60", "Cookie: PHPSESSID=1"], "cookie"),
        (&["order: cache-control: max-age=60 | vary: *"], "vary"),
        (&["order: "], "no-freshness"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("{PATH}?{number}");
        let first = get(&server, &path, fields).await;
        assert!(status(&first).ends_with(&format!("detail={reason}")), "{}", status(&first));
        let before = calls(&server);
        let second = get(&server, &path, &[]).await;
        assert_eq!(calls(&server), before + 1, "{reason}");
        assert_eq!(second.field("set-cookie"), None);
    }
}

#[tokio::test]
async fn a_request_with_a_cookie_gets_nothing_from_the_cache() {
    let server = start().await;
    get(&server, PATH, &[FRESH]).await;
    assert_eq!(text(&get(&server, PATH, &["Cookie: PHPSESSID=1"]).await), "call 2");
    assert_eq!(text(&get(&server, PATH, &["Cookie: _ga=1; PHPSESSID=1"]).await), "call 3");
    assert_eq!(text(&get(&server, PATH, &["Cookie: _ga=1; _gat=2"]).await), "call 1");
}

#[tokio::test]
async fn a_request_with_authorization_gets_only_what_is_for_everyone() {
    let server = start().await;
    let credentials = "Authorization: Bearer x";
    get(&server, PATH, &[FRESH]).await;
    assert_eq!(text(&get(&server, PATH, &[credentials]).await), "call 2");
    let public = "order: cache-control: s-maxage=60";
    let path = format!("{PATH}?public");
    get(&server, &path, &[public, credentials]).await;
    assert_eq!(text(&get(&server, &path, &[credentials]).await), "call 3");
    assert_eq!(text(&get(&server, &path, &[]).await), "call 3");
}

#[tokio::test]
async fn vary_keeps_variants_apart() {
    let server = start().await;
    let order = "order: cache-control: max-age=60 | vary: Accept-Language";
    let language = |language: &str| format!("Accept-Language: {language}");
    get(&server, PATH, &[order, &language("de")]).await;
    get(&server, PATH, &[order, &language("en")]).await;
    assert_eq!(text(&get(&server, PATH, &[&language("de")]).await), "call 1");
    assert_eq!(text(&get(&server, PATH, &[&language("EN")]).await), "call 2");
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 3");
    // One purge takes all variants away.
    send(&server, "POST", PATH, &["Content-Length: 0"]).await;
    assert_eq!(text(&get(&server, PATH, &[&language("de"), order]).await), "call 5");
}

#[tokio::test]
async fn fields_that_rewrite_the_target_poison_nothing() {
    let server = start().await;
    for field in
        ["X-Forwarded-Host: evil.test", "X-Original-URL: /admin", "X-HTTP-Method-Override: DELETE"]
    {
        let path = format!("{PATH}?{}", field.len());
        get(&server, &path, &[FRESH, field]).await;
        let before = calls(&server);
        get(&server, &path, &[]).await;
        assert_eq!(calls(&server), before + 1, "{field}");
    }
    let with_body = format!(
        "GET {PATH}?body HTTP/1.1\r\nHost: a.example\r\n{FRESH}\r\nContent-Length: 3\r\n\r\na=b"
    );
    server.ask(&with_body).await;
    let before = calls(&server);
    get(&server, &format!("{PATH}?body"), &[]).await;
    assert_eq!(calls(&server), before + 1);
    get(&server, PATH, &[FRESH]).await;
    let other = format!("GET {PATH} HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_ne!(text(&server.ask(&other).await), text(&get(&server, PATH, &[]).await));
}

#[tokio::test]
async fn a_path_that_looks_like_a_file_is_not_stored_for_that() {
    let server = start().await;
    for path in [
        "/made-to-order/account.php/x.css",
        "/made-to-order/account/logo.png",
        "/made-to-order;x.js",
    ] {
        get(&server, path, &[]).await;
        let before = calls(&server);
        get(&server, path, &[]).await;
        assert_eq!(calls(&server), before + 1, "{path}");
    }
}

#[tokio::test]
async fn a_stale_answer_is_revalidated() {
    let server = start().await;
    let order = "order: cache-control: max-age=0 | etag: \"a\" | x-version: 1";
    assert_eq!(text(&get(&server, PATH, &[order]).await), "call 1");
    let confirmed =
        get(&server, PATH, &["order: cache-control: max-age=60 | etag: \"a\" | x-version: 2"])
            .await;
    assert_eq!((confirmed.status, text(&confirmed).as_str()), (200, "call 1"));
    assert_eq!(status(&confirmed), "Hearth; fwd=stale; fwd-status=304");
    let hit = get(&server, PATH, &[]).await;
    assert_eq!((text(&hit).as_str(), hit.field("x-version").as_deref()), ("call 1", Some("2")));
    assert_eq!(calls(&server), 2);
    // The client's own condition is judged by the stored answer.
    let not_modified = get(&server, PATH, &["If-None-Match: W/\"a\""]).await;
    assert_eq!((not_modified.status, not_modified.body.len()), (304, 0));
    assert_eq!(not_modified.field("etag").as_deref(), Some("\"a\""));
    assert_eq!(server.cache.as_ref().unwrap().report().revalidated, 1);
}

#[tokio::test]
async fn a_changed_answer_replaces_the_stale_one() {
    let server = start().await;
    get(&server, PATH, &["order: cache-control: max-age=0 | etag: \"a\""]).await;
    let changed = get(&server, PATH, &["order: cache-control: max-age=60 | etag: \"b\""]).await;
    assert_eq!((changed.status, text(&changed).as_str()), (200, "call 2"));
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 2");
}

#[tokio::test]
async fn a_stale_answer_is_sent_while_the_next_is_made() {
    let server = start().await;
    let order = "order: cache-control: max-age=0, stale-while-revalidate=60";
    get(&server, PATH, &[order]).await;
    let stale = get(&server, PATH, &["order: hold | cache-control: max-age=60"]).await;
    assert_eq!(text(&stale), "call 1");
    assert!(status(&stale).starts_with("Hearth; hit; ttl="), "{}", status(&stale));
    server.app.release.notify_one();
    eventually("the next answer is stored", || server.cache.as_ref().unwrap().report().stored == 2)
        .await;
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 2");
    assert_eq!(calls(&server), 2);
}

/// RFC 9111, section 4.3.1: the application gets the fields by which the answer is selected.
#[tokio::test]
async fn an_authorized_answer_is_revalidated_with_the_clients_credentials() {
    let server = start().await;
    let cache = server.cache.as_ref().unwrap();
    let credentials = "Authorization: Bearer a";
    let stale =
        "order: cache-control: public, max-age=0, stale-while-revalidate=60 | vary: authorization";
    let fresh =
        "order: echo=authorization | cache-control: public, max-age=60 | vary: authorization";
    get(&server, PATH, &[stale, credentials]).await;
    assert_eq!(text(&get(&server, PATH, &[fresh, credentials]).await), "call 1");
    eventually("the next answer is stored", || cache.report().stored == 2).await;
    assert_eq!(text(&get(&server, PATH, &[credentials]).await), "Bearer a");
    assert_eq!(calls(&server), 2);
}

#[tokio::test]
async fn an_answer_to_credentials_removes_no_stale_answer_of_others() {
    let server = start().await;
    let refused = "order: status=401";
    let stale = "order: cache-control: public, max-age=0, stale-while-revalidate=60";
    get(&server, PATH, &[stale]).await;
    for call in 2..4 {
        let reply = get(&server, PATH, &[refused, "Authorization: Bearer bad"]).await;
        assert_eq!((reply.status, text(&reply).as_str()), (200, "call 1"));
        revalidated(&server, call).await;
    }
    assert_eq!(text(&get(&server, PATH, &[refused]).await), "call 1");
    // Without credentials it is about everyone's answer.
    revalidated(&server, 4).await;
    assert_eq!(get(&server, PATH, &[refused]).await.status, 401);
    // An answer that is selected by credentials is about no others.
    let own = format!("{PATH}?own");
    let varies = format!("{stale} | vary: authorization");
    let credentials = "Authorization: Bearer a";
    get(&server, &own, &[&varies, credentials]).await;
    assert_eq!(get(&server, &own, &[refused, credentials]).await.status, 200);
    revalidated(&server, 7).await;
    assert_eq!(get(&server, &own, &[refused, credentials]).await.status, 401);
}

/// Waits until the application was called this often, and no request without a client is under way.
async fn revalidated(server: &Server, calls: usize) {
    called(server, calls).await;
    let cache = server.cache.as_ref().unwrap();
    eventually("the revalidation has ended", || cache.report().revalidating == 0).await;
}

/// Answers of one target are revalidated one after the other. One whose turn has not come is revalidated by a later request.
#[tokio::test]
async fn a_stale_answer_is_revalidated_after_another_one_of_its_target() {
    let server = start().await;
    let stored = |count: u64| server.cache.as_ref().unwrap().report().stored == count;
    let stale = "order: cache-control: max-age=0, stale-while-revalidate=60 | vary: x-kind";
    let fresh = "order: cache-control: max-age=60 | vary: x-kind";
    let held = "order: hold | cache-control: max-age=60 | vary: x-kind";
    get(&server, PATH, &["x-kind: a", stale]).await;
    get(&server, PATH, &["x-kind: b", stale]).await;
    assert_eq!(text(&get(&server, PATH, &["x-kind: a", held]).await), "call 1");
    assert_eq!(text(&get(&server, PATH, &["x-kind: b", fresh]).await), "call 2");
    server.app.release.notify_one();
    eventually("the first is stored", || stored(3)).await;
    assert_eq!(calls(&server), 3);
    assert_eq!(text(&get(&server, PATH, &["x-kind: b", fresh]).await), "call 2");
    eventually("the second is stored", || stored(4)).await;
    assert_eq!(text(&get(&server, PATH, &["x-kind: b"]).await), "call 4");
}

#[tokio::test]
async fn a_stale_answer_is_sent_if_the_application_fails() {
    let server = start().await;
    let order = "order: cache-control: max-age=0, stale-if-error=60";
    get(&server, PATH, &[order]).await;
    for failure in ["order: status=503", "order: dies"] {
        let reply = get(&server, PATH, &[failure]).await;
        assert_eq!((reply.status, text(&reply).as_str()), (200, "call 1"), "{failure}");
    }
    assert_eq!(get(&server, PATH, &["order: status=404"]).await.status, 404);
    let strict = format!("{PATH}?strict");
    get(
        &server,
        &strict,
        &["order: cache-control: max-age=0, stale-if-error=60, must-revalidate | etag: \"a\""],
    )
    .await;
    assert_eq!(get(&server, &strict, &["order: dies"]).await.status, 502);
}

#[tokio::test]
async fn requests_for_one_answer_wait_for_the_first() {
    let server = start().await;
    let order = "order: hold | cache-control: max-age=60";
    let address = server.address();
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let head = format!("GET {PATH} HTTP/1.1\r\nHost: a.example\r\n{order}\r\n\r\n");
        clients.spawn(async move { ask_at(address, &head).await });
    }
    waiting(&server, 7).await;
    server.app.release.notify_one();
    while let Some(reply) = clients.join_next().await {
        assert_eq!(text(&reply.unwrap()), "call 1");
    }
    assert_eq!(calls(&server), 1);
    assert_eq!(server.cache.as_ref().unwrap().report().collapsed, 7);
}

#[tokio::test]
async fn answers_that_are_not_stored_hold_no_request_back() {
    let server = start().await;
    let address = server.address();
    let ask = |order: &str| {
        let head = format!("GET {PATH} HTTP/1.1\r\nHost: a.example\r\norder: {order}\r\n\r\n");
        async move { ask_at(address, &head).await }
    };
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        clients.spawn(ask("hold"));
    }
    waiting(&server, 2).await;
    server.app.release.notify_one();
    // The two that waited go on at once, and both are at the application together.
    called(&server, 3).await;
    // From now on none waits.
    clients.spawn(ask("hold"));
    called(&server, 4).await;
    for _ in 0..3 {
        server.app.release.notify_one();
        clients.join_next().await.unwrap().unwrap();
    }
    clients.shutdown().await;
}

#[tokio::test]
async fn if_the_first_client_leaves_the_next_one_leads() {
    let server = start().await;
    let order = "order: hold | cache-control: max-age=60";
    let head = format!("GET {PATH} HTTP/1.1\r\nHost: a.example\r\n{order}\r\n\r\n");
    let mut first = server.connect().await;
    first.send(&head).await;
    called(&server, 1).await;
    let address = server.address();
    let mut second = JoinSet::new();
    second.spawn(async move { ask_at(address, &head).await });
    waiting(&server, 1).await;
    // A client that only closes its sending side does that together with its request.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    drop(first);
    called(&server, 2).await;
    server.app.release.notify_one();
    assert_eq!(text(&second.join_next().await.unwrap().unwrap()), "call 2");
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 2");
}

#[tokio::test]
async fn a_cut_or_short_answer_is_not_stored() {
    let server = start().await;
    let mut client = server.connect().await;
    client
        .send(&format!(
            "GET {PATH} HTTP/1.1\r\nHost: a\r\norder: cut | cache-control: max-age=60\r\n\r\n"
        ))
        .await;
    client.head().await;
    client.rest().await;
    assert_eq!(server.cache.as_ref().unwrap().report().stored, 0);
    let host = format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n{FRESH}\r\n\r\n");
    assert_eq!(text(&server.ask(&host).await), "call 2");
}

#[tokio::test]
async fn a_large_answer_is_sent_and_not_stored() {
    let server = start().await;
    let order = "order: size=100000 | cache-control: max-age=60";
    let reply = get(&server, PATH, &[order]).await;
    assert_eq!(reply.body.len(), 100_000);
    assert!(status(&reply).ends_with("detail=size"));
    assert_eq!(server.cache.as_ref().unwrap().report().stored, 0);
}

#[tokio::test]
async fn memory_has_a_bound() {
    let server = start().await;
    let order = "order: size=60000 | content-type: image/png | cache-control: max-age=60";
    for number in 0..150 {
        get(&server, &format!("{PATH}?{number}"), &[order]).await;
    }
    let report = server.cache.as_ref().unwrap().report();
    assert!(report.bytes <= report.limit, "{report:?}");
    assert!(report.evicted > 50, "{report:?}");
}

#[tokio::test]
async fn an_unsafe_request_makes_stored_answers_invalid() {
    let server = start().await;
    let other = "/made-to-order/other";
    for path in [PATH, other] {
        get(&server, path, &[FRESH]).await;
    }
    send(&server, "POST", PATH, &["Content-Length: 0", "order: status=500"]).await;
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 1");
    send(
        &server,
        "POST",
        PATH,
        &["Content-Length: 0", &format!("order: status=303 | location: {other}")],
    )
    .await;
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 5");
    assert_eq!(text(&get(&server, other, &[]).await), "call 6");
}

/// RFC 9111, section 4.4: the target URI becomes invalid, whatever further fields the requests for it have.
#[tokio::test]
async fn an_unsafe_request_makes_every_copy_of_its_target_invalid() {
    let server = start().await;
    let vary = "order: cache-control: max-age=60 | vary: accept-language";
    let copies: [&[&str]; 5] = [
        &[],
        &["X-Forwarded-User: a"],
        &["X-Forwarded-User: b"],
        &["X-Forwarded-User: b", "Accept-Language: de", vary],
        &["X-Forwarded-Host: shop.test", vary],
    ];
    let unsafe_fields: [&[&str]; 4] = [
        &["X-HTTP-Method-Override: PUT"],
        &["X-Forwarded-User: a"],
        &[],
        &["X-Forwarded-User: c", "order: status=303 | location: /made-to-order/page"],
    ];
    for (number, fields) in unsafe_fields.into_iter().enumerate() {
        for copy in copies {
            get(&server, PATH, &[copy, &[FRESH]].concat()).await;
        }
        let before = calls(&server);
        for copy in copies {
            let answer = get(&server, PATH, copy).await;
            assert!(status(&answer).starts_with("Hearth; hit"), "{number}: {copy:?}");
        }
        let other = if number == 3 { "/made-to-order/other" } else { PATH };
        send(&server, "POST", other, &[fields, &["Content-Length: 0"]].concat()).await;
        assert_eq!(calls(&server), before + 1);
        for copy in copies {
            get(&server, PATH, &[copy, &["Cache-Control: no-cache", "order: "]].concat()).await;
        }
        assert_eq!(calls(&server), before + 1 + copies.len(), "{number}");
    }
}

#[tokio::test]
async fn a_copy_that_began_before_an_unsafe_request_is_not_stored() {
    let server = start().await;
    let mut client = server.connect().await;
    let fields = "X-Forwarded-User: b\r\norder: hold | cache-control: max-age=60";
    client.send(&format!("GET {PATH} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n")).await;
    called(&server, 1).await;
    send(&server, "POST", PATH, &["X-Forwarded-User: a", "Content-Length: 0"]).await;
    server.app.release.notify_one();
    client.head().await;
    assert_eq!(text(&get(&server, PATH, &["X-Forwarded-User: b"]).await), "call 3");
}

#[tokio::test]
async fn answers_are_purged_by_tag_by_url_and_all() {
    let server = start().await;
    let cache = server.cache.as_ref().unwrap();
    let tagged = "order: cache-control: max-age=60 | surrogate-key: news front | cache-tag: a,b";
    let fill = async || {
        get(&server, PATH, &[tagged]).await;
        get(&server, "/made-to-order/other", &[FRESH]).await;
    };
    fill().await;
    assert_eq!(cache.purge_tags(["sport"]), 0);
    assert_eq!(cache.purge_tags(["front", "x"]), 1);
    fill().await;
    assert_eq!(cache.purge_tags(["b"]), 1);
    fill().await;
    assert_eq!(cache.purge_url(&format!("https://a.example{PATH}")), 0);
    assert_eq!(cache.purge_url(&format!("//A.example{PATH}")), 1);
    fill().await;
    assert_eq!(cache.purge_all(), 2);
    assert_eq!(cache.report().entries, 0);
}

/// Fills memory, so that the first answers go to disk, and waits until one is there.
async fn fill_memory(server: &Server, order: &str) {
    for number in 0..30 {
        get(server, &format!("{PATH}?{number}"), &[order]).await;
    }
    let cache = server.cache.as_ref().unwrap();
    eventually("an answer is on disk", || cache.report().disk.unwrap().entries > 0).await;
}

async fn with_disk(folder: &std::path::Path) -> Server {
    let disk = DiskOptions { folder: folder.to_owned(), limit: 16 << 20 };
    let cache = CacheOptions { memory: 64 << 10, disk: Some(disk), ..options() };
    Server::with(|front, _| front.cache = Some(cache)).await
}

#[tokio::test]
async fn an_answer_that_memory_let_go_needs_no_php() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_disk(folder.path()).await;
    fill_memory(&server, "order: cache-control: max-age=60 | vary: x-test | size=8000").await;
    let cache = server.cache.as_ref().unwrap();
    let evicted = cache.report().evicted;
    assert!(evicted > 10, "{evicted}");
    eventually("all are on disk", || cache.report().disk.unwrap().written >= evicted).await;
    for number in 0..30 {
        let answer = get(&server, &format!("{PATH}?{number}"), &[]).await;
        assert_eq!((answer.status, answer.body.len()), (200, 8000));
        assert!(status(&answer).starts_with("Hearth; hit"), "{number}: {}", status(&answer));
        // What it has pushed out is to be on disk before the next one is asked for.
        let idle = |report: front_http::CacheReport| {
            report.disk.is_some_and(|disk| disk.written + disk.hits >= report.evicted)
        };
        eventually("what left memory is on disk", || idle(cache.report())).await;
    }
    assert_eq!(calls(&server), 30);
    assert!(cache.report().disk.unwrap().hits > 10);
}

#[tokio::test]
async fn a_purge_removes_answers_on_disk_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_disk(folder.path()).await;
    let cache = server.cache.as_ref().unwrap();
    fill_memory(&server, "order: cache-control: max-age=60 | cache-tag: a | size=8000").await;
    let evicted = cache.report().evicted;
    eventually("all are on disk", || cache.report().disk.unwrap().written >= evicted).await;
    assert_eq!(cache.purge_tags(["a"]), 30);
    assert_eq!(cache.report().disk.unwrap().entries, 0);
    get(&server, &format!("{PATH}?0"), &[]).await;
    assert_eq!(calls(&server), 31);
}

#[tokio::test]
async fn an_answer_that_began_before_a_purge_is_not_stored() {
    let server = start().await;
    let mut client = server.connect().await;
    let order = "order: hold | cache-control: max-age=60 | cache-tag: a";
    client.send(&format!("GET {PATH} HTTP/1.1\r\nHost: a.example\r\n{order}\r\n\r\n")).await;
    called(&server, 1).await;
    server.cache.as_ref().unwrap().purge_tags(["a"]);
    server.app.release.notify_one();
    client.head().await;
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 2");
}

#[tokio::test]
async fn a_new_release_starts_with_an_empty_cache() {
    let server = start().await;
    get(&server, PATH, &[FRESH]).await;
    let release = Release::new(&front_http::Options::new(server.root.path())).unwrap();
    server.switch.to(release, [server.app.clone()]);
    assert_eq!(text(&get(&server, PATH, &[]).await), "call 2");
}

#[tokio::test]
async fn parts_and_codings_come_from_one_stored_answer() {
    let server = start().await;
    let order =
        "order: size=20000 | content-type: text/css | cache-control: max-age=60 | etag: \"a\"";
    get(&server, PATH, &[order]).await;
    let part = get(&server, PATH, &["Range: bytes=10-19"]).await;
    assert_eq!((part.status, part.body.len()), (206, 10));
    assert_eq!(part.field("content-range").as_deref(), Some("bytes 10-19/20000"));
    assert_eq!(get(&server, PATH, &["Range: bytes=20000-"]).await.status, 416);
    assert_eq!(get(&server, PATH, &["Range: bytes=0-1", "If-Range: \"b\""]).await.status, 200);
    for _ in 0..2 {
        let coded = get(&server, PATH, &["Accept-Encoding: gzip"]).await;
        assert_eq!(coded.field("content-encoding").as_deref(), Some("gzip"));
        assert_eq!(coded.field("etag").as_deref(), Some("W/\"a\""));
        assert!(coded.body.len() < 1000);
    }
    assert_eq!(get(&server, PATH, &[]).await.body.len(), 20_000);
    assert_eq!(calls(&server), 1);
}

#[tokio::test]
async fn events_and_hints_are_passed_on_at_once() {
    let server = start().await;
    let mut client = server.connect().await;
    client.send("GET /hint HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.head().await.status, 103);
    assert_eq!(client.head().await.status, 200);
    let mut events = server.connect().await;
    events.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let head = events.head().await;
    assert_eq!(head.field("cache-status").as_deref(), Some("Hearth; fwd=uri-miss; detail=stream"));
    assert_eq!(events.chunk().await.as_deref(), Some(&b"data: 1\n\n"[..]));
}

#[tokio::test]
async fn only_if_cached_asks_no_application() {
    let server = start().await;
    let only = "Cache-Control: only-if-cached";
    assert_eq!(get(&server, PATH, &[only]).await.status, 504);
    assert_eq!(calls(&server), 0);
    get(&server, PATH, &[FRESH]).await;
    assert_eq!(text(&get(&server, PATH, &[only]).await), "call 1");
}

#[tokio::test]
async fn http2_and_http1_share_stored_answers() {
    let server = start().await;
    get(&server, PATH, &[FRESH]).await;
    let mut client = Http2::to(&server).await;
    let (head, body) = client.get(PATH).await;
    assert_eq!(body, b"call 1");
    assert!(head.headers["cache-status"].to_str().unwrap().starts_with("Hearth; hit"));
    assert_eq!(
        (&head.headers["content-length"], head.headers.get("connection")),
        (&"6".parse().unwrap(), None)
    );
    assert_eq!(calls(&server), 1);
}

#[tokio::test]
async fn a_clients_condition_reaches_the_application_if_nothing_is_stored() {
    let server = start().await;
    let order = "order: cache-control: max-age=60 | etag: \"a\"";
    assert_eq!(get(&server, PATH, &[order, "If-None-Match: \"a\""]).await.status, 304);
    assert_eq!(server.cache.as_ref().unwrap().report().stored, 0);
    assert_eq!(get(&server, PATH, &[order]).await.status, 200);
    assert_eq!(get(&server, PATH, &["If-None-Match: \"a\""]).await.status, 304);
    assert_eq!(calls(&server), 2);
}

/// Waits until the application was called this often.
async fn called(server: &Server, times: usize) {
    until(&server.app.called, times).await;
}

/// Waits until this many requests wait for another one.
async fn waiting(server: &Server, requests: u64) {
    let cache = server.cache.as_ref().unwrap();
    eventually("requests wait", || cache.report().waiting == requests).await;
}
