//! The tracer: creates spans, and queues them for the exporter.
//!
//! Invariants
//! - The queue holds [`QUEUE`] spans: one more is dropped and counted, and no caller waits.
//! - Ids are unique: a keyed hash of a counter, and of a salt for processes that are copies of each other.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::{Notify, watch};

use crate::span::Finished;
use crate::{Context, Kind, Sampler, Span, SpanId, TraceId};

/// Maximum number of waiting spans.
const QUEUE: usize = 8192;
/// Number of spans sent at once.
const BATCH: usize = 512;

/// Creates spans. A clone is another handle of the same tracer.
#[derive(Clone, Debug)]
pub struct Tracer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sampler: Sampler,
    keys: RandomState,
    salt: AtomicU64,
    count: AtomicU64,
    queue: Mutex<Queue>,
    /// There is a batch, or a flush was requested.
    wanted: Notify,
    settled: watch::Sender<Settled>,
    dropped: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    spans: Vec<Finished>,
    /// Number of spans ever queued.
    pushed: u64,
    /// A flush was requested.
    flush: bool,
}

/// State for waiting flushes.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    /// Number of queued spans that were sent or dropped.
    number: u64,
    /// The collector accepts nothing at the moment, so there is nothing to wait for.
    failing: bool,
}

/// Counters of spans.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Spans sent to a collector.
    pub sent: u64,
    /// Spans dropped because the queue was full.
    pub dropped: u64,
    /// Spans that no collector accepted.
    pub lost: u64,
}

/// A span that has begun: its context, and its record if it is sampled.
#[derive(Debug)]
pub struct Begun {
    /// Context for other processes.
    pub context: Context,
    /// The recorded span.
    pub span: Option<Span>,
}

/// A parent for spans of other modules. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Carried {
    context: Context,
    /// The tracer, if it is sampled.
    tracer: Option<Tracer>,
}

impl Carried {
    pub(crate) fn sampled(tracer: Tracer, context: Context) -> Self {
        Self { context, tracer: Some(tracer) }
    }

    /// Returns its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Begins a span inside it, if it is sampled.
    pub fn begin(&self, name: &'static str) -> Option<Span> {
        let tracer = self.tracer.as_ref()?;
        let context = Context { span: tracer.span_id(), ..self.context };
        let name = Cow::Borrowed(name);
        Some(Span::begin(tracer.clone(), context, Some(self.context.span), Kind::Internal, name))
    }
}

impl Begun {
    /// Returns the parent for spans below it.
    pub fn carried(&self) -> Carried {
        match &self.span {
            Some(span) => span.carried(),
            None => Carried { context: self.context, tracer: None },
        }
    }
}

impl Tracer {
    /// Creates a tracer; `salt` is random, see [`Tracer::reseed`].
    pub fn new(sampler: Sampler, salt: u64) -> Self {
        Self(Arc::new(Inner {
            sampler,
            keys: RandomState::new(),
            salt: AtomicU64::new(salt),
            count: AtomicU64::new(0),
            queue: Mutex::default(),
            wanted: Notify::new(),
            settled: watch::Sender::default(),
            dropped: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }))
    }

    /// Sets a new salt after this process was copied with its memory, so that ids differ from those of other copies.
    pub fn reseed(&self, salt: u64) {
        self.0.salt.store(salt, Relaxed);
    }

    fn number(&self) -> u64 {
        let inner = &*self.0;
        loop {
            let count = inner.count.fetch_add(1, Relaxed);
            let number = inner.keys.hash_one((count, inner.salt.load(Relaxed)));
            if number != 0 {
                return number;
            }
        }
    }

    fn span_id(&self) -> SpanId {
        SpanId(self.number().to_be_bytes())
    }

    fn trace_id(&self) -> TraceId {
        let id = u128::from(self.number()) << 64 | u128::from(self.number());
        TraceId(id.to_be_bytes())
    }

    /// Begins a span with a remote parent, or without one.
    pub fn begin(
        &self,
        parent: Option<Context>,
        kind: Kind,
        name: impl FnOnce() -> Cow<'static, str>,
    ) -> Begun {
        let trace = parent.map_or_else(|| self.trace_id(), |parent| parent.trace);
        self.begin_in(trace, parent, kind, name)
    }

    /// Begins a span within a trace whose id is given.
    pub fn begin_in(
        &self,
        trace: TraceId,
        parent: Option<Context>,
        kind: Kind,
        name: impl FnOnce() -> Cow<'static, str>,
    ) -> Begun {
        let sampled = self.0.sampler.samples(trace, parent.as_ref());
        let context = Context { trace, span: self.span_id(), flags: u8::from(sampled) };
        let parent = parent.map(|parent| parent.span);
        let span = sampled.then(|| Span::begin(self.clone(), context, parent, kind, name()));
        Begun { context, span }
    }

    /// Begins the span of a received request, below the parent in its head. Without a valid parent the head's
    /// `tracestate` is dropped (W3C Trace Context, 3.3.1.2).
    pub fn begin_server(
        &self,
        headers: &mut HeaderMap,
        name: impl FnOnce() -> Cow<'static, str>,
    ) -> Begun {
        let parent = Context::of(headers);
        if parent.is_none() && headers.contains_key("tracestate") {
            headers.remove("tracestate");
        }
        let mut begun = self.begin(parent, Kind::Server, name);
        if let Some(span) = &mut begun.span {
            span.set_state(headers.get("tracestate").cloned());
        }
        begun
    }

    pub(crate) fn push(&self, span: Finished) {
        let mut queue = self.0.queue.lock().expect("no holder panics");
        if queue.spans.len() >= QUEUE {
            self.0.dropped.fetch_add(1, Relaxed);
            return;
        }
        queue.spans.push(span);
        queue.pushed += 1;
        let wake = queue.spans.len() == BATCH;
        drop(queue);
        if wake {
            self.0.wanted.notify_one();
        }
    }

    /// Waits until there is a batch, or a flush was requested. Cancel safe.
    pub async fn wanted(&self) {
        loop {
            let wanted = self.0.wanted.notified();
            {
                let queue = self.0.queue.lock().expect("no holder panics");
                if queue.flush || queue.spans.len() >= BATCH {
                    return;
                }
            }
            wanted.await;
        }
    }

    /// Removes the oldest spans, as many as are sent at once. The caller must [settle](Tracer::settle) them.
    pub fn take(&self) -> Vec<Finished> {
        let mut queue = self.0.queue.lock().expect("no holder panics");
        if queue.spans.len() <= BATCH {
            queue.flush = false;
            return std::mem::take(&mut queue.spans);
        }
        queue.spans.drain(..BATCH).collect()
    }

    /// Reports that this many of the removed spans were sent, or dropped.
    pub fn settle(&self, number: usize, sent: bool) {
        let counter = if sent { &self.0.sent } else { &self.0.lost };
        counter.fetch_add(number as u64, Relaxed);
        self.0.settled.send_modify(|settled| settled.number += number as u64);
    }

    /// Sets whether the collector accepts nothing at the moment.
    pub fn set_failing(&self, failing: bool) {
        self.0.settled.send_modify(|settled| settled.failing = failing);
    }

    /// Waits until all spans that have ended by now were sent or dropped, for `patience` at most, and not at all
    /// while the collector is failing. Cancel safe.
    pub async fn flush(&self, patience: Duration) {
        let target = {
            let mut queue = self.0.queue.lock().expect("no holder panics");
            queue.flush = !queue.spans.is_empty();
            queue.pushed
        };
        self.0.wanted.notify_one();
        let mut settled = self.0.settled.subscribe();
        // It cannot fail, because we hold the sender.
        let done = settled.wait_for(|settled| settled.failing || settled.number >= target);
        if tokio::time::timeout(patience, done).await.is_err() {
            // The next flush does not wait as long again.
            self.set_failing(true);
        }
    }

    /// Returns the number of waiting spans.
    pub fn waiting(&self) -> usize {
        self.0.queue.lock().expect("no holder panics").spans.len()
    }

    /// Returns the number of spans that wait or are being sent.
    pub fn unsettled(&self) -> u64 {
        let pushed = self.0.queue.lock().expect("no holder panics").pushed;
        pushed.saturating_sub(self.0.settled.borrow().number)
    }

    /// Returns the counters of the others.
    pub fn counts(&self) -> Counts {
        Counts {
            sent: self.0.sent.load(Relaxed),
            dropped: self.0.dropped.load(Relaxed),
            lost: self.0.lost.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::span::Value;

    fn tracer(share: f64) -> Tracer {
        Tracer::new(Sampler::new(share, true).unwrap(), 7)
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    fn server(tracer: &Tracer, parent: Option<Context>) -> Begun {
        tracer.begin(parent, Kind::Server, || "GET".into())
    }

    #[test]
    fn a_child_has_its_parents_trace_and_sampling() {
        let tracer = tracer(1.0);
        let root = server(&tracer, None);
        let child = server(&tracer, Some(root.context));
        assert_eq!(child.context.trace, root.context.trace);
        assert_ne!(child.context.span, root.context.span);
        let inside = root.carried().begin("inside").unwrap();
        assert_eq!(inside.context().trace, root.context.trace);
        drop((inside, child, root));
        let spans = tracer.take();
        assert_eq!(spans.len(), 3);
        assert_eq!(spans[0].parent, spans[1].parent);
        assert_eq!(spans[2].parent, None);
        let unsampled = Context { flags: 0, ..spans[2].context };
        let begun = server(&tracer, Some(unsampled));
        assert!(begun.span.is_none() && begun.carried().begin("inside").is_none());
        assert_eq!(tracer.waiting(), 0);
    }

    #[test]
    fn ids_differ_also_in_copies_of_one_process() {
        let tracer = tracer(0.0);
        let mut seen = HashSet::new();
        for salt in 0..4 {
            tracer.reseed(salt);
            tracer.0.count.store(0, Relaxed);
            for _ in 0..1000 {
                assert!(seen.insert(tracer.trace_id()));
            }
        }
    }

    #[test]
    fn a_tracestate_without_a_parent_is_dropped() {
        let tracer = tracer(1.0);
        let mut headers = HeaderMap::new();
        headers.insert("tracestate", "a=1".parse().unwrap());
        drop(tracer.begin_server(&mut headers, || "GET".into()));
        assert!(headers.is_empty());
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        headers.insert("traceparent", parent.parse().unwrap());
        headers.insert("tracestate", "a=1".parse().unwrap());
        drop(tracer.begin_server(&mut headers, || "GET".into()));
        let spans = tracer.take();
        assert_eq!(spans[0].state, None);
        assert_eq!(spans[1].state.as_ref().unwrap(), "a=1");
    }

    #[test]
    fn client_supplied_span_values_are_bounded() {
        let tracer = tracer(1.0);
        let mut begun = server(&tracer, None);
        let span = begun.span.as_mut().unwrap();
        span.set("user_agent.original", "ä".repeat(40_000));
        span.set_state(Some(format!("a={}", "b".repeat(600)).parse().unwrap()));
        span.fail("500", "x".repeat(40_000));
        drop(begun);
        let span = &tracer.take()[0];
        let (_, Value::Text(agent)) = &span.attributes[0] else { panic!("{span:?}") };
        assert_eq!(**agent, "ä".repeat(512));
        assert_eq!(span.error.as_ref().unwrap().len(), 1024);
        assert_eq!(span.state, None);
    }

    #[test]
    fn a_full_queue_drops_and_counts_new_spans() {
        let tracer = tracer(1.0);
        for _ in 0..QUEUE + 3 {
            drop(server(&tracer, None));
        }
        assert_eq!((tracer.waiting(), tracer.counts().dropped), (QUEUE, 3));
        assert_eq!(tracer.take().len(), BATCH);
        assert_eq!(tracer.waiting(), QUEUE - BATCH);
    }

    #[tokio::test]
    async fn a_flush_waits_only_for_spans_that_had_ended() {
        let tracer = tracer(1.0);
        tracer.flush(PATIENCE).await;
        drop(server(&tracer, None));
        let sending = async {
            tracer.wanted().await;
            let taken = tracer.take();
            assert_eq!(taken.len(), 1);
            drop(server(&tracer, None));
            tracer.settle(taken.len(), true);
        };
        tokio::join!(tracer.flush(PATIENCE), sending);
        assert_eq!((tracer.waiting(), tracer.unsettled(), tracer.counts().sent), (1, 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_is_patient_once_and_not_while_nothing_is_taken() {
        let tracer = tracer(1.0);
        drop(server(&tracer, None));
        let began = tokio::time::Instant::now();
        tracer.flush(PATIENCE).await;
        assert_eq!(began.elapsed(), PATIENCE);
        tracer.flush(PATIENCE).await;
        assert_eq!(began.elapsed(), PATIENCE);
        tracer.set_failing(false);
        tracer.flush(PATIENCE).await;
        assert_eq!(began.elapsed(), 2 * PATIENCE);
    }
}
