//! Calls and their answers over HTTP/1.1 and HTTP/2.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use egress::{Fate, Interim, Reason};
use http::{Method, Request};
use http_body_util::BodyExt;
use testkit::{Body, Origin, Reply, Step, Turn, certificates, routes};

use crate::support::*;

/// Starts the same origin in plain HTTP/1.1, in HTTP/1.1 over TLS, and in HTTP/2.
fn everywhere(
    script: impl Fn(&testkit::Seen) -> Turn + Clone + Send + Sync + 'static,
) -> [Origin; 3] {
    let tls = || Origin::setup().tls(&certificates().origin).script(script.clone());
    [Origin::plain(script.clone()), tls().alpn(&["http/1.1"]).start(), tls().start()]
}

#[tokio::test]
async fn a_call_is_answered_and_the_next_one_uses_its_connection() {
    for (origin, http2) in everywhere(routes).iter().zip([false, false, true]) {
        let engine = engine();
        for (number, path) in ["/one?x=1", "/two"].into_iter().enumerate() {
            let answer = made(&engine, get(&key(origin), path)).await.expect("an answer");
            assert_eq!(answer.status, 200);
            assert_eq!((answer.timing.reused, answer.timing.http2), (number > 0, http2));
            assert_eq!(answer.timing.address.expect("an address").port(), origin.port());
            let seen = &origin.requests()[number];
            assert_eq!((seen.target.as_str(), seen.connection), (path, 0));
            assert_eq!(seen.authority, format!("{}:{}", key(origin).host, origin.port()));
        }
        let stats = stats(&engine);
        let secure = u64::from(key(origin).scheme == egress::Scheme::Https);
        assert_eq!((stats.calls, stats.reused, stats.connects, stats.connections), (2, 1, 1, 1));
        assert_eq!((stats.handshakes, stats.handshakes_saved), (secure, secure));
        assert!(stats.unanswered.is_empty());
    }
}

#[tokio::test]
async fn bodies_pass_both_ways_whole() {
    for origin in everywhere(routes) {
        let engine = engine();
        let key = key(&origin);
        let body: Bytes = (0..3_000_000_u64).map(testkit::pattern).collect::<Vec<_>>().into();
        let sized = call(&key, Request::post(url(&key, "/echo")), full(body.clone()));
        assert_eq!(made(&engine, sized).await.expect("an answer").body, body);

        // The body has an unknown length; hyper would drop the body of one of these methods.
        for method in [Method::PUT, Method::GET] {
            let (mut sender, streamed) = channel();
            let request = Request::builder().method(method).uri(url(&key, "/echo"));
            let sending = async {
                for at in (0..body.len()).step_by(65_536) {
                    let end = body.len().min(at + 65_536);
                    sender.send_data(body.slice(at..end)).await.expect("it is read");
                }
                drop(sender);
            };
            let (answer, ()) = tokio::join!(made(&engine, call(&key, request, streamed)), sending);
            assert_eq!(answer.expect("an answer").body, body);
        }
        assert_eq!(origin.connections().len(), 1);
    }
}

#[tokio::test]
async fn a_response_arrives_while_its_request_is_sent() {
    for origin in everywhere(|_| Reply::text("").body(Body::Echo).early().into()) {
        let engine = engine();
        let key = key(&origin);
        let (mut sender, body) = channel();
        let request = call(&key, Request::post(url(&key, "/")), body);
        let answer = within(engine.call(request, |_| {})).await.expect("a head");
        let mut answer = answer.response.into_body();
        for piece in ["one", "two"] {
            sender.send_data(piece.into()).await.expect("it is read");
            let frame = within(answer.frame()).await.expect("a frame").expect("no failure");
            assert_eq!(frame.into_data().expect("data"), piece);
        }
        drop(sender);
        assert!(
            within(answer.frame())
                .await
                .is_none_or(|frame| frame.is_ok_and(|f| f.into_data().is_ok_and(|d| d.is_empty())))
        );
    }
}

#[tokio::test]
async fn fields_keep_their_order_and_nothing_is_added() {
    let origin = Origin::setup()
        .answers([Turn::Steps(vec![Step::send(
            "HTTP/1.1 200 OK\r\nX-Zebra: 1\r\nset-cookie: a=1\r\nx-alpha: \u{e4}\r\nContent-Length: 0\r\nset-cookie: b=2\r\n\r\n",
        )])])
        .start();
    let key = key(&origin);
    let request = Request::get(url(&key, "/"))
        .header("X-Last-First", "1")
        .header("Accept", "*/*")
        .header("Cookie", "a=b");
    let answer = made(&engine(), call(&key, request, empty())).await.expect("an answer");
    let names: Vec<_> = answer.headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-zebra", "set-cookie", "x-alpha", "content-length"]);
    let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    assert_eq!(answer.headers["x-alpha"].as_bytes(), "\u{e4}".as_bytes());

    let seen = &origin.requests()[0];
    let fields: Vec<_> = seen.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(fields, ["Host", "X-Last-First", "Accept", "Cookie"]);
}

#[tokio::test]
async fn interim_answers_come_before_the_answer() {
    for origin in everywhere(|_| {
        Reply::text("done").interim(103, "Link", "</a>").interim(103, "Link", "</b>").into()
    }) {
        let came = Arc::new(Mutex::new(Vec::new()));
        let interim = |(status, fields, _): Interim<'_>| {
            let link = fields["link"].to_str().expect("text").to_owned();
            came.lock().expect("no panic").push((status.as_u16(), link));
        };
        let answer = within(engine().call(get(&key(&origin), "/"), interim)).await;
        let answer = whole(answer.expect("an answer")).await.expect("a body");
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "done"));
        let came = came.lock().expect("no panic").clone();
        assert_eq!(came, [(103, "</a>".to_owned()), (103, "</b>".to_owned())]);
    }
}

#[tokio::test]
async fn trailers_come_after_the_body() {
    for origin in everywhere(routes) {
        let answer = made(&engine(), get(&key(&origin), "/trailers")).await.expect("an answer");
        assert_eq!(answer.text(), "with trailers");
        assert_eq!(answer.trailers["x-checksum"], "abc");
    }
}

#[tokio::test]
async fn trailers_are_sent_after_a_body() {
    for origin in everywhere(routes) {
        let key = key(&origin);
        let (mut sender, body) = channel();
        let request =
            Request::post(url(&key, "/")).header("trailer", "x-sum").header("te", "trailers");
        let sending = async {
            sender.send_data("data".into()).await.expect("it is read");
            let trailers = [("x-sum".parse().expect("a name"), "7".parse().expect("a value"))];
            sender.send_trailers(trailers.into_iter().collect()).await.expect("they are read");
            drop(sender);
        };
        let engine = engine();
        let (answer, ()) = tokio::join!(made(&engine, call(&key, request, body)), sending);
        answer.expect("an answer");
        let seen = &origin.requests()[0];
        assert_eq!((seen.text().as_str(), seen.complete), ("data", true));
        let [(name, value)] = &seen.trailers[..] else { panic!("{:?}", seen.trailers) };
        assert_eq!((name.to_ascii_lowercase().as_str(), value.as_str()), ("x-sum", "7"));
    }
}

#[tokio::test]
async fn answers_without_a_body_leave_their_connection_usable() {
    for origin in everywhere(|seen| match seen.path() {
        "/204" => Reply::text("").status(204).into(),
        "/304" => Reply::text("").status(304).into(),
        _ => Reply::text("a body").into(),
    }) {
        let engine = engine();
        let key = key(&origin);
        let head = call(&key, Request::head(url(&key, "/")), empty());
        let answer = made(&engine, head).await.expect("an answer");
        assert_eq!((answer.headers["content-length"].as_bytes(), answer.text()), (&b"6"[..], ""));
        for status in [204, 304] {
            let answer = made(&engine, get(&key, &format!("/{status}"))).await.expect("an answer");
            assert_eq!((answer.status.as_u16(), answer.text()), (status, ""));
        }
        let answer = made(&engine, get(&key, "/")).await.expect("an answer");
        assert_eq!((answer.text(), answer.timing.reused), ("a body", true));
        assert_eq!(origin.connections().len(), 1);
    }
}

#[tokio::test]
async fn a_compressed_body_is_passed_on_as_it_is() {
    for origin in everywhere(routes) {
        let answer = made(&engine(), get(&key(&origin), "/gzip")).await.expect("an answer");
        assert_eq!(answer.headers["content-encoding"], "gzip");
        assert_eq!(answer.body[..3], [0x1f, 0x8b, 8]);
    }
}

#[tokio::test]
async fn an_expectant_body_is_sent_after_100() {
    let origin = Origin::plain(routes);
    let key = key(&origin);
    let request = Request::post(url(&key, "/echo")).header("expect", "100-continue");
    let mut came = Vec::new();
    let interim = |(status, _, _): Interim<'_>| came.push(status.as_u16());
    let answer = within(engine().call(call(&key, request, full("wanted")), interim)).await;
    let answer = whole(answer.expect("an answer")).await.expect("a body");
    assert_eq!(answer.text(), "wanted");
    assert_eq!(came, [100]);
}

#[tokio::test]
async fn an_expectant_body_is_not_sent_after_a_refusal() {
    for origin in everywhere(routes) {
        let engine = engine();
        let key = key(&origin);
        let request = Request::post(url(&key, "/early")).header("expect", "100-continue");
        let answer = made(&engine, call(&key, request, full("unwanted"))).await.expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.text()), (413, "too large"));
        assert_eq!(origin.requests()[0].length, 0);
        // Over HTTP/1.1 the origin would take the next request for the body.
        let answer = made(&engine, get(&key, "/")).await.expect("an answer");
        assert_eq!(answer.timing.reused, answer.timing.http2);
    }
}

#[tokio::test]
async fn an_early_refusal_is_received_while_the_body_is_sent() {
    for origin in everywhere(routes) {
        let engine = engine();
        let key = key(&origin);
        // This body never ends: only the refusal can end the call (hyper#4176).
        let (mut sender, body) = channel();
        let sending = async move {
            let piece = Bytes::from(vec![0; 65_536]);
            while sender.send_data(piece.clone()).await.is_ok() {}
        };
        let request = Request::post(url(&key, "/early"));
        let (answer, ()) = tokio::join!(made(&engine, call(&key, request, body)), within(sending));
        let answer = answer.expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.text()), (413, "too large"));
        let answer = made(&engine, get(&key, "/")).await.expect("an answer");
        assert_eq!(answer.timing.reused, answer.timing.http2);
    }
}

#[tokio::test]
async fn an_aborted_body_ends_the_call() {
    for origin in everywhere(routes) {
        let engine = engine();
        let key = key(&origin);
        let (mut sender, body) = channel();
        let request = call(&key, Request::post(url(&key, "/echo-later")), body);
        let sending = async {
            sender.send_data("half".into()).await.expect("it is read");
            eventually("half a body", || origin.requests().iter().any(|seen| seen.length == 4))
                .await;
            sender.abort(std::io::ErrorKind::ConnectionReset.into());
        };
        let (answer, ()) = tokio::join!(made(&engine, request), sending);
        let error = answer.expect_err("it was broken off");
        assert_eq!((error.fate, error.reason), (Fate::Failed, Reason::Body), "{error:?}");
        assert!(!origin.requests()[0].complete);
    }
}

#[tokio::test]
async fn a_body_is_read_only_once_connected() {
    let key = egress::Key::plain(0, egress::Scheme::Http, "127.0.0.1", 1);
    let (mut sender, body) = channel();
    let error = made(&engine(), call(&key, Request::post(url(&key, "/")), body)).await;
    assert_eq!(error.expect_err("the port is closed").fate, Fate::Declined);
    assert_eq!(sender.capacity(), sender.max_capacity());
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    for version in ["1.0", "1.1"] {
        let head = format!("HTTP/{version} 200 Fine\r\nX-One: 1\r\n\r\n");
        let turn = Turn::Steps(vec![
            Step::send(&head),
            Step::send("until "),
            Step::send("the end"),
            Step::Close,
        ]);
        for origin in everywhere(move |_| turn.clone()).iter().take(2) {
            let engine = engine();
            let answer = made(&engine, get(&key(origin), "/")).await.expect("an answer");
            assert_eq!(answer.text(), "until the end");
            assert_eq!(stats(&engine).connections, 0);
        }
    }
}

#[tokio::test]
async fn an_answer_may_have_many_and_large_fields() {
    for origin in everywhere(|_| {
        (0..200)
            .fold(Reply::text("many"), |reply, number| {
                reply.field(&format!("X-{number}"), &"x".repeat(1000))
            })
            .into()
    }) {
        let answer = made(&engine(), get(&key(&origin), "/")).await.expect("an answer");
        assert_eq!((answer.headers.len(), answer.text()), (202, "many"));
    }
}

#[tokio::test]
async fn a_body_is_sent_however_slowly_its_answer_is_read() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nearly";
    let turn = Turn::Steps(vec![Step::send(head), Step::ReadBody, Step::send("late")]);
    let http1 = Origin::plain(move |_| turn.clone());
    // The HTTP/2 window holds the whole echo.
    let http2 = Origin::tls(|_| Reply::text("").body(Body::Echo).into());
    for origin in [http1, http2] {
        let engine = engine();
        let key = key(&origin);
        let (mut sender, body) = channel();
        let request = call(&key, Request::post(url(&key, "/")), body);
        let answer = within(engine.call(request, |_| {})).await.expect("a head");
        for _ in 0..100 {
            within(sender.send_data(vec![b'x'; 8192].into())).await.expect("it is read");
        }
        drop(sender);
        eventually("all was sent", || origin.requests()[0].complete).await;
        let answer = whole(answer).await.expect("a body");
        assert!(matches!(answer.body.len(), 9 | 819_200), "{}", answer.body.len());
        // Dropping the answer stops the body.
        let engine = crate::support::engine();
        let (mut sender, body) = channel();
        let request = call(&key, Request::post(url(&key, "/")), body);
        let answer = within(engine.call(request, |_| {})).await.expect("a head");
        drop(answer);
        within(async { while sender.send_data(vec![0; 8192].into()).await.is_ok() {} }).await;
    }
}
