//! Encodes replies as the JSON that the sender of an event expects, and as the prelude of a streamed one.
//!
//! Invariants
//! - Binary bodies are base64-encoded, and marked as such: the sender decodes them, a REST API if it has binary media
//!   types. Streams carry them unchanged.
//! - A field that PHP sent several times arrives several times, if the shape can represent that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, SET_COOKIE, TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use super::Shape;

/// The head of a reply, to be encoded in a shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
}

/// Separator between a stream's head and body.
const SEPARATOR: [u8; 8] = [0; 8];

impl Reply<'_> {
    /// Appends the whole reply.
    pub(crate) fn write(&self, out: &mut Vec<u8>, shape: Shape, body: &[u8]) {
        let text = if is_text(self.headers) { std::str::from_utf8(body).ok() } else { None };
        // Base64 takes four bytes for three.
        out.reserve(body.len() / 3 * 4 + 1024);
        self.write_head(out, shape);
        if let Some(text) = text {
            out.extend_from_slice(b",\"isBase64Encoded\":false,\"body\":");
            write_json(out, text);
        } else {
            out.extend_from_slice(b",\"isBase64Encoded\":true,\"body\":\"");
            let at = out.len();
            out.resize(at + body.len().div_ceil(3) * 4, 0);
            let written = out.get_mut(at..).map_or(Ok(0), |room| STANDARD.encode_slice(body, room));
            debug_assert!(written.is_ok(), "base64 takes four bytes for three begun");
            out.push(b'"');
        }
        out.push(b'}');
    }

    /// Appends the prelude of a streamed reply: `application/vnd.awslambda.http-integration-response`.
    pub(crate) fn write_prelude(&self, out: &mut Vec<u8>, shape: Shape) {
        self.write_head(out, shape);
        out.push(b'}');
        out.extend_from_slice(&SEPARATOR);
    }

    /// Appends the beginning of the object, without its closing brace.
    fn write_head(&self, out: &mut Vec<u8>, shape: Shape) {
        out.extend_from_slice(b"{\"statusCode\":");
        out.extend_from_slice(self.status.as_str().as_bytes());
        match shape {
            Shape::ApiGateway1 => self.write_multiple(out),
            Shape::ApiGateway2 | Shape::FunctionUrl => {
                self.write_single(out, |name, _| name != SET_COOKIE);
                self.write_cookies(out);
            }
            Shape::WebSocket => self.write_single(out, |_, _| true),
            Shape::LoadBalancer { multi_value } => {
                let reason = self.status.canonical_reason().unwrap_or("Unknown");
                out.extend_from_slice(b",\"statusDescription\":");
                write_json(out, &format!("{} {reason}", self.status.as_str()));
                if multi_value {
                    self.write_multiple(out);
                } else {
                    self.write_single(out, |_, _| true);
                }
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.keys().filter(|name| travels(name))
    }

    fn write_multiple(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"multiValueHeaders\":{");
        let mut comma = Comma::default();
        for name in self.names() {
            comma.write(out);
            write_json(out, name.as_str());
            out.extend_from_slice(b":[");
            let mut comma = Comma::default();
            for value in self.headers.get_all(name) {
                comma.write(out);
                write_value(out, value);
            }
            out.push(b']');
        }
        out.push(b'}');
    }

    /// Appends fields with one value each. Several values are joined (RFC 9110 section 5.3), except cookies, which
    /// cannot be joined: each gets a different spelling of the name, because names that differ in case are distinct
    /// in JSON and equal in HTTP.
    fn write_single(&self, out: &mut Vec<u8>, takes: impl Fn(&HeaderName, &HeaderMap) -> bool) {
        out.extend_from_slice(b",\"headers\":{");
        let mut comma = Comma::default();
        for name in self.names().filter(|name| takes(name, self.headers)) {
            let values = self.headers.get_all(name);
            if *name == SET_COOKIE {
                for (number, value) in values.iter().enumerate() {
                    comma.write(out);
                    write_json(out, &spelled(name.as_str(), number));
                    out.push(b':');
                    write_value(out, value);
                }
                continue;
            }
            comma.write(out);
            write_json(out, name.as_str());
            out.push(b':');
            let mut all = values.iter();
            if let (Some(only), None) = (all.next(), all.next()) {
                write_value(out, only);
            } else {
                let texts = values.iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
                write_json(out, &texts.collect::<Vec<_>>().join(", "));
            }
        }
        out.push(b'}');
    }

    fn write_cookies(&self, out: &mut Vec<u8>) {
        if !self.headers.contains_key(SET_COOKIE) {
            return;
        }
        out.extend_from_slice(b",\"cookies\":[");
        let mut comma = Comma::default();
        for value in self.headers.get_all(SET_COOKIE) {
            comma.write(out);
            write_value(out, value);
        }
        out.push(b']');
    }
}

/// Text types besides `text/…`, `…+json` and `…+xml`.
const TEXTS: [&[u8]; 8] = [
    b"application/json",
    b"application/javascript",
    b"application/x-javascript",
    b"application/ecmascript",
    b"application/xml",
    b"application/x-www-form-urlencoded",
    b"application/graphql",
    b"application/x-ndjson",
];

/// Returns whether the head declares a text body, which need not be base64.
pub(crate) fn is_text(headers: &HeaderMap) -> bool {
    let encoded = headers.get(CONTENT_ENCODING);
    if encoded.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return false;
    }
    let Some(full) = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) else { return true };
    let essence = full.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = essence.to_ascii_lowercase();
    essence.is_empty()
        || essence.starts_with(b"text/")
        || essence.ends_with(b"+json")
        || essence.ends_with(b"+xml")
        || TEXTS.contains(&&*essence)
}

/// Returns whether a field is forwarded. Fields of one connection are not, and the gateway sets the length itself.
fn travels(name: &HeaderName) -> bool {
    !matches!(*name, CONNECTION | TRANSFER_ENCODING | CONTENT_LENGTH)
        && name != "keep-alive"
        && name != "upgrade"
}

/// Returns the `number`-th spelling of a name: letters are capital where the number has a one.
fn spelled(name: &str, number: usize) -> String {
    let mut bit = 0;
    name.chars()
        .map(|letter| {
            if !letter.is_ascii_alphabetic() {
                return letter;
            }
            let capital = number >> bit & 1 == 1;
            bit += 1;
            if capital { letter.to_ascii_uppercase() } else { letter }
        })
        .collect()
}

/// Writes nothing before the first item of a list, a comma before the others.
#[derive(Debug, Default)]
struct Comma(bool);

impl Comma {
    fn write(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.0, true) {
            out.push(b',');
        }
    }
}

fn write_value(out: &mut Vec<u8>, value: &HeaderValue) {
    write_json(out, &String::from_utf8_lossy(value.as_bytes()));
}

pub(crate) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("strings are written to memory");
}
