//! Applies the operator's rules to a request.

use http::StatusCode;
use http::header::{self, HeaderValue};
use http::request::Parts;

use super::Exchange;
use crate::answers::Page;
use crate::application::Application;
use crate::metrics::ClientLimit;
use crate::request_head;
use crate::route::CleanPath;
use crate::rules::{self, Rules};

impl<A: Application> Exchange<'_, A> {
    /// Counts the request of a client, and returns the page for one that asks too often.
    pub(super) fn within_rate(
        &self,
        rules: &Rules,
        parts: &Parts,
        path: &CleanPath<'_>,
    ) -> Result<(), Page> {
        let (Some(limits), Some(site)) = (&rules.rate_limits, self.site()) else { return Ok(()) };
        let names = rules::names(path.as_bytes());
        limits
            .take(&self.front.rates, site, self.ruled_host(parts), names, self.since_start())
            .map_err(|wait| self.too_often(wait))
    }

    /// Returns the host for which rules are chosen.
    fn ruled_host<'r>(&'r self, parts: &'r Parts) -> &'r str {
        let forwarded = self.front.route_by_forwarded_host.then_some(&self.forwarded);
        request_head::host_of(forwarded, &parts.headers).unwrap_or_default()
    }

    fn since_start(&self) -> std::time::Duration {
        self.front.started.elapsed()
    }

    fn too_often(&self, wait: std::time::Duration) -> Page {
        self.front.metrics.limited(ClientLimit::Rate);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Page::new(StatusCode::TOO_MANY_REQUESTS, "There are too many requests from here.")
            .with(header::RETRY_AFTER, HeaderValue::from(seconds))
    }
}
