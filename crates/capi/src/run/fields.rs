//! The fields of a request: the library's own, the caller's, cookies and credentials.
//!
//! Invariants
//! - A default field never stands beside the caller's, and not in the place of one that the caller has removed.
//! - Credentials are written for the origin that they were meant for, unless the caller permits otherwise.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, RANGE, TRAILER,
    USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::Way;
use crate::error::{Failure, Kind};
use crate::request::Payload;
use crate::settings::AuthMode;

/// The value of Accept-Encoding if the response may be compressed.
static ENCODINGS: HeaderValue = HeaderValue::from_static("gzip, deflate, br, zstd");
const ANYTHING: HeaderValue = HeaderValue::from_static("*/*");

impl Way<'_> {
    pub(super) fn uri(&self) -> Result<Uri, Failure> {
        let text = self.target()?.shared_text();
        Uri::from_maybe_shared(text).map_err(|why| Failure::new(Kind::Url, format!("URL: {why}")))
    }

    pub(super) fn asks_for_compression(&self) -> bool {
        self.settings.accept_compression
            && self.settings.range.is_none()
            && !self.headers.contains_key(ACCEPT_ENCODING)
            && !self.headers.contains_key(RANGE)
            && !self.removed(&ACCEPT_ENCODING)
    }

    /// Returns whether the caller has removed this default field.
    pub(super) fn removed(&self, name: &HeaderName) -> bool {
        self.extras.is_some_and(|extras| extras.removed.contains(name))
    }

    /// The fields of a request: the library's, then the caller's.
    pub(super) fn fields(&self, length: Option<u64>) -> Result<HeaderMap, Failure> {
        let mut fields = HeaderMap::with_capacity(self.headers.len() + 6);
        let mut default = |name: HeaderName, value: Option<HeaderValue>| {
            if let Some(value) = value
                && !self.headers.contains_key(&name)
                && !self.removed(&name)
            {
                fields.insert(name, value);
            }
        };
        default(USER_AGENT, self.settings.user_agent.clone());
        default(ACCEPT, Some(ANYTHING));
        let encodings = self.settings.encodings.as_ref().unwrap_or(&ENCODINGS);
        default(ACCEPT_ENCODING, self.asks_for_compression().then(|| encodings.clone()));
        default(RANGE, self.settings.range.clone());
        if self.at_home || self.settings.unrestricted_auth {
            default(AUTHORIZATION, self.authorization()?);
        }
        for (name, value) in &self.headers {
            fields.append(name.clone(), value.clone());
        }
        if let Some(jar) = &self.jar
            && let Some(cookies) = jar.field(self.target()?.as_str())
        {
            let both = match fields.get(COOKIE) {
                Some(own) => {
                    HeaderValue::from_bytes(&[own.as_bytes(), b"; ", cookies.as_bytes()].concat())
                }
                None => Ok(cookies),
            };
            if let Ok(both) = both {
                fields.insert(COOKIE, both);
            }
        }
        if self.with_body {
            if let Some(length) = length {
                fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            if self.settings.expect_continue {
                fields.insert(EXPECT, HeaderValue::from_static("100-continue"));
            }
            if let Some(extras) = self.extras.filter(|extras| !extras.trailers.is_empty()) {
                let names: Vec<_> = extras.trailers.keys().map(HeaderName::as_str).collect();
                if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
                    fields.insert(TRAILER, names);
                }
            }
        } else if matches!(self.method, Method::POST | Method::PUT | Method::PATCH) {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        Ok(fields)
    }

    /// The request's body, if it is in memory.
    pub(super) fn whole_body(&self) -> Option<&[u8]> {
        match self.extras.filter(|_| self.with_body).map(|extras| &extras.body) {
            None | Some(Payload::None) => Some(&[]),
            Some(Payload::Bytes(bytes)) => Some(bytes),
            Some(Payload::File(_) | Payload::Source(_)) => None,
        }
    }

    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        let auth = &self.settings.auth;
        let field = match auth.mode {
            AuthMode::None => return Ok(None),
            AuthMode::Basic => {
                format!("Basic {}", STANDARD.encode(format!("{}:{}", auth.user, auth.secret)))
            }
            AuthMode::Bearer => format!("Bearer {}", auth.secret),
            AuthMode::Digest => {
                let Some(session) = &self.digest else { return Ok(None) };
                let path = self.target()?.path();
                let body = self.whole_body();
                return Ok(session.answer(
                    &auth.user,
                    &auth.secret,
                    self.method.as_str(),
                    path,
                    body,
                ));
            }
        };
        let mut field = HeaderValue::try_from(field).map_err(|_bytes| {
            Failure::new(Kind::Unsupported, "The secret is no value of a field")
        })?;
        field.set_sensitive(true);
        Ok(Some(field))
    }
}
