//! Applies the operator's rules to a request.

use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::request::Parts;

use super::{Answer, Exchange};
use crate::answers::Page;
use crate::application::Application;
use crate::metrics::ClientLimit;
use crate::request_head;
use crate::route::{self, CleanPath};
use crate::rules::{self, Address, Asking, Chosen, Denied, Rules};

impl<A: Application> Exchange<'_, A> {
    /// Redirects to https, on a listener that does not answer in the clear.
    pub(super) fn redirect_to_https(&self, parts: &Parts) -> Option<Answer<A::Body>> {
        if !self.connection.redirect || self.forwarded.secure.unwrap_or(self.connection.tls) {
            return None;
        }
        let (host, _port) = match (&self.forwarded.host, parts.headers.get(header::HOST)) {
            (Some(host), _) => request_head::split_host(host),
            (None, Some(host)) => request_head::split_host(host.to_str().unwrap_or_default()),
            (None, None) => ("", None),
        };
        let port = match self.front.https_port {
            443 => String::new(),
            port => format!(":{port}"),
        };
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let known = !host.is_empty() && request_head::is_valid_host(host.as_bytes());
        let location = HeaderValue::try_from(format!("https://{host}{port}{path}"));
        let page = match location {
            Ok(location) if known => {
                Page::new(StatusCode::PERMANENT_REDIRECT, "This is answered over https.")
                    .with(header::LOCATION, location)
            }
            // HTTP/1.0 without a host cannot be redirected.
            _ => Page::new(StatusCode::BAD_REQUEST, "This is answered over https."),
        };
        Some(self.page(page, &parts.headers))
    }

    /// Redirects a request for which there is such a rule.
    pub(super) fn redirect(&self, parts: &Parts) -> Option<Answer<A::Body>> {
        let redirects = self.current.release.rules.as_ref()?.redirects.as_ref()?;
        let clean = route::clean(parts.uri.path()).ok()?;
        let secure = self.forwarded.secure.unwrap_or(self.connection.tls);
        let address = Address {
            secure,
            host: self.ruled_host(parts),
            port: self.ruled_port(parts, secure),
            clean: clean.as_bytes(),
            sent: parts.uri.path_and_query()?,
        };
        let (location, status) = redirects.find(address)?;
        let location = HeaderValue::try_from(location).ok()?;
        let page = Page::new(status, "This has another address.").with(header::LOCATION, location);
        Some(self.page(page, &parts.headers))
    }

    /// Returns the rules for the fields of the response.
    pub(super) fn fields(&self, rules: &Arc<Rules>, parts: &Parts) -> Option<(Arc<Rules>, Chosen)> {
        let fields = rules.fields.as_ref()?;
        let clean = route::clean(parts.uri.path()).ok();
        let path = clean.as_ref().map(CleanPath::as_bytes);
        let chosen = fields.choose(self.ruled_host(parts), path, self.front_controller());
        Some((Arc::clone(rules), chosen))
    }

    /// Checks the password of a request whose path needs one, which is counted before. Returns its user.
    pub(super) async fn admit(
        &self,
        rules: &Rules,
        parts: &Parts,
    ) -> Result<Option<Arc<str>>, Page> {
        let Some(auth) = &rules.basic_auth else { return Ok(None) };
        let path = parts.uri.path();
        let files = auth.files_for(self.ruled_host(parts), path, self.front_controller());
        if files.is_empty() {
            return Ok(None);
        }
        if let Ok(clean) = route::clean(path) {
            self.within_rate(rules, parts, clean.as_bytes())?;
        }
        let (site, buckets) = (self.site(), &self.front.rates);
        let asking = Asking { site, buckets, now: self.since_start() };
        let mut user = None;
        for file in files {
            match auth.check(file, &parts.headers, asking).await {
                Ok(known) => user = Some(known),
                Err(denied) => return Err(self.denied(&denied)),
            }
        }
        Ok(user)
    }

    fn denied(&self, denied: &Denied) -> Page {
        match denied {
            Denied::Password => {
                let challenge =
                    HeaderValue::from_static("Basic realm=\"Restricted\", charset=\"UTF-8\"");
                let says = "This needs a user and a password.";
                Page::new(StatusCode::UNAUTHORIZED, says).with(header::WWW_AUTHENTICATE, challenge)
            }
            Denied::TooOften(wait) => self.too_often(ClientLimit::Passwords, *wait),
            Denied::Busy => Page::busy(),
        }
    }

    /// Counts the request of a client, and returns the page for one that asks too often.
    pub(super) fn within_rate(
        &self,
        rules: &Rules,
        parts: &Parts,
        path: &[u8],
    ) -> Result<(), Page> {
        let (Some(limits), Some(site)) = (&rules.rate_limits, self.site()) else { return Ok(()) };
        let (host, buckets) = (self.ruled_host(parts), &self.front.rates);
        let behind = rules::is_behind(self.front_controller(), path);
        limits
            .take(buckets, site, host, path, behind, self.since_start())
            .map_err(|wait| self.too_often(ClientLimit::Rate, wait))
    }

    /// Returns the name of the application's front controller, if it has one.
    fn front_controller(&self) -> Option<&str> {
        self.current.release.part(self.chosen.ok()?).router.front_controller()
    }

    /// Returns the host for which rules are chosen.
    fn ruled_host<'r>(&'r self, parts: &'r Parts) -> &'r str {
        self.ruled_host_and_port(parts).0
    }

    fn ruled_host_and_port<'r>(&'r self, parts: &'r Parts) -> (&'r str, Option<u16>) {
        let forwarded = self.front.route_by_forwarded_host.then_some(&self.forwarded);
        request_head::host_and_port(forwarded, &parts.headers).unwrap_or_default()
    }

    /// Returns the port that the client has asked, unless only a proxy knows it.
    fn ruled_port(&self, parts: &Parts, secure: bool) -> Option<u16> {
        let stated = self.forwarded.port.or_else(|| self.ruled_host_and_port(parts).1);
        let usual = if secure { 443 } else { 80 };
        if self.connection.trusted { stated } else { Some(stated.unwrap_or(usual)) }
    }

    fn since_start(&self) -> Duration {
        self.front.started.elapsed()
    }

    fn too_often(&self, limit: ClientLimit, wait: Duration) -> Page {
        self.front.metrics.limited(limit);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Page::new(StatusCode::TOO_MANY_REQUESTS, "There are too many requests from here.")
            .with(header::RETRY_AFTER, HeaderValue::from(seconds))
    }
}
