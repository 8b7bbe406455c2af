//! Replaces a response: a status, `Hearth-Declined` or `Hearth-Failed`, and a line of text.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::SocketAddr;

use ::http1::{put_all, put_status_line};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::{CallError, Fate};

/// The field of a declined call, of which no byte was sent.
const DECLINED: HeaderName = HeaderName::from_static("hearth-declined");
/// The field of a failed call, of which some bytes were sent.
const FAILED: HeaderName = HeaderName::from_static("hearth-failed");
/// The longest message; some contain what a peer has sent.
const LONGEST: usize = 500;

/// A call without a response, and the reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    /// The status.
    pub(crate) status: StatusCode,
    /// Whether the caller may make the call itself.
    pub(crate) fate: Fate,
    /// The reason for programs: a word of docs/internals/egress.md.
    pub(crate) word: &'static str,
    /// The number of the libcurl error that fits best; 0 if none does.
    pub(crate) curl: u8,
    /// The reason for people.
    pub(crate) message: Cow<'static, str>,
    /// The origin's address, if there was a connection to it.
    pub(crate) address: Option<SocketAddr>,
}

impl Refusal {
    fn declined(
        status: StatusCode,
        word: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let message = message.into();
        Self { status, fate: Fate::Declined, word, curl: 0, message, address: None }
    }

    /// An option in `Hearth-Control` is unknown or not supported.
    pub(crate) fn control(message: impl Into<Cow<'static, str>>) -> Self {
        Self::declined(StatusCode::BAD_GATEWAY, "control", message)
    }

    /// `Hearth-Control` came without the right token.
    pub(crate) fn token() -> Self {
        let message = "Hearth-Control needs the token of egress.token beside the socket, once";
        Self::declined(StatusCode::FORBIDDEN, "token", message)
    }

    /// The user may not call.
    pub(crate) fn user(uid: u32) -> Self {
        let message = format!("user {uid} is not among egress.allow_users");
        Self::declined(StatusCode::FORBIDDEN, "user", message)
    }

    /// The target names no origin, or names it ambiguously.
    pub(crate) fn target(message: impl Into<Cow<'static, str>>) -> Self {
        Self::declined(StatusCode::BAD_GATEWAY, "target", message)
    }

    /// `Host` differs from the target's host.
    pub(crate) fn host() -> Self {
        let message = "Host is neither `hearth` nor the target's";
        Self::declined(StatusCode::BAD_GATEWAY, "host", message)
    }

    /// The listener does not support it.
    pub(crate) fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::declined(StatusCode::BAD_GATEWAY, "unsupported", message)
    }

    /// The head is not a request, or is ambiguous.
    pub(crate) fn request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::declined(StatusCode::BAD_REQUEST, "request", message)
    }

    /// The limit of concurrent calls is reached.
    pub(crate) fn full(connections: usize) -> Self {
        let message = format!("{connections} calls are under way (egress.callers)");
        Self::declined(StatusCode::BAD_GATEWAY, "full", message)
    }

    /// The system has no descriptor for another call.
    pub(crate) fn no_descriptor() -> Self {
        let message = "no file descriptor is left for another call (LimitNOFILE)";
        Self::declined(StatusCode::BAD_GATEWAY, "full", message)
    }

    /// The field that carries the refusal.
    pub(crate) fn field(&self) -> (HeaderName, HeaderValue) {
        let name = match self.fate {
            Fate::Declined => DECLINED,
            Fate::Failed => FAILED,
        };
        let mut value = format!("{}; errno={}; message=\"", self.word, self.curl);
        for character in self.message.chars().take(LONGEST) {
            match character {
                '"' | '\\' => value.extend(['\\', character]),
                ' '..='~' => value.push(character),
                // A string of RFC 8941 is ASCII.
                _ => value.push('?'),
            }
        }
        value.push('"');
        if let Some(address) = self.address {
            write!(value, "; address=\"{address}\"").expect("a String takes all");
        }
        (name, HeaderValue::try_from(value).expect("printable ASCII is a value"))
    }

    /// The refusal as a response.
    pub(crate) fn response(&self) -> Response<Bytes> {
        let body: String = self.message.chars().take(LONGEST).chain(['\n']).collect();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let (name, value) = self.field();
        let fields = response.headers_mut();
        fields.insert(name, value);
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// The refusal as bytes, for a connection whose protocol is unknown.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut response = self.response();
        let length = response.body().len().into();
        response.headers_mut().insert(CONTENT_LENGTH, length);
        let (mut bytes, status) = (Vec::new(), response.status());
        put_status_line(&mut bytes, status.as_str(), status.canonical_reason().unwrap_or_default());
        put_all(&mut bytes, response.headers());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(response.body());
        bytes
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            fate: error.fate,
            word: error.reason.word(),
            curl: error.curl,
            message: error.message.into(),
            address: error.address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_escaped_in_fields() {
        let refusal = Refusal::control("a \"quote\", a \\, a\r\nline, an ü");
        let (name, value) = refusal.field();
        assert_eq!(name, "hearth-declined");
        assert_eq!(value, r#"control; errno=0; message="a \"quote\", a \\, a??line, an ?""#);
        let item: sfv::Item = sfv::Parser::new(value.as_bytes()).parse().unwrap();
        assert_eq!(item.bare_item.as_token().unwrap().as_str(), "control");
    }

    #[test]
    fn a_failed_call_uses_another_field() {
        let error = CallError {
            fate: Fate::Failed,
            reason: crate::Reason::Empty,
            curl: 52,
            message: "Empty reply from server".into(),
            address: Some(([127, 0, 0, 1], 81).into()),
            exhausted: false,
            kept: false,
        };
        let refusal = Refusal::from(error);
        let expected = "HTTP/1.1 502 Bad Gateway\r\n\
            hearth-failed: empty; errno=52; message=\"Empty reply from server\"; address=\"127.0.0.1:81\"\r\n\
            content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: 24\r\n\r\n\
            Empty reply from server\n";
        assert_eq!(String::from_utf8(refusal.bytes()).unwrap(), expected);
    }
}
