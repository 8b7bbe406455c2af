//! Where a request carries its token, and what it may do.

use super::hub::{Mercure, unix};
use super::selector::Selector;
use super::token::{Claims, Key};
use super::{Options, PATH, Request};
use crate::auth;

/// The shortest token: header, claims and signature.
const SHORTEST: usize = 41;

/// Why a request is rejected with 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unauthorized;

impl Mercure {
    /// Returns whether the answer depends on [`Request::body`]: only that to a publisher with a valid token does.
    pub fn needs_body(&self, request: &Request<'_>) -> bool {
        (request.method, request.path) == ("POST", PATH) && self.publisher(request).is_ok()
    }

    /// Returns the topics for which a request's token permits updates; none permit all public ones.
    pub(super) fn publisher(&self, request: &Request<'_>) -> Result<Vec<Selector>, Unauthorized> {
        let options = &self.options;
        let claims = claims(request, options, options.publisher.as_ref(), unix())?;
        claims.and_then(|claims| claims.publish).ok_or(Unauthorized)
    }
}

/// Returns the claims of a request's token; `None` if it has none.
pub(super) fn claims(
    request: &Request<'_>,
    options: &Options,
    key: Option<&Key>,
    now: u64,
) -> Result<Option<Claims>, Unauthorized> {
    let verify = |token: &str| {
        let key = key.filter(|_| token.len() >= SHORTEST).ok_or(Unauthorized)?;
        Claims::verify(token, key, now).map(Some).ok_or(Unauthorized)
    };
    if let Some(field) = (request.field)("authorization") {
        let (scheme, token) = field.split_once(' ').ok_or(Unauthorized)?;
        return if scheme.eq_ignore_ascii_case("bearer") {
            verify(token)
        } else {
            Err(Unauthorized)
        };
    }
    if let Some((_, token)) =
        auth::parameters(request.query).find(|(name, _)| name == "authorization")
    {
        return verify(&token);
    }
    let Some(token) = cookie(request, &options.cookie) else { return Ok(None) };
    // A foreign page can make a browser send the cookie with a POST.
    if request.method == "POST" && !may_publish_from(request, &options.publish_origins) {
        return Err(Unauthorized);
    }
    verify(token)
}

fn cookie<'a>(request: &Request<'a>, name: &str) -> Option<&'a str> {
    let pairs = (request.field)("cookie")?.split(';').map(str::trim);
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

fn may_publish_from(request: &Request<'_>, allowed: &[String]) -> bool {
    let referer = || {
        let referer = (request.field)("referer")?;
        let (scheme, rest) = referer.split_once("://")?;
        Some(format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()))
    };
    let origin = (request.field)("origin").map(str::to_owned).or_else(referer);
    origin.is_some_and(|origin| is_allowed(&origin, allowed))
}

/// Returns whether an origin is in a list, where `*` allows all.
pub(super) fn is_allowed(origin: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|one| one == "*" || one == origin)
}
