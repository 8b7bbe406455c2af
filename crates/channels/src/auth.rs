//! Verifies and creates the signatures of the Pusher protocol.
//!
//! Sources: Pusher Channels, "Authenticating users", "Authorization of channels", "HTTP API: Generating
//! authentication signatures", "Webhooks".
//!
//! Invariants
//! - Signatures are compared in constant time.
//! - Signatures are computed over the received bytes, never over a re-encoded form.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::fmt::Write as _;

use md5::{Digest as _, Md5};
use ring::hmac;

use crate::app::{App, Secret};
use crate::moment::UnixTime;

/// Maximum difference between the timestamp of a request and the server's clock, in seconds.
pub const CLOCK_SKEW: u64 = 600;

/// Reasons why a client's signature is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsigned {
    /// The value does not have the form `KEY:SIGNATURE`.
    #[error("the auth signature is not of the form \"<app-key>:<signature>\"")]
    Malformed,
    /// The key in the value is not the application's.
    #[error("the auth signature is for another application key")]
    OtherKey,
    /// The signature was made for another socket, channel, data or secret.
    #[error("the auth signature does not match")]
    Mismatch,
}

/// Verifies that `auth` permits the socket to subscribe.
///
/// `channel_data` is the text as the client sent it, unescaped; presence channels require it.
pub fn subscription(
    app: &App,
    socket: impl Display,
    channel: &str,
    channel_data: Option<&str>,
    auth: &str,
) -> Result<(), Unsigned> {
    check(app, &subscription_text(socket, channel, channel_data), auth)
}

/// Verifies that `auth` assigns the socket to the user in `user_data`, the text as the client sent it, unescaped.
pub fn sign_in(
    app: &App,
    socket: impl Display,
    user_data: &str,
    auth: &str,
) -> Result<(), Unsigned> {
    check(app, &sign_in_text(socket, user_data), auth)
}

/// Returns the `KEY:SIGNATURE` with which an application's server authorizes a subscription.
pub fn sign_subscription(
    app: &App,
    socket: impl Display,
    channel: &str,
    channel_data: Option<&str>,
) -> String {
    format!(
        "{}:{}",
        app.key,
        sign(&app.secret, subscription_text(socket, channel, channel_data).as_bytes())
    )
}

/// Returns the `KEY:SIGNATURE` with which an application's server authorizes a sign-in.
pub fn sign_sign_in(app: &App, socket: impl Display, user_data: &str) -> String {
    format!("{}:{}", app.key, sign(&app.secret, sign_in_text(socket, user_data).as_bytes()))
}

/// Returns the HMAC-SHA256 of `text` in lower-case hexadecimal. For a webhook's body it is the value of
/// `X-Pusher-Signature`.
pub fn sign(secret: &Secret, text: &[u8]) -> String {
    hexadecimal(hmac::sign(&key(secret), text).as_ref())
}

fn subscription_text(socket: impl Display, channel: &str, channel_data: Option<&str>) -> String {
    let mut text = format!("{socket}:{channel}");
    if let Some(data) = channel_data {
        text.push(':');
        text.push_str(data);
    }
    text
}

fn sign_in_text(socket: impl Display, user_data: &str) -> String {
    format!("{socket}::user::{user_data}")
}

fn check(app: &App, text: &str, auth: &str) -> Result<(), Unsigned> {
    // The key of another application may contain a colon; the signature cannot.
    let (key, signature) = auth.rsplit_once(':').ok_or(Unsigned::Malformed)?;
    if *key != *app.key {
        return Err(Unsigned::OtherKey);
    }
    if verify(&app.secret, text.as_bytes(), signature) { Ok(()) } else { Err(Unsigned::Mismatch) }
}

fn verify(secret: &Secret, text: &[u8], signature: &str) -> bool {
    tag(signature).is_some_and(|tag| hmac::verify(&key(secret), text, &tag).is_ok())
}

fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes())
}

/// Parses 64 hexadecimal digits.
fn tag(signature: &str) -> Option<[u8; 32]> {
    let mut tag = [0; 32];
    if signature.len() != 64 {
        return None;
    }
    for (byte, digits) in tag.iter_mut().zip(signature.as_bytes().chunks_exact(2)) {
        let [high, low] = digits else { return None };
        let digit =
            |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(tag)
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

/// A request of the HTTP API, as received.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// HTTP method in capitals.
    pub method: &'a str,
    /// Path from the first `/`, as in the request line, without the query.
    pub path: &'a str,
    /// Query after the `?`, or empty.
    pub query: &'a str,
    /// Complete request body.
    pub body: &'a [u8],
}

/// Reasons why a request of the HTTP API is rejected with status 401. The text is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallRefused {
    /// A required parameter is missing.
    #[error("{name} is missing in the query string")]
    Missing {
        /// Name of the parameter.
        name: &'static str,
    },
    /// The key is not the application's.
    #[error("auth_key is not a key of this application")]
    OtherKey,
    /// The version is not 1.0, the only one.
    #[error("auth_version must be 1.0")]
    Version,
    /// The timestamp is not a number, or differs too much from the server's clock.
    #[error(
        "timestamp expired: given {given}, server time is {now} (both in seconds since 1970); difference may be {CLOCK_SKEW} s at most"
    )]
    Expired {
        /// Timestamp of the request.
        given: String,
        /// Time of the server.
        now: u64,
    },
    /// The digest belongs to another body.
    #[error("body_md5 does not match the body")]
    Body,
    /// The signature belongs to another request or secret.
    #[error(
        "invalid signature: should have been the HMAC-SHA256 hex digest, with the application's secret, of: {text:?}"
    )]
    Mismatch {
        /// The text that should have been signed.
        text: String,
    },
}

/// Returns the parameters of a query in order, unescaped.
pub fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescaped(name, true), unescaped(value, true))
    })
}

/// Verifies that a request was signed by the application.
pub fn call(app: &App, call: &Call<'_>, now: UnixTime) -> Result<(), CallRefused> {
    verify_call(app, call, Some(call.body), now)
}

/// Verifies a request whose body has not been received: [`Call::body`] is ignored. The signature covers the body's
/// digest, so only [`call`] with the body can find [`CallRefused::Body`].
pub fn call_head(app: &App, call: &Call<'_>, now: UnixTime) -> Result<(), CallRefused> {
    verify_call(app, call, None, now)
}

fn verify_call(
    app: &App,
    call: &Call<'_>,
    body: Option<&[u8]>,
    now: UnixTime,
) -> Result<(), CallRefused> {
    let mut parameters: Vec<_> =
        parameters(call.query).map(|(name, value)| (name.to_lowercase(), value)).collect();
    let value = |name: &'static str| {
        parameters
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.clone())
            .ok_or(CallRefused::Missing { name })
    };
    if *value("auth_key")? != *app.key {
        return Err(CallRefused::OtherKey);
    }
    let timestamp = value("auth_timestamp")?;
    if value("auth_version")? != "1.0" {
        return Err(CallRefused::Version);
    }
    let signature = value("auth_signature")?;
    let in_time =
        timestamp.parse::<u64>().is_ok_and(|given| given.abs_diff(now.seconds()) <= CLOCK_SKEW);
    if !in_time {
        return Err(CallRefused::Expired { given: timestamp.into_owned(), now: now.seconds() });
    }
    if let Some(body) = body {
        match value("body_md5") {
            Ok(given) if given.eq_ignore_ascii_case(&hexadecimal(&Md5::digest(body))) => {}
            Ok(_) => return Err(CallRefused::Body),
            Err(missing) if !body.is_empty() => return Err(missing),
            Err(_) => {}
        }
    }
    parameters.retain(|(name, _)| name != "auth_signature");
    // The sort is stable: of two parameters with one name the first stays first.
    parameters.sort_by(|(one, _), (other, _)| one.cmp(other));

    let written = joined(&parameters);
    let as_sent = format!("{}\n{}\n{written}", call.method, call.path);
    let signed = |text: &str| verify(&app.secret, text.as_bytes(), &signature);
    if signed(&as_sent) {
        return Ok(());
    }
    // Libraries differ in two points; both forms require the secret. A path with a user id is signed before or after
    // escaping. A list is signed as sent (`info[]=a&info[]=b`) or as pusher-http-php writes it (`info=a,b`).
    let plain_path = unescaped(call.path, false);
    let lists = as_lists(&parameters);
    let others = [
        (&*plain_path, Some(&*written)),
        (call.path, lists.as_deref()),
        (&*plain_path, lists.as_deref()),
    ];
    let one_is = others.into_iter().any(|(path, query)| {
        query.is_some_and(|query| signed(&format!("{}\n{path}\n{query}", call.method)))
    });
    if one_is { Ok(()) } else { Err(CallRefused::Mismatch { text: as_sent }) }
}

fn joined<V: AsRef<str>>(parameters: &[(String, V)]) -> String {
    let pairs: Vec<_> =
        parameters.iter().map(|(name, value)| format!("{name}={}", value.as_ref())).collect();
    pairs.join("&")
}

/// Merges parameters `name[]` and `name[0]` into `name` with comma-separated values; `None` if there are none. The time
/// is linear in the number of parameters, which anyone can send.
fn as_lists(parameters: &[(String, Cow<'_, str>)]) -> Option<String> {
    let mut gathered: Vec<(String, String)> = Vec::with_capacity(parameters.len());
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(parameters.len());
    let mut any = false;
    for (name, value) in parameters {
        let stem = name
            .split_once('[')
            .filter(|(stem, rest)| !stem.is_empty() && rest.ends_with(']'))
            .map(|(stem, _)| stem);
        any |= stem.is_some();
        let name = stem.unwrap_or(name);
        let index = *first.entry(name).or_insert(gathered.len());
        match gathered.get_mut(index) {
            Some((_, values)) if stem.is_some() => {
                values.push(',');
                values.push_str(value);
            }
            _ => gathered.push((name.to_owned(), value.to_string())),
        }
    }
    gathered.sort_by(|(one, _), (other, _)| one.cmp(other));
    any.then(|| joined(&gathered))
}

/// Decodes percent-escapes, and `+` in a query. Invalid escapes stay as they are; invalid UTF-8 becomes U+FFFD.
pub fn unescaped(text: &str, query: bool) -> Cow<'_, str> {
    let special = |byte: u8| byte == b'%' || (query && byte == b'+');
    if !text.bytes().any(special) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|digits| {
            let digits = str::from_utf8(digits)
                .ok()
                .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            u8::from_str_radix(digits, 16).ok()
        });
        at += if escape.is_some() { 3 } else { 1 };
        out.push(match (escape, byte) {
            (Some(byte), _) => byte,
            (None, b'+') if query => b' ',
            (None, other) => *other,
        });
    }
    Cow::Owned(
        String::from_utf8(out)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

#[cfg(test)]
mod tests;
