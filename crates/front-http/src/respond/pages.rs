//! The front's own pages: for files that cannot be sent, and for requests that the application did not answer.

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use pool::DispatchError;

use super::send::Kept;
use super::{Answer, Exchange, is_read};
use crate::answers::Page;
use crate::application::Application;
use crate::files::{FileBody, Refused};
use crate::metrics::ClientLimit;
use crate::request_body::{BodyError, Verdict};
use crate::trace;

impl<A: Application> Exchange<'_, A> {
    /// Returns a page of the front itself.
    pub(super) fn page(&self, page: Page, headers: &HeaderMap) -> Answer<A::Body> {
        // A 408 of the application is not a page of the front: this one is for a slow body.
        if page.status == StatusCode::REQUEST_TIMEOUT {
            self.front.metrics.limited(ClientLimit::SlowBody);
        }
        Answer::whole(page.render(headers, &self.id.0))
    }

    /// Returns the page for a request to which the application gave no response.
    pub(super) fn not_answered(
        &self,
        error: &DispatchError,
        verdict: Option<Verdict>,
        kept: &Kept,
        traced: bool,
    ) -> Answer<A::Body> {
        let page = self.failed(error, verdict);
        let mut answer = self.page(page, &kept.accept_fields());
        if traced {
            answer.head.extensions.insert(trace::FailureReason(error.to_string()));
        }
        answer
    }

    /// Returns the page for an error of the pool, or of reading the body.
    fn failed(&self, error: &DispatchError, verdict: Option<Verdict>) -> Page {
        if let DispatchError::RequestBody(cause) = error {
            let status = cause
                .downcast_ref::<BodyError>()
                .map(BodyError::status)
                .or_else(|| verdict.and_then(|verdict| verdict.failure()))
                .unwrap_or(StatusCode::BAD_REQUEST);
            return Page::body_failed(status);
        }
        tracing::debug!(error = %error, request.id = &*self.id.0, "request got no answer from PHP");
        Page::dispatch_failed(error)
    }

    /// Returns the response, unless the server needs its file's descriptor itself.
    pub(super) fn spared(
        &self,
        response: Response<FileBody>,
    ) -> Result<Response<FileBody>, Refused> {
        let descriptor = response.body().descriptor();
        if descriptor.is_none_or(|descriptor| self.front.connections.may_have(descriptor)) {
            Ok(response)
        } else {
            Err(Refused::Scarce)
        }
    }

    /// Returns the page for a file that cannot be sent.
    pub(super) fn refused(&self, refused: Refused, headers: &HeaderMap) -> Answer<A::Body> {
        let page = match refused {
            Refused::Missing => Page::not_found(),
            Refused::Forbidden => {
                Page::new(StatusCode::FORBIDDEN, "This file may not be read by the server.")
            }
            Refused::Scarce => {
                self.front.metrics.limited(ClientLimit::Descriptors);
                self.front.connections.make_room();
                Page::busy()
            }
            Refused::Failed(error) => {
                tracing::warn!(error = %error, "file cannot be read");
                Page::new(StatusCode::INTERNAL_SERVER_ERROR, "The file could not be read.")
            }
        };
        self.page(page, headers)
    }
}

/// Returns the redirection from a folder to its address with a slash.
pub(super) fn add_slash(parts: &Parts) -> Page {
    let path = parts.uri.path();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // Exactly one leading slash: `//host/` would be another site.
    let location = format!("/{}/{query}", path.trim_start_matches('/'));
    let status = if is_read(&parts.method) {
        StatusCode::MOVED_PERMANENTLY
    } else {
        StatusCode::PERMANENT_REDIRECT
    };
    let page = Page::new(status, "This is a directory: its address ends with a slash.");
    match HeaderValue::try_from(location) {
        Ok(location) => page.with(header::LOCATION, location),
        Err(_) => Page::not_found(),
    }
}
