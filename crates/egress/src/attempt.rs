//! One call on its way: it waits for a connection, is sent, and is repeated if that is safe.
//!
//! Invariants
//! - What docs/internals/egress.md says under "Never twice".
//! - Futures that few calls need are boxed: a future is as large as its largest part, and is moved.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::connect::Birth;
use crate::http1::{Begun, Broken};
use crate::origin::{Lease, Need, Origin};
use crate::repeat::{Progress, Tries, idempotent};
use crate::request::Head;
use crate::scope::Members;
use crate::upload::{Upload, Watch, Whole};
use crate::{Answer, AnswerBody, CallError, Fate, Interim, Limits, Scope, Sight, Tap, Timing, tap};

/// A call that is prepared: its origin is found, and its request was checked.
#[derive(Debug)]
pub struct Ready {
    pub(crate) origin: Arc<Origin>,
    pub(crate) scoped: Option<Scoped>,
    pub(crate) head: Head,
    pub(crate) body: Option<Whole>,
    pub(crate) limits: Limits,
    pub(crate) begin: Instant,
}

/// The scope of a call.
#[derive(Debug)]
pub(crate) struct Scoped {
    members: Arc<Members>,
    scope: Scope,
}

impl Scoped {
    pub(crate) fn new(members: Arc<Members>, scope: Scope) -> Self {
        Self { members, scope }
    }
}

/// Waits until the call's scope allows a connection, then for one.
async fn acquire(
    origin: &Arc<Origin>,
    Scoped { members, scope }: &Scoped,
    need: Need,
) -> Result<Lease, CallError> {
    let place = Arc::as_ptr(origin).addr();
    let mut alone = false;
    loop {
        let entered = members.enter(place, scope, origin.shares(), alone);
        let entered = origin.closing().run_until_cancelled(entered).await;
        let ticket = entered.ok_or_else(CallError::closing)?;
        let need = Need { most: scope.shared(), now: Instant::now(), ..need };
        let mut lease = origin.acquire(need).await?;
        if let Some(ticket) = ticket.over(matches!(lease, Lease::Http2(..))) {
            lease.hold(ticket);
            return Ok(lease);
        }
        alone = true;
    }
}

impl Ready {
    /// Makes the call. Interim responses (100, 103) are passed to `interim` as they arrive.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call: its HTTP/2 stream is reset, its HTTP/1.1 connection closed.
    pub async fn run(
        &mut self,
        tap: Option<&dyn Tap>,
        interim: &mut (dyn FnMut(Interim<'_>) + Send),
    ) -> Result<Answer, CallError> {
        let heads = tap.filter(|tap| tap.heads());
        let mut interim = |seen: Interim<'_>| {
            if let Some(tap) = heads {
                tap::see_answer(tap, seen);
            }
            interim(seen);
        };
        // Awaited where it is made: it is large, and would be moved.
        let result = self.attempt(tap, &mut interim).await;
        self.origin.counters.ended(&result, self.origin.key().scheme);
        result
    }

    /// Makes the call, and repeats it if that is safe.
    async fn attempt(
        &mut self,
        tap: Option<&dyn Tap>,
        interim: &mut (dyn FnMut(Interim<'_>) + Send),
    ) -> Result<Answer, CallError> {
        let mut tries = Tries::default();
        let bodiless = self.body.is_none();
        let (mut begun, mut repeated) = (false, 0_u8);
        loop {
            // After a failed attempt, only connections that the kernel reports as open are used.
            let repeatable = !tries.sent() && idempotent(&self.head.method);
            if let Some(tap) = tap {
                tap.see(Sight::Waiting);
            }
            let now = if repeated == 0 { self.begin } else { Instant::now() };
            let need = Need { now, limits: self.limits, repeatable, most: usize::MAX };
            let lease = match &self.scoped {
                None => self.origin.acquire(need).await,
                Some(scoped) => Box::pin(acquire(&self.origin, scoped, need)).await,
            };
            let lease = lease.map_err(|error| error.final_if(begun || tries.sent()))?;
            let (kept, birth, secured) = (lease.kept(), lease.birth(), lease.secured());
            if let Some(tap) = tap {
                let address = birth.and_then(|birth| birth.address);
                let http2 = matches!(lease, Lease::Http2(..));
                tap.see(Sight::Connection { address, kept, http2, secured: secured.as_deref() });
            }
            let heads = tap.filter(|tap| tap.heads());
            // A new connection of HTTP/1.1 that breaks is the origin's fault.
            let again = kept || matches!(lease, Lease::Http2(..));
            let (upload, watch) = match self.body.take() {
                None => (Upload::Empty, None),
                Some(body) => {
                    let (upload, watch) = Upload::new(body, self.head.expectant());
                    (upload, Some(watch))
                }
            };
            let sent =
                send(&self.origin, lease, &self.head, upload, watch.as_ref(), heads, interim).await;
            let Broken { error, progress } = match sent {
                Ok((response, written)) => {
                    let timing = timing(self.begin, kept, response.version(), birth);
                    let timing = Timing { repeated, ..timing };
                    if let Some(tap) = heads {
                        tap::see_answer(
                            tap,
                            (response.status(), response.headers(), written.as_deref()),
                        );
                    }
                    return Ok(Answer { response, timing, secured, written });
                }
                // Another try cannot make an invalid request valid.
                Err(Unsent::Refused(error)) => return Err(error.final_if(begun || tries.sent())),
                Err(Unsent::Broken(broken)) => broken,
            };
            if watch.as_ref().is_some_and(|watch| watch.broken()) {
                return Err(CallError::abandoned());
            }
            begun |= watch.as_ref().is_some_and(|watch| watch.begun());
            self.body = watch.and_then(|watch| watch.take());
            let intact = again && (bodiless || self.body.is_some());
            if !tries.again(progress, &self.head.method, kept, intact) {
                let fate = if begun || tries.sent() { Fate::Failed } else { Fate::Declined };
                let address = birth.and_then(|birth| birth.address);
                return Err(CallError { fate, address, kept, ..error });
            }
            self.origin.counters.repeated();
            repeated = repeated.saturating_add(1);
            if progress == Progress::WantsHttp1 {
                self.origin.insist_on_http1();
            }
        }
    }
}

/// Why a request got no answer on a connection.
enum Unsent {
    /// The request cannot be sent by this version of HTTP.
    Refused(CallError),
    Broken(Broken),
}

/// Sends a request on a connection. Over HTTP/1.1 the response comes with its head as the origin wrote it.
async fn send(
    origin: &Arc<Origin>,
    lease: Lease,
    head: &Head,
    upload: Upload,
    watch: Option<&Arc<Watch>>,
    tap: Option<&dyn Tap>,
    interim: &mut (dyn FnMut(Interim<'_>) + Send),
) -> Result<(http::Response<AnswerBody>, Option<Bytes>), Unsent> {
    match lease {
        Lease::Http1(mut lease) => {
            lease.put(head, origin.key(), &upload).map_err(Unsent::Refused)?;
            if let Some(tap) = tap {
                tap.see(Sight::Request(lease.head()));
            }
            let begun = lease.take().exchange(&head.method, upload, watch, interim).await;
            let Begun { response, written, behind } = begun.map_err(Unsent::Broken)?;
            Ok((response.map(|body| AnswerBody::http1(body, behind)), Some(written)))
        }
        Lease::Http2(connection, guard) => {
            let request = head.http2(origin.key().scheme, &upload).map_err(Unsent::Refused)?;
            if let Some(tap) = tap {
                tap.see(Sight::Request(&tap::request_head(&request)));
            }
            // Boxed, because its future is large, and that of HTTP/1.1 would be as large and be moved.
            let sent = Box::pin(connection.exchange(guard, request, upload, watch, interim)).await;
            Ok((sent.map_err(Unsent::Broken)?.map(AnswerBody::new), None))
        }
    }
}

fn timing(begin: Instant, reused: bool, version: http::Version, birth: Option<Birth>) -> Timing {
    let since = |at: Instant| at.saturating_duration_since(begin);
    Timing {
        resolved: birth.map(|birth| since(birth.resolved)).unwrap_or_default(),
        connected: birth.map(|birth| since(birth.connected)).unwrap_or_default(),
        secured: birth.and_then(|birth| birth.secured).map(since).unwrap_or_default(),
        first_byte: begin.elapsed(),
        reused,
        repeated: 0,
        http2: version == http::Version::HTTP_2,
        address: birth.and_then(|birth| birth.address),
    }
}
