//! An answer on its way to a client, and into the store beside it.
//!
//! Invariants
//! - The client gets each byte as soon as without the cache: pieces are collected by reference.
//! - A stored answer owns copies of its fields and its body. It refers to no buffer that the store does not weigh.
//! - Only a complete body is stored; with a `Content-Length`, only one of that length. One that a fatal error of PHP has cut
//!   is not complete.
//! - A body that grows above the bound goes on to the client and is no longer collected.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use answer_cache::{Answer, Forwarded, Key, NotStored, Stored, status_of_miss, store, tags};
use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use pool::ResponseObserver;
use tokio::time::Instant;

use super::flights::{FlightEnd, FlightGuard};
use super::purges::Ticket;
use super::store::{Entry, Slot, Variants};
use super::{AnswerCache, Count, passed_at};
use crate::date;

/// The name of the field of RFC 9211.
pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// A request whose answer may be stored.
pub(crate) struct Storing {
    pub(crate) cache: Arc<AnswerCache>,
    pub(crate) key: Key,
    /// The fields of the client's request.
    pub(crate) request: HeaderMap,
    pub(crate) authorized: bool,
    pub(crate) forwarded: Forwarded,
    /// The time at which it went to the application.
    pub(crate) started: Instant,
    pub(crate) ticket: Ticket,
    pub(crate) flight: Option<FlightGuard>,
    pub(crate) failure: Arc<Failure>,
}

/// Whether a fatal error has ended an answer early. Known before the end of its body.
#[derive(Debug, Default)]
pub(crate) struct Failure(AtomicBool);

impl ResponseObserver for Failure {
    fn head(&self, _status: StatusCode, _headers: &HeaderMap) {}

    fn failed(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Storing {
    /// Returns the observer for the request.
    pub(crate) fn observer(&self) -> Arc<dyn ResponseObserver> {
        Arc::<Failure>::clone(&self.failure)
    }

    /// Lets those that wait for the answer go on: it is not stored.
    pub(crate) fn not_stored(&mut self) {
        if let Some(flight) = self.flight.take() {
            flight.end(FlightEnd::NotStored);
        }
    }

    /// Decides about the answer with this head, and adds `Cache-Status` to it. `size` is that of the body, if known;
    /// `file` says that the front sends a file in its place.
    pub(crate) fn begin(self, head: &mut Parts, size: Option<u64>, file: bool) -> Option<Fill> {
        let (cache, forwarded) = (Arc::clone(&self.cache), self.forwarded);
        let (fill, outcome) = match self.check(head, size, file) {
            Ok(fill) => {
                let left = fill
                    .stored
                    .freshness
                    .lifetime
                    .saturating_sub(fill.stored.freshness.age(Duration::ZERO));
                (Some(fill), Ok(left))
            }
            Err(reason) => (None, Err(reason)),
        };
        if cache.status_header {
            head.headers.append(CACHE_STATUS, status_of_miss(forwarded, Some(outcome), None));
        }
        fill
    }

    fn check(mut self, head: &Parts, size: Option<u64>, file: bool) -> Result<Fill, NotStored> {
        let decided = self.decide(head.status, &head.headers, size, file);
        match decided {
            Ok((stored, tags)) => {
                let flight = self.flight.take();
                let expected = length(&head.headers);
                let headers = stored_fields(&head.headers, &stored.without);
                let since = Instant::now();
                Ok(Fill {
                    storing: self,
                    flight,
                    stored,
                    tags,
                    status: head.status,
                    headers,
                    since,
                    expected,
                    pieces: Vec::new(),
                    size: 0,
                })
            }
            Err(reason) => {
                self.not_stored();
                Err(reason)
            }
        }
    }

    fn decide(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        size: Option<u64>,
        file: bool,
    ) -> Result<(Stored, Box<[u64]>), NotStored> {
        if file {
            return Err(NotStored::File);
        }
        let stored = store(&Answer {
            status,
            headers,
            authorized: self.authorized,
            received: SystemTime::now(),
            delay: self.started.elapsed(),
        })?;
        let tags = tags(headers).map_err(|_many| NotStored::Tags)?;
        let tags = tags.into_iter().map(|tag| self.cache.purges.tag(tag)).collect();
        let largest = self.cache.largest;
        if size.or_else(|| length(headers)).is_some_and(|size| size > largest) {
            return Err(NotStored::Size);
        }
        Ok((stored, tags))
    }

    /// Stores a stored answer again, with the fields of the 304 that has confirmed it. Returns what to send; if that must
    /// not be stored, it is removed.
    pub(crate) fn refresh(mut self, entry: &Entry, not_modified: &HeaderMap) -> Arc<Entry> {
        let mut headers = entry.headers.clone();
        answer_cache::update(&mut headers, not_modified);
        if !not_modified.contains_key(header::DATE) {
            headers.insert(header::DATE, date::now());
        }
        let flight = self.flight.take();
        let decided = self.decide(entry.status, &headers, Some(entry.body.len() as u64), false);
        let since = Instant::now();
        let (stored, tags) = match decided {
            Ok((stored, tags)) => (Some(stored), tags),
            Err(_reason) => (None, Box::default()),
        };
        let without = stored.as_ref().map(|stored| stored.without.clone()).unwrap_or_default();
        let headers = stored_fields(&headers, &without);
        let freshness = stored
            .as_ref()
            .map_or_else(|| entry.freshness.clone(), |stored| stored.freshness.clone());
        let mut fresh = Entry {
            status: entry.status,
            headers,
            body: entry.body.clone(),
            freshness,
            since,
            tags,
            id: self.cache.store.number(),
            key: entry.key.clone(),
            release: self.ticket.release,
        };
        let mut end = FlightEnd::NotStored;
        let sent = if let Some(stored) = stored {
            fresh.key = self.place(&stored);
            let fresh = Arc::new(fresh);
            end = self.keep(&fresh);
            fresh
        } else {
            self.cache.remove(entry);
            Arc::new(fresh)
        };
        if let Some(flight) = flight {
            flight.end(end);
        }
        sent
    }

    /// Returns the key at which an answer is stored; makes the rule by which it is found.
    fn place(&self, stored: &Stored) -> Box<[u8]> {
        let map = &self.cache.store;
        let base = self.cache.base_or_new(&self.key, self.ticket.release);
        let key = &*base;
        let known = self.cache.variants(key);
        let variants = match (known, &stored.vary) {
            (None, None) => return key.into(),
            (Some(known), None) => known,
            (Some(known), Some(rule)) if known.rule.covers(rule) => known,
            (known, Some(rule)) => {
                let joined = known.and_then(|known| known.rule.join(rule).ok());
                let rule = joined.unwrap_or_else(|| rule.clone());
                let variants =
                    Arc::new(Variants { rule, id: map.number(), release: self.ticket.release });
                map.insert(key, &Slot::Rule(Arc::clone(&variants)));
                variants
            }
        };
        variants.select(key, &self.request)
    }

    /// Stores an answer, and returns what its flight ends with.
    fn keep(&self, entry: &Arc<Entry>) -> FlightEnd {
        let Self { cache, key, ticket, .. } = self;
        let about = (key.as_bytes(), &*entry.tags);
        let kept = cache.purges.insert(*ticket, about, || {
            // An older one must not be found later.
            cache.disk().inspect(|disk| disk.remove(&entry.key));
            cache.store.insert(&entry.key, &Slot::Entry(Arc::clone(entry)));
        });
        if kept {
            cache.store.remove(&passed_at(key.as_bytes()));
            Count::add(&cache.counts.stored);
            FlightEnd::Stored
        } else if cache.purges.is_newest(*ticket) {
            // It was purged meanwhile: one of those that wait asks again, and its answer may be stored.
            FlightEnd::Purged
        } else {
            FlightEnd::NotStored
        }
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the fields that are stored: `Age` is counted on, and `Cache-Status` belongs to one answer.
fn stored_fields(headers: &HeaderMap, without: &[HeaderName]) -> HeaderMap {
    let mut headers = headers.clone();
    for name in without.iter().chain(&[header::AGE, header::SET_COOKIE, CACHE_STATUS]) {
        headers.remove(name);
    }
    headers.entry(header::DATE).or_insert_with(date::now);
    // Copied: values are parts of the worker's read buffer, which is up to 256 KiB, and would keep it alive.
    for value in headers.values_mut() {
        *value = HeaderValue::from_bytes(value.as_bytes()).expect("these bytes were a value");
    }
    headers
}

/// An answer that is being collected. Dropping it lets those that wait for it try themselves.
pub(crate) struct Fill {
    storing: Storing,
    flight: Option<FlightGuard>,
    stored: Stored,
    tags: Box<[u64]>,
    status: StatusCode,
    headers: HeaderMap,
    since: Instant,
    /// `Content-Length`.
    expected: Option<u64>,
    pieces: Vec<Bytes>,
    size: u64,
}

impl Fill {
    /// Takes a piece. Returns false if the body is too large.
    fn append(&mut self, piece: &Bytes) -> bool {
        self.size += piece.len() as u64;
        let fits = self.size <= self.storing.cache.largest;
        if fits {
            self.pieces.push(piece.clone());
        }
        fits
    }

    fn is_complete(&self) -> bool {
        self.expected == Some(self.size)
    }

    fn not_stored(self) {
        if let Some(flight) = self.flight {
            flight.end(FlightEnd::NotStored);
        }
    }

    /// Stores the answer: its body has ended. One that a fatal error has cut is not stored.
    fn finish(self) {
        if self.storing.failure.0.load(Ordering::Relaxed) {
            return self.not_stored();
        }
        let Self {
            storing,
            flight,
            stored,
            tags,
            status,
            mut headers,
            since,
            expected,
            pieces,
            size,
        } = self;
        if expected.is_some_and(|expected| expected != size) {
            return;
        }
        // Pieces are parts of larger buffers: a copy keeps only what is needed.
        let mut body = BytesMut::with_capacity(usize::try_from(size).unwrap_or_default());
        for piece in &pieces {
            body.extend_from_slice(piece);
        }
        if status != StatusCode::NO_CONTENT {
            headers.insert(header::CONTENT_LENGTH, size.into());
        }
        let entry = Arc::new(Entry {
            status,
            headers,
            body: body.freeze(),
            freshness: stored.freshness.clone(),
            since,
            tags,
            id: storing.cache.store.number(),
            key: storing.place(&stored),
            release: storing.ticket.release,
        });
        let end = storing.keep(&entry);
        if let Some(flight) = flight {
            flight.end(end);
        }
    }
}

/// A body of the application, and the answer that is collected from it.
pub(crate) struct Filling<B> {
    body: B,
    fill: Option<Box<Fill>>,
}

impl<B: Body<Data = Bytes> + Unpin> Filling<B> {
    pub(crate) fn new(body: B, fill: Option<Fill>) -> Self {
        let mut filling = Self { body, fill: fill.map(Box::new) };
        // Nothing polls a body that has ended already.
        if filling.body.is_end_stream()
            && let Some(fill) = filling.fill.take()
        {
            fill.finish();
        }
        filling
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Filling<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(mut fill) = self.fill.take() {
            match &next {
                Some(Ok(frame)) => {
                    let fits = frame.data_ref().is_none_or(|piece| fill.append(piece));
                    if !fits {
                        fill.not_stored();
                    } else if fill.is_complete() || self.body.is_end_stream() {
                        fill.finish();
                    } else {
                        self.fill = Some(fill);
                    }
                }
                // It was cut: dropped, and not stored.
                Some(Err(_)) => {}
                None => fill.finish(),
            }
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_fields_keep_no_buffer_of_the_worker_alive() {
        let frame = Bytes::from(b"\"a\", <b>".to_vec());
        let mut headers = HeaderMap::new();
        for (name, part) in [(header::ETAG, 0..3), (header::LINK, 5..8)] {
            let value = HeaderValue::from_maybe_shared(frame.slice(part)).unwrap();
            headers.append(name, value);
        }
        let stored = stored_fields(&headers, &[]);
        assert_eq!(
            (&stored[header::ETAG], &stored[header::LINK]),
            (&headers["etag"], &headers["link"])
        );
        drop(headers);
        assert!(frame.is_unique(), "a stored field refers to the frame");
    }
}
