//! Parses the connection request of a client: address, protocol version, origin of its page.

use std::borrow::Cow;

use crate::app::App;
use crate::auth;
use crate::close::Close;

/// The target of a WebSocket request: `/app/KEY?protocol=7&client=js&version=8.6.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Key of the application.
    pub key: Cow<'a, str>,
    /// Name of the client's library.
    pub client: Option<Cow<'a, str>>,
}

/// Supported protocol versions. Clients from version 5 on answer pings, and accept all later changes.
const VERSIONS: std::ops::RangeInclusive<u32> = 5..=7;

impl<'a> Target<'a> {
    /// Parses a request target. An error is the code with which the open WebSocket is closed.
    pub fn read(path_and_query: &'a str) -> Result<Self, Close> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let key = path.strip_prefix("/app/").ok_or(Close::NO_SUCH_PATH)?;
        let key = key.strip_suffix('/').unwrap_or(key);
        if key.is_empty() || key.contains('/') {
            return Err(Close::NO_SUCH_PATH);
        }
        let (mut protocol, mut client) = (None, None);
        for (name, value) in auth::parameters(query) {
            match &*name {
                "protocol" => protocol = Some(value),
                "client" => client = Some(value),
                _ => {}
            }
        }
        let protocol = protocol.filter(|text| !text.is_empty()).ok_or(Close::NO_VERSION)?;
        if !protocol.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Close::VERSION_FORMAT);
        }
        if !protocol.parse().is_ok_and(|version| VERSIONS.contains(&version)) {
            return Err(Close::UNSUPPORTED_VERSION);
        }
        Ok(Self { key: auth::unescaped(key, false), client })
    }
}

/// Properties of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The client uses TLS, to this server or to a proxy before it.
    pub tls: bool,
    /// Value of the header field `Origin`.
    pub origin: Option<&'a str>,
    /// Accepts a client without `Origin`. Browsers omit it in a plain GET to the page's own origin (Fetch standard,
    /// "append a request `Origin` header").
    pub without_origin: bool,
}

impl Hello<'_> {
    /// Checks the application's permissions for this connection.
    pub(crate) fn check(&self, app: &App) -> Result<(), Close> {
        if !app.rights.enabled {
            return Err(Close::APP_DISABLED);
        }
        if !self.tls && !app.rights.plain {
            return Err(Close::TLS_ONLY);
        }
        if app.rights.origins.is_empty() || (self.without_origin && self.origin.is_none()) {
            return Ok(());
        }
        let host = self.origin.and_then(host);
        let allowed = host.is_some_and(|host| {
            app.rights.origins.iter().any(|pattern| matches(pattern.as_bytes(), host.as_bytes()))
        });
        if allowed { Ok(()) } else { Err(Close::OTHER_ORIGIN) }
    }
}

/// Returns the host in an origin (RFC 6454, 6.2: `scheme://host[:port]`); `None` for `null`.
fn host(origin: &str) -> Option<&str> {
    let (_, authority) = origin.split_once("://")?;
    let end = match authority.rfind(':') {
        // A colon within an IPv6 address does not start a port.
        Some(colon) if !authority.get(colon..)?.contains(']') => colon,
        _ => authority.len(),
    };
    authority.get(..end)
}

/// Matches `text` against `pattern`, where `*` stands for any part, ignoring ASCII case.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut in_text) = (0, 0);
    // Position after the last star, and the position in the text up to which it matches so far.
    let mut star = None;
    while in_text < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_text));
                at += 1;
            }
            Some(byte) if byte.eq_ignore_ascii_case(&text[in_text]) => {
                at += 1;
                in_text += 1;
            }
            _ => {
                let Some((place, reach)) = star else { return false };
                star = Some((place, reach + 1));
                at = place + 1;
                in_text = reach + 1;
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}
