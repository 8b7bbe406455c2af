//! Shorthands for calls and their results.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use egress::{
    Answer, Call, CallBody, CallError, Engine, Key, Limits, Options, OriginStats, Scheme, Timing,
    Trust,
};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Empty, Full};
use testkit::{Origin, certificates};

/// A limit for steps that normally take much less, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// An engine with the defaults of docs/internals/egress.md.
pub(crate) fn engine() -> Engine {
    Engine::new(Options::default())
}

/// Returns the key of an origin. With TLS it trusts the tests' authority.
pub(crate) fn key(origin: &Origin) -> Key {
    let url: http::Uri = origin.url("/").parse().expect("a URL");
    let scheme = if url.scheme_str() == Some("https") { Scheme::Https } else { Scheme::Http };
    let mut key = Key::plain(0, scheme, url.host().expect("a host"), origin.port());
    if scheme == Scheme::Https {
        key.trust = Trust::Authorities(certificates().authority.chain.as_bytes().into());
    }
    key
}

pub(crate) fn url(key: &Key, path: &str) -> String {
    let scheme = if key.scheme == Scheme::Https { "https" } else { "http" };
    format!("{scheme}://{}:{}{path}", key.host, key.port)
}

/// A call without a body.
pub(crate) fn get(key: &Key, path: &str) -> Call {
    call(key, Request::get(url(key, path)), empty())
}

/// A call with a body.
pub(crate) fn post(key: &Key, path: &str, body: &'static str) -> Call {
    call(key, Request::post(url(key, path)), full(body))
}

pub(crate) fn call(key: &Key, request: http::request::Builder, body: CallBody) -> Call {
    let request = request.body(body).expect("a request");
    let limits = Limits { connect: LONG, queue: LONG };
    Call { key: key.clone(), request, limits, scope: None }
}

pub(crate) fn empty() -> CallBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn full(body: impl Into<Bytes>) -> CallBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body of unknown length, sent in pieces.
pub(crate) fn channel() -> (Sender<Bytes, io::Error>, CallBody) {
    let (sender, body) = Channel::new(1);
    (sender, body.boxed_unsync())
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    pub(crate) timing: Timing,
}

impl Whole {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// Makes a call and reads its answer.
pub(crate) async fn made(engine: &Engine, call: Call) -> Result<Whole, CallError> {
    whole(within(engine.call(call, |_| {})).await?).await
}

pub(crate) async fn whole(answer: Answer) -> Result<Whole, CallError> {
    let (head, body) = answer.response.into_parts();
    let body = within(body.collect()).await?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    Ok(Whole {
        status: head.status,
        headers: head.headers,
        body: body.to_bytes(),
        trailers,
        timing: answer.timing,
    })
}

/// Fails the test instead of letting it hang.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes far too long")
}

/// Waits until `happened` returns true.
pub(crate) async fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let happened = async {
        while !happened() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, happened).await.is_ok(), "not in time: {what}");
}

/// Returns the statistics of an engine with one origin.
pub(crate) fn stats(engine: &Engine) -> OriginStats {
    let mut report = engine.report();
    assert_eq!(report.len(), 1, "{report:?}");
    report.remove(0).stats
}
