//! The CGI variables of a request (RFC 3875), as nginx's fastcgi.conf hands them to php-fpm, written straight into a frame.
//!
//! Invariants
//! - Nothing a client sends can set a variable outside `HTTP_*`, `CONTENT_TYPE`, `CONTENT_LENGTH`, `QUERY_STRING` and its URL's own.
//! - Field names with an underscore are dropped, as nginx does: `X_Forwarded_For` must not pass for `X-Forwarded-For`.
//! - `Proxy` is dropped: `HTTP_PROXY` is what programs take their proxy from (CVE-2016-5385, "httpoxy").

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Version};
use wire::TooLarge;
use wire::send::RequestWriter;

use crate::context::{RequestContext, Scheme};

const SOFTWARE: &str = concat!("hearth/", env!("CARGO_PKG_VERSION"));

/// Appends a REQUEST frame to `buffer`. `body`: the body's length in bytes when one follows, [`wire::NO_LENGTH`] when it is not known,
/// `None` when there is none.
pub(crate) fn write_request(
    buffer: &mut Vec<u8>,
    parts: &Parts,
    context: &RequestContext,
    body: Option<u64>,
) -> Result<(), TooLarge> {
    let (number, name) = match parts.version {
        Version::HTTP_10 | Version::HTTP_09 => (10, "HTTP/1.0"),
        Version::HTTP_2 => (20, "HTTP/2.0"),
        Version::HTTP_3 => (30, "HTTP/3.0"),
        _ => (11, "HTTP/1.1"),
    };
    let mut frame = RequestWriter::new(buffer, number, body.unwrap_or(0));
    let script = &context.script;
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());

    frame.pair(b"SCRIPT_FILENAME", script.filename.as_os_str().as_bytes());
    frame.pair(b"QUERY_STRING", parts.uri.query().unwrap_or("").as_bytes());
    frame.pair(b"REQUEST_METHOD", parts.method.as_str().as_bytes());
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    frame.pair(b"CONTENT_TYPE", content_type);
    let content_length = parts.headers.get(CONTENT_LENGTH).map_or(&b""[..], HeaderValue::as_bytes);
    frame.pair(b"CONTENT_LENGTH", content_length);
    frame.pair(b"SCRIPT_NAME", script.name.as_bytes());
    frame.pair(b"REQUEST_URI", target.as_bytes());
    if !script.path_info.is_empty() {
        frame.pair(b"PATH_INFO", script.path_info.as_bytes());
        let root = script.document_root.as_os_str().as_bytes();
        frame.pair_from(b"PATH_TRANSLATED", root.len() + script.path_info.len(), |out| {
            out.extend_from_slice(root);
            out.extend_from_slice(script.path_info.as_bytes());
        });
    }
    // nginx's $document_uri: the script's name and what follows it
    frame.pair_from(b"DOCUMENT_URI", script.name.len() + script.path_info.len(), |out| {
        out.extend_from_slice(script.name.as_bytes());
        out.extend_from_slice(script.path_info.as_bytes());
    });
    frame.pair(b"DOCUMENT_ROOT", script.document_root.as_os_str().as_bytes());
    frame.pair(b"SERVER_PROTOCOL", name.as_bytes());
    match context.scheme {
        Scheme::Http => frame.pair(b"REQUEST_SCHEME", b"http"),
        Scheme::Https => {
            frame.pair(b"REQUEST_SCHEME", b"https");
            frame.pair(b"HTTPS", b"on");
        }
    }
    frame.pair(b"GATEWAY_INTERFACE", b"CGI/1.1");
    frame.pair(b"SERVER_SOFTWARE", SOFTWARE.as_bytes());
    let mut number = Number { place: [0; 48] };
    pair_ip(&mut frame, &mut number, b"REMOTE_ADDR", context.remote.ip());
    frame.pair(b"REMOTE_PORT", number.of(context.remote.port()));
    frame.pair(b"REMOTE_USER", context.remote_user.as_deref().unwrap_or("").as_bytes());
    pair_ip(&mut frame, &mut number, b"SERVER_ADDR", context.local.ip());
    frame.pair(b"SERVER_PORT", number.of(context.server_port));
    frame.pair(b"SERVER_NAME", context.server_name.as_bytes());
    frame.pair(b"REDIRECT_STATUS", b"200");
    frame.pair(b"HEARTH_REQUEST_ID", context.id.0.as_bytes());
    write_fields(&mut frame, parts);
    frame.finish(body.is_none())
}

/// The header fields as `HTTP_*`; several of one name become one, as RFC 9110 section 5.3 joins them.
fn write_fields(frame: &mut RequestWriter<'_>, parts: &Parts) {
    if let (None, Some(authority)) = (parts.headers.get(HOST), parts.uri.authority()) {
        frame.pair(b"HTTP_HOST", authority.as_str().as_bytes()); // RFC 9113 section 8.3.1
    }
    let mut variable = Vec::with_capacity(64);
    for name in parts.headers.keys() {
        if name.as_str().contains('_') || name == "proxy" {
            continue;
        }
        variable.clear();
        variable.extend_from_slice(b"HTTP_");
        variable.extend(name.as_str().bytes().map(|byte| match byte {
            b'-' => b'_',
            other => other.to_ascii_uppercase(),
        }));
        let mut values = parts.headers.get_all(name).iter();
        let (Some(first), None) = (values.next(), values.next()) else {
            write_joined(frame, &variable, parts, name);
            continue;
        };
        frame.pair(&variable, first.as_bytes());
    }
}

fn write_joined(frame: &mut RequestWriter<'_>, variable: &[u8], parts: &Parts, name: &HeaderName) {
    let comma: &[u8] = if name == COOKIE { b"; " } else { b", " }; // RFC 9113 section 8.2.3
    let values = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let joined = values.collect::<Vec<_>>().join(comma);
    frame.pair(variable, &joined);
}

fn pair_ip(frame: &mut RequestWriter<'_>, number: &mut Number, name: &[u8], ip: IpAddr) {
    frame.pair(name, number.of(ip.to_canonical()));
}

/// Formats small things without allocating.
struct Number {
    place: [u8; 48],
}

impl Number {
    fn of(&mut self, value: impl std::fmt::Display) -> &[u8] {
        let mut rest = &mut self.place[..];
        let fits = write!(rest, "{value}").is_ok();
        debug_assert!(fits, "addresses and ports fit 48 bytes");
        let left = rest.len();
        self.place.get(..self.place.len() - left).unwrap_or_default()
    }
}
