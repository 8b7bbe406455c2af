//! Requests through the answer cache: a stored answer is sent, or the application is asked and its answer stored.
//!
//! Invariants
//! - A request in which the cache takes no part goes to the application exactly as without a cache.
//! - An answer that the application gives is sent as it comes, whether it is stored or not.
//! - The application is asked once for a request, or a second time if its 304 was about another answer than the stored.

use std::sync::Arc;

use answer_cache::{
    Bypass, Conditional, Forwarded, Key, Request as Asked, Standing, Target, answer_to, describes,
    if_range_holds, make_conditional, status_of_hit, status_of_miss,
};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use pool::{CompleteBody, DispatchError, HintSender, ResponseObserver, Scheme, Script};
use tokio::time::Instant;

use super::send::{Kept, drain, drop_hop_by_hop, settle_length};
use super::{Answer, Exchange, Limited, with_context};
use crate::answer_body::Source;
use crate::answers::Page;
use crate::application::Application;
use crate::cache::{
    AnswerCache, CACHE_STATUS, Entry, Filling, FlightEnd, FlightGuard, Invalidation, Joined,
    PATIENCE, Storing,
};
use crate::compress::{self, Encoder};
use crate::conditional::{Part, parse_range};
use crate::encoding::Coding;
use crate::request_body::RequestBody;

/// The largest body that is compressed at once on the connection's task.
const COMPRESSED_AT_ONCE: usize = 64 << 10;

/// A stored answer, and how it is sent.
struct Hit {
    entry: Arc<Entry>,
    age: u64,
    /// The freshness that is left in seconds; negative if it is stale.
    left: i64,
    collapsed: bool,
}

impl Hit {
    fn new(entry: Arc<Entry>, now: Instant) -> Self {
        let resident = now.saturating_duration_since(entry.since);
        let age = entry.freshness.age(resident).as_secs();
        let lifetime = entry.freshness.lifetime.as_secs();
        let left =
            i64::try_from(lifetime).unwrap_or(i64::MAX) - i64::try_from(age).unwrap_or(i64::MAX);
        Self { entry, age, left, collapsed: false }
    }
}

/// A request that goes to the application.
struct Onward {
    key: Key,
    asked: Asked,
    /// The stored answer, which is stale. With `true` it is used if the application fails.
    stale: Option<(Arc<Entry>, bool)>,
    flight: Option<FlightGuard>,
}

impl<A: Application> Exchange<'_, A> {
    /// Answers a request for the application from the cache, or passes it on.
    pub(super) async fn cached(
        mut self,
        cache: &Arc<AnswerCache>,
        number: usize,
        script: Script,
        parts: Parts,
        body: Limited,
        hints: Option<HintSender>,
    ) -> Answer<A::Body> {
        cache.enter(self.current.number);
        let certified = self.connection.client.as_ref().is_some_and(|client| client.known);
        let asked =
            Asked::read(&parts.method, &parts.headers, !body.0.is_end_stream(), &cache.cookies)
                .and_then(|asked| if certified { Err(Bypass::Certificate) } else { Ok(asked) });
        let client = self.client(&parts.headers);
        let host = self.forwarded_host().map(str::as_bytes);
        let host = host.or_else(|| Some(parts.headers.get(header::HOST)?.as_bytes()));
        let host = host.unwrap_or_default();
        let key = Key::of(&Target {
            application: number,
            secure: client.scheme == Scheme::Https,
            port: client.server_port,
            host,
            uri: &parts.uri,
            headers: &parts.headers,
        });
        let (asked, key) = match (asked, key) {
            (Ok(asked), Some(key)) => (asked, key),
            (asked, key) => {
                cache.counts.bypassed.add();
                let invalidation =
                    key.and_then(|key| Invalidation::of(cache, key, &parts.method, host));
                self.observer = invalidation.clone().map(|it| it as Arc<dyn ResponseObserver>);
                let mut answer = self.pass_on(number, script, parts, body, hints).await;
                if let Some(invalidation) = invalidation {
                    invalidation.head(answer.head.status, &answer.head.headers);
                }
                if let Err(reason) = asked {
                    let status = status_of_miss(Forwarded::Bypass(reason), None, None);
                    mark(cache, &mut answer.head.headers, status);
                }
                return answer;
            }
        };
        let onward = match self.find(cache, &parts, key, asked, number, &script).await {
            Ok(hit) => {
                if hit.left >= 0 {
                    cache.counts.hits.add();
                } else {
                    cache.counts.stale.add();
                }
                return self.stored(cache, hit, &parts).await;
            }
            Err(onward) => onward,
        };
        if asked.only_if_cached {
            let page = Page::new(StatusCode::GATEWAY_TIMEOUT, "There is no stored answer.");
            return self.page(page, &parts.headers);
        }
        cache.counts.misses.add();
        self.forward(cache, (number, script, parts, hints), onward).await
    }

    /// Looks for a stored answer, and waits for one that is under way.
    async fn find(
        &self,
        cache: &Arc<AnswerCache>,
        parts: &Parts,
        key: Key,
        asked: Asked,
        number: usize,
        script: &Script,
    ) -> Result<Hit, Onward> {
        let deadline = Instant::now() + PATIENCE;
        let (mut collapsed, mut purged) = (false, false);
        loop {
            let now = Instant::now();
            let mut stale = None;
            let mut waits = asked.may_fill && !asked.authorized;
            match cache.look(&key, &parts.headers).await {
                Some(entry) if asked.authorized && !entry.freshness.for_authorization => {}
                Some(entry) => {
                    let resident = now.saturating_duration_since(entry.since);
                    match entry.freshness.standing(resident) {
                        Standing::Fresh(_) => {
                            if collapsed {
                                cache.counts.collapsed.add();
                            }
                            return Ok(Hit { collapsed, ..Hit::new(entry, now) });
                        }
                        Standing::WhileRevalidating => {
                            self.revalidate(cache, parts, (&key, asked), &entry, number, script);
                            return Ok(Hit::new(entry, now));
                        }
                        Standing::Stale(if_error) => {
                            // What must be validated for each request serves no other one.
                            waits &= !entry.freshness.validate_always;
                            stale = Some((entry, if_error));
                        }
                    }
                }
                None => {}
            }
            // PHP may answer 304 to a condition of the client, which helps no other one.
            waits &= !has_condition(&parts.headers)
                || stale.as_ref().is_some_and(|(entry, _)| entry.has_validator());
            if !waits || collapsed || cache.is_passed(&key, now) {
                return Err(Onward { key, asked, stale, flight: None });
            }
            let flight = match cache.join(&key, purged) {
                Joined::Leads(guard) => {
                    return Err(Onward { key, asked, stale, flight: Some(guard) });
                }
                Joined::Waits(flight) => flight,
            };
            match flight.wait(deadline).await {
                Some(FlightEnd::Stored) => collapsed = true,
                Some(end) if flight.is_followed(end) && Instant::now() < deadline => {
                    purged = end == FlightEnd::Purged;
                }
                _ => {
                    return Err(Onward { key, asked, stale, flight: None });
                }
            }
        }
    }

    /// Asks the application, and stores its answer if it may be stored.
    async fn forward(
        mut self,
        cache: &Arc<AnswerCache>,
        (number, script, mut parts, hints): (usize, Script, Parts, Option<HintSender>),
        Onward { key, asked, stale, flight }: Onward,
    ) -> Answer<A::Body> {
        let (traced, forwarded) = (
            self.trace.is_some(),
            if stale.is_some() { Forwarded::Stale } else { Forwarded::UriMiss },
        );
        let current = Arc::clone(&self.current);
        let part = current.release.part(number);
        let kept = Kept::of(&parts, !part.sendfile.is_empty());
        let original = head_of(&parts, parts.headers.clone());
        let conditional = asked.may_fill
            && stale
                .as_ref()
                .is_some_and(|(entry, _)| make_conditional(&mut parts.headers, &entry.headers));
        let mut storing = asked.may_fill.then(|| Storing {
            cache: Arc::clone(cache),
            key,
            request: original.headers.clone(),
            authorized: asked.authorized,
            forwarded,
            started: Instant::now(),
            ticket: cache.ticket(current.number),
            flight,
            failure: Arc::default(),
        });
        let trace = self.trace.take();
        let mut context = self.context(script.clone(), &parts.headers, hints, trace);
        context.observer = storing.as_ref().map(Storing::observer);
        let request = with_context(parts, RequestBody::empty(), context);
        let mut outcome = current.applications[number].call(request).await;
        if let (Some((entry, _)), Ok(response)) = (&stale, &outcome)
            && conditional
            && response.status() == StatusCode::NOT_MODIFIED
        {
            if describes(response.headers(), &entry.headers) {
                let headers = response.headers().clone();
                drain_outcome(outcome).await;
                cache.counts.revalidated.add();
                let storing = storing.take().expect("only what may be stored is revalidated");
                let entry = storing.refresh(entry, &headers);
                let mut answer =
                    self.stored_as(cache, Hit::new(entry, Instant::now()), &original).await;
                mark(cache, &mut answer.head.headers, status_of_miss(forwarded, None, Some(304)));
                return answer;
            }
            // It is about an answer that this cache does not have: the client needs the answer itself.
            cache.remove(entry);
            let mut context = self.context(script, &original.headers, None, None);
            context.observer = storing.as_ref().map(Storing::observer);
            let mut again = head_of(&original, original.headers.clone());
            again.headers.remove(header::IF_NONE_MATCH);
            again.headers.remove(header::IF_MODIFIED_SINCE);
            outcome = current.applications[number]
                .call(with_context(again, RequestBody::empty(), context))
                .await;
        }
        if let Some((entry, true)) = &stale
            && has_failed(&outcome)
        {
            storing.iter_mut().for_each(Storing::not_stored);
            drain_outcome(outcome).await;
            cache.counts.stale.add();
            return self
                .stored(cache, Hit::new(Arc::clone(entry), Instant::now()), &original)
                .await;
        }
        match outcome {
            Ok(response) => {
                let others = storing.is_none();
                let mut answer = self.answered(response, part, &kept, storing).await;
                if others {
                    mark(cache, &mut answer.head.headers, status_of_miss(forwarded, None, None));
                }
                answer
            }
            Err(error) => {
                storing.iter_mut().for_each(Storing::not_stored);
                self.not_answered(&error, None, &kept, traced)
            }
        }
    }

    /// Revalidates a stale answer that is sent meanwhile, unless a request for it is under way. The application gets the
    /// fields of the client's request, `Authorization` too: the answer may be selected by them.
    fn revalidate(
        &self,
        cache: &Arc<AnswerCache>,
        parts: &Parts,
        (key, asked): (&Key, Asked),
        entry: &Arc<Entry>,
        number: usize,
        script: &Script,
    ) {
        let Joined::Leads(flight) = cache.join(key, false) else { return };
        let mut asks = head_of(parts, parts.headers.clone());
        asks.method = Method::GET;
        for name in
            [header::RANGE, header::IF_RANGE, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]
        {
            asks.headers.remove(name);
        }
        let storing = Storing {
            cache: Arc::clone(cache),
            key: key.clone(),
            request: asks.headers.clone(),
            authorized: asked.authorized,
            forwarded: Forwarded::Stale,
            started: Instant::now(),
            ticket: cache.ticket(self.current.number),
            flight: Some(flight),
            failure: Arc::default(),
        };
        // A rejection of one client's credentials says nothing about an answer for everyone.
        let decides = !asked.authorized || cache.selects_by(key, &header::AUTHORIZATION);
        make_conditional(&mut asks.headers, &entry.headers);
        let mut context = self.context(script.clone(), &asks.headers, None, None);
        context.observer = Some(storing.observer());
        let mut request = with_context(asks, RequestBody::empty(), context);
        request.extensions_mut().insert(CompleteBody);
        let (current, entry, owner) =
            (Arc::clone(&self.current), Arc::clone(entry), Arc::clone(cache));
        cache.spawn(async move {
            let outcome = current.applications[number].call(request).await;
            let not_modified =
                matches!(&outcome, Ok(response) if response.status() == StatusCode::NOT_MODIFIED);
            match outcome {
                Ok(response) if not_modified && describes(response.headers(), &entry.headers) => {
                    owner.counts.revalidated.add();
                    storing.refresh(&entry, response.headers());
                    drain(response.into_body()).await;
                }
                Ok(response) if not_modified || response.status().is_server_error() => {
                    drain(response.into_body()).await;
                }
                Ok(response) => {
                    let (mut head, body) = response.into_parts();
                    drop_hop_by_hop(&mut head.headers);
                    let size = body.size_hint().exact();
                    settle_length(&mut head, size);
                    let sendfile = &current.release.part(number).sendfile;
                    let file = !sendfile.is_empty() && sendfile.take(&mut head.headers).is_some();
                    let fill = storing.begin(&mut head, size, file);
                    if fill.is_none() && decides {
                        owner.remove(&entry);
                    }
                    drain(Filling::new(body, fill)).await;
                }
                Err(error) => tracing::debug!(%error, "stored answer not revalidated"),
            }
        });
    }

    /// Sends a stored answer, marked as one.
    async fn stored(&self, cache: &AnswerCache, hit: Hit, request: &Parts) -> Answer<A::Body> {
        let status = status_of_hit(hit.left, hit.collapsed);
        let mut answer = self.stored_as(cache, hit, request).await;
        mark(cache, &mut answer.head.headers, status);
        answer
    }

    /// Sends a stored answer: its part or 304 if the client asks for that, coded as the client accepts it.
    async fn stored_as(&self, cache: &AnswerCache, hit: Hit, request: &Parts) -> Answer<A::Body> {
        let entry = &hit.entry;
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = entry.status;
        head.headers = entry.headers.clone();
        head.headers.insert(header::AGE, HeaderValue::from(hit.age));
        let coding = |head: &mut http::response::Parts| {
            if !self.front.compression {
                return None;
            }
            let accepts = super::send::joined(&request.headers, &header::ACCEPT_ENCODING);
            compress::choose(accepts.as_ref(), head, Some(entry.body.len() as u64))
        };
        if answer_to(&request.headers, entry.status, &entry.headers) == Conditional::NotModified {
            // A 304 has the `Vary` and `ETag` of its 200 (RFC 9110, section 15.4.5).
            coding(&mut head);
            head.status = StatusCode::NOT_MODIFIED;
            for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::CONTENT_ENCODING] {
                head.headers.remove(name);
            }
            return Answer { head, source: Source::Empty };
        }
        let mut body = entry.body.clone();
        if entry.status == StatusCode::OK
            && request.method == Method::GET
            && let Some(range) =
                request.headers.get(header::RANGE).and_then(|range| range.to_str().ok())
            && if_range_holds(&request.headers, &entry.headers)
        {
            match parse_range(range, body.len() as u64) {
                Part::Whole => {}
                part => return ranged(head, &body, part),
            }
        }
        if let Some(coding) = coding(&mut head) {
            match coded(cache, entry, coding).await {
                Some(coded) => body = coded,
                None => return self.page(Page::busy(), &request.headers),
            }
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let source = if body.is_empty() { Source::Empty } else { Source::Whole(body) };
        Answer { head, source }
    }
}

fn has_condition(request: &HeaderMap) -> bool {
    request.contains_key(header::IF_NONE_MATCH) || request.contains_key(header::IF_MODIFIED_SINCE)
}

/// Adds `Cache-Status`, after what an earlier cache has said.
fn mark(cache: &AnswerCache, headers: &mut HeaderMap, status: HeaderValue) {
    if cache.status_header {
        headers.append(CACHE_STATUS, status);
    }
}

/// Copies the head of a request, without what belongs to its connection.
fn head_of(parts: &Parts, headers: HeaderMap) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = parts.method.clone();
    head.uri = parts.uri.clone();
    head.version = parts.version;
    head.headers = headers;
    head
}

/// Returns whether the application failed, so that a stale answer is better (RFC 5861, section 4).
fn has_failed<B>(outcome: &Result<Response<B>, DispatchError>) -> bool {
    match outcome {
        Ok(response) => matches!(response.status().as_u16(), 500 | 502 | 503 | 504),
        Err(_) => true,
    }
}

/// Reads a body that is not sent, so that PHP does not see a client that has left.
async fn drain_outcome<B: http_body::Body + Unpin>(outcome: Result<Response<B>, DispatchError>) {
    if let Ok(response) = outcome {
        drain(response.into_body()).await;
    }
}

fn ranged<B>(mut head: http::response::Parts, body: &Bytes, part: Part) -> Answer<B> {
    let size = body.len();
    let Part::Range { first, last } = part else {
        head.status = StatusCode::RANGE_NOT_SATISFIABLE;
        head.headers.remove(header::CONTENT_TYPE);
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        if let Ok(range) = HeaderValue::try_from(format!("bytes */{size}")) {
            head.headers.insert(header::CONTENT_RANGE, range);
        }
        return Answer { head, source: Source::Empty };
    };
    head.status = StatusCode::PARTIAL_CONTENT;
    if let Ok(range) = HeaderValue::try_from(format!("bytes {first}-{last}/{size}")) {
        head.headers.insert(header::CONTENT_RANGE, range);
    }
    let index = |at: u64| usize::try_from(at).unwrap_or(size);
    let bytes = body.slice(index(first)..=index(last));
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Answer { head, source: Source::Whole(bytes) }
}

/// Returns the coded body, from the cache if it has it. `None` if the coder failed.
async fn coded(cache: &AnswerCache, entry: &Arc<Entry>, coding: Coding) -> Option<Bytes> {
    if let Some(coded) = cache.coded(entry, coding.name()) {
        return Some(coded);
    }
    let body = entry.body.clone();
    let coded = if body.len() <= COMPRESSED_AT_ONCE {
        Encoder::whole(coding, &body)
    } else {
        tokio::task::spawn_blocking(move || Encoder::whole(coding, &body)).await.ok()?
    };
    let coded = coded.ok()?;
    cache.keep_coded(entry, coding.name(), coded.clone());
    Some(coded)
}
