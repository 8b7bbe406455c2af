//! What a client says when it connects, before there is a conversation: address, protocol, where its page is from.

use std::borrow::Cow;

use crate::app::App;
use crate::auth;
use crate::close::Close;

/// What the request for a WebSocket says: `/app/KEY?protocol=7&client=js&version=8.6.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Of the application.
    pub key: Cow<'a, str>,
    /// The client's library, as it calls itself.
    pub client: Option<Cow<'a, str>>,
}

/// Versions of the protocol that are spoken: from 5 on clients answer pings, and what changed since they take either way.
const VERSIONS: std::ops::RangeInclusive<u32> = 5..=7;

impl<'a> Target<'a> {
    /// Reads a request's target. An error is what the WebSocket, once open, is closed with.
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

/// How a client came.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// Over TLS, ours or a proxy's before us.
    pub tls: bool,
    /// The header field `Origin`.
    pub origin: Option<&'a str>,
    /// May it come without one? With a plain GET to a page's own origin browsers tell none (Fetch standard, "append a request `Origin` header").
    pub without_origin: bool,
}

impl Hello<'_> {
    /// May it come in, as far as that can be told from this?
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

/// The host in an origin (RFC 6454, 6.2: `scheme://host[:port]`); none for `null`.
fn host(origin: &str) -> Option<&str> {
    let (_, authority) = origin.split_once("://")?;
    let end = match authority.rfind(':') {
        // Not a colon within an IPv6 address.
        Some(colon) if !authority.get(colon..)?.contains(']') => colon,
        _ => authority.len(),
    };
    authority.get(..end)
}

/// Is `text` what `pattern` says, `*` standing for any part, whatever the case of letters?
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut in_text) = (0, 0);
    // Where the last star stands, and how far into the text it reaches for now.
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
