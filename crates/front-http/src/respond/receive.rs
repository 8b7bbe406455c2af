//! Requests whose body is received before the application gets them.
//!
//! Invariants
//! - While the client sends, its request holds no worker and no release.
//! - A body that arrived with its head costs no copy, no task and no timer.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use http::HeaderMap;
use http::request::Parts;
use pool::{HintSender, Script};

use super::{Answer, Exchange, Limited};
use crate::answers::Page;
use crate::application::Application;
use crate::request_body::{Arrived, BodyError, RequestBody};
use crate::{spool, trace};

/// Limits of a request body that is received before its request is answered; its size is bounded by
/// [`crate::Options::max_body`].
const BODY_LIMITS: spool::Limits = spool::Limits { memory: 256 << 10, file: u64::MAX };

impl<A: Application> Exchange<'_, A> {
    /// Receives the body, then answers the request. In the meantime no worker and no release is held; a new release
    /// may take over and route the request.
    pub(super) async fn receive(
        mut self,
        number: usize,
        script: Script,
        parts: Parts,
        (mut body, verdict): Limited,
        hints: Option<HintSender>,
    ) -> Answer<A::Body> {
        let arrived = std::future::poll_fn(|cx| Poll::Ready(body.take_arrived(cx))).await;
        let begun = match arrived {
            Ok(Arrived::Whole) => {
                return self.dispatch(number, script, parts, (body, verdict), hints).await;
            }
            Ok(Arrived::Part(begun)) => begun,
            Err(error) => return self.not_received(&error, &parts.headers),
        };
        let routed_by = Arc::downgrade(&self.current);
        drop(self.current);
        let received = body.receive(begun, &self.front.spools, BODY_LIMITS).await;
        self.current = self.front.switch.current();
        if let Err(error) = received {
            return self.not_received(&error, &parts.headers);
        }
        if Weak::as_ptr(&routed_by) == Arc::as_ptr(&self.current) {
            return self.dispatch(number, script, parts, (body, verdict), hints).await;
        }
        self.chosen = self.front.choose(&self.current, &self.forwarded, &parts);
        self.route_again(parts, body, hints).await
    }

    /// Calls [`Self::route`] through a boxed future, which breaks the recursion between the two.
    fn route_again<'a>(
        self,
        parts: Parts,
        body: RequestBody,
        hints: Option<HintSender>,
    ) -> Pin<Box<dyn Future<Output = Answer<A::Body>> + Send + 'a>>
    where
        Self: 'a,
    {
        Box::pin(self.route(parts, body, hints))
    }

    fn not_received(&self, error: &BodyError, headers: &HeaderMap) -> Answer<A::Body> {
        let id = &*self.id.0;
        match error {
            BodyError::NotKept(cause) => {
                tracing::error!(request.id = id, error = %cause, "request body not kept: no room in memory or for a temporary file");
            }
            error => tracing::debug!(request.id = id, %error, "request body not received"),
        }
        let mut answer = self.page(Page::body_failed(error.status()), headers);
        if self.trace.is_some() {
            answer.head.extensions.insert(trace::FailureReason(error.to_string()));
        }
        answer
    }
}
