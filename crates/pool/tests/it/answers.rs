//! Tests what a request carries to a worker and what a response carries back.

use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use pool::{DispatchError, HintSender, ResponseObserver};

use crate::{context, eventually, get, request, start, text};

#[tokio::test]
async fn a_response_arrives_whole() {
    let pool = start(1).await;
    let response = get(&pool, "/hello").await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/plain");
    assert_eq!(response.body().size_hint().exact(), Some(5));
    assert_eq!(text(response).await, "hello");
}

#[tokio::test]
async fn the_variables_are_those_of_nginx() {
    let pool = start(1).await;
    let mut context = context();
    context.script.path_info = Arc::from("/a b");
    context.scheme = pool::Scheme::Https;
    let request = Request::post("/request?x=1&y=%20")
        .header("host", "example.org")
        .header("content-type", "text/plain")
        .header("content-length", "4")
        .header("x-forwarded-for", "203.0.113.9")
        .header("x_forwarded_for", "spoofed")
        .header("x.forwarded.for", "spoofed")
        .header("proxy", "http://evil.example")
        .header("accept", "a")
        .header("accept", "b")
        .header("cookie", "one=1")
        .header("cookie", "two=2")
        .extension(context)
        .body(Full::from("data"))
        .unwrap();
    let answer = text(pool.dispatch(request).await.unwrap()).await;
    let lines: Vec<&str> =
        answer.lines().filter(|line| !line.starts_with("SERVER_SOFTWARE=")).collect();
    let expected = "SCRIPT_FILENAME=/srv/index.php
QUERY_STRING=x=1&y=%20
REQUEST_METHOD=POST
CONTENT_TYPE=text/plain
CONTENT_LENGTH=4
SCRIPT_NAME=/index.php
REQUEST_URI=/request?x=1&y=%20
PATH_INFO=/a b
PATH_TRANSLATED=/srv/a b
DOCUMENT_URI=/index.php/a b
DOCUMENT_ROOT=/srv
SERVER_PROTOCOL=HTTP/1.1
REQUEST_SCHEME=https
HTTPS=on
GATEWAY_INTERFACE=CGI/1.1
REMOTE_ADDR=192.0.2.7
REMOTE_PORT=1234
REMOTE_USER=
SERVER_ADDR=192.0.2.1
SERVER_PORT=80
SERVER_NAME=example.org
REDIRECT_STATUS=200
HEARTH_REQUEST_ID=test-1
HTTP_HOST=example.org
HTTP_CONTENT_TYPE=text/plain
HTTP_CONTENT_LENGTH=4
HTTP_X_FORWARDED_FOR=203.0.113.9
HTTP_ACCEPT=a, b
HTTP_COOKIE=one=1; two=2";
    assert_eq!(lines.join("\n"), expected);
}

#[tokio::test]
async fn a_body_reaches_the_worker_and_streams_back() {
    let pool = start(1).await;
    for size in [1, 1000, 65_536, 65_537, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|n: u32| n.to_le_bytes()[0]).collect();
        let request =
            Request::post("/echo").extension(context()).body(Full::from(body.clone())).unwrap();
        let response = pool.dispatch(request).await.unwrap();
        let echoed = response.into_body().collect().await.unwrap().to_bytes();
        assert!(echoed == body, "{size} bytes come back as they went");
    }
}

#[tokio::test]
async fn an_unread_body_does_not_disturb_the_next_request() {
    let pool = start(1).await;
    for _ in 0..3 {
        let body = Full::from(vec![1; 1_000_000]);
        let request = Request::post("/unread").extension(context()).body(body).unwrap();
        assert_eq!(text(pool.dispatch(request).await.unwrap()).await, "hello");
    }
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
}

/// The body fills the worker's socket, and the next request arrives before the worker reads on.
async fn a_full_socket_is_written_to_again() {
    let pool = start(1).await;
    for size in (120_000..280_000).step_by(4000) {
        let body = Full::from(vec![1; size]);
        let request = Request::put("/cleanup?30").extension(context()).body(body).unwrap();
        assert_eq!(text(pool.dispatch(request).await.unwrap()).await, "early");
        let answer = get(&pool, "/hello").await;
        let answer = answer.unwrap_or_else(|error| panic!("behind {size} bytes: {error}"));
        assert_eq!(text(answer).await, "hello");
    }
    assert_eq!(pool.status().crashes, 0);
    pool.drain(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_request_behind_an_unread_body_is_written_on_one_thread() {
    a_full_socket_is_written_to_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_behind_an_unread_body_is_written_on_several_threads() {
    a_full_socket_is_written_to_again().await;
}

#[tokio::test]
async fn a_large_answer_waits_for_its_reader() {
    let pool = start(1).await;
    let mut body = get(&pool, "/large?20000000").await.unwrap().into_body();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(length, 20_000_000);
}

#[tokio::test]
async fn hints_come_before_the_answer() {
    let pool = start(1).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut context = context();
    let hints = Arc::clone(&seen);
    context.hints = Some(HintSender(Arc::new(move |status, headers| {
        hints.lock().unwrap().push((status.as_u16(), headers["link"].to_str().unwrap().to_owned()));
    })));
    let mut request = request("/hints");
    request.extensions_mut().insert(context);
    assert_eq!(text(pool.dispatch(request).await.unwrap()).await, "after the hint");
    assert_eq!(*seen.lock().unwrap(), [(103, "</app.css>; rel=preload".to_owned())]);
}

/// The status codes that an observer has seen.
#[derive(Debug, Default)]
struct Heads(Mutex<Vec<u16>>);

impl ResponseObserver for Heads {
    fn head(&self, status: StatusCode, _headers: &HeaderMap) {
        self.0.lock().unwrap().push(status.as_u16());
    }

    fn failed(&self) {}
}

#[tokio::test]
async fn the_head_of_an_answer_is_observed_after_its_client_has_left() {
    let pool = start(1).await;
    let heads = Arc::<Heads>::default();
    let hinted = Arc::<AtomicBool>::default();
    let asked = || {
        let mut context = context();
        context.observer = Some(Arc::<Heads>::clone(&heads));
        let hinted = Arc::clone(&hinted);
        context.hints = Some(HintSender(Arc::new(move |_, _| hinted.store(true, SeqCst))));
        let mut request = request("/hints");
        request.extensions_mut().insert(context);
        request
    };
    assert_eq!(text(pool.dispatch(asked()).await.unwrap()).await, "after the hint");
    assert_eq!(*heads.0.lock().unwrap(), [200]);
    hinted.store(false, SeqCst);
    let mut call = Box::pin(pool.dispatch(asked()));
    // The hint says that the worker has begun.
    std::future::poll_fn(|cx| {
        let polled = call.as_mut().poll(cx).map(drop);
        if hinted.load(SeqCst) { Poll::Ready(()) } else { polled }
    })
    .await;
    drop(call);
    eventually("the head is observed", || heads.0.lock().unwrap().len() == 2).await;
}

#[tokio::test]
async fn an_answer_is_complete_before_its_worker_is_free() {
    let pool = start(1).await;
    let started = SystemTime::now();
    assert_eq!(text(get(&pool, "/finish?5000").await.unwrap()).await, "early");
    assert!(started.elapsed().unwrap() < Duration::from_millis(4500), "the answer did not wait");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    assert!(started.elapsed().unwrap() >= Duration::from_secs(5), "the next request did");
}

/// A body that fails in its middle, as when a client disconnects.
struct Broken(u8);

impl Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0 += 1;
        Poll::Ready(Some(match self.0 {
            1 => Ok(Frame::data(Bytes::from_static(b"half"))),
            _ => Err(std::io::Error::other("the client hung up")),
        }))
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_fails_its_request_and_no_other() {
    let pool = start(1).await;
    let request = Request::post("/length").extension(context()).body(Broken(0)).unwrap();
    let error = pool.dispatch(request).await.unwrap_err();
    assert!(matches!(error, DispatchError::RequestBody(_)), "{error}");
    assert_eq!(text(get(&pool, "/hello").await.unwrap()).await, "hello");
    eventually("the worker is idle", || pool.status().workers.len() == 1).await;
    assert_eq!(pool.status().crashes, 0);
}
