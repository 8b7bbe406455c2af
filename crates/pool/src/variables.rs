//! The CGI variables of a request (RFC 3875), as nginx's fastcgi.conf passes them to php-fpm, written directly into
//! their carrier.
//!
//! Invariants
//! - No client input can set a variable outside `HTTP_*`, `CONTENT_TYPE`, `CONTENT_LENGTH`, `QUERY_STRING` and those
//!   of its URL.
//! - Field names with characters other than letters, digits and `-` are dropped, as nginx does. Neither
//!   `X_Forwarded_For` nor `X.Forwarded.For`, whose dots PHP turns into underscores, may pass for `X-Forwarded-For`.
//! - `Proxy` is dropped: programs read their proxy from `HTTP_PROXY` (CVE-2016-5385, "httpoxy").

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Version};
use wire::TooLarge;
use wire::send::RequestWriter;

use crate::context::{RequestContext, Scheme};

/// W3C Trace Context, 3.2.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const SOFTWARE: &str = concat!("hearth/", env!("CARGO_PKG_VERSION"));

/// A receiver of variables in order.
pub(crate) trait Sink {
    /// Adds a variable whose value is `length` bytes that `write` appends.
    fn pair_from(&mut self, name: &[u8], length: usize, write: impl FnOnce(&mut Vec<u8>));

    /// Adds a variable.
    fn pair(&mut self, name: &[u8], value: &[u8]) {
        self.pair_from(name, value.len(), |out| out.extend_from_slice(value));
    }
}

impl Sink for RequestWriter<'_> {
    fn pair_from(&mut self, name: &[u8], length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        RequestWriter::pair_from(self, name, length, write);
    }

    fn pair(&mut self, name: &[u8], value: &[u8]) {
        RequestWriter::pair(self, name, value);
    }
}

/// Appends a REQUEST frame to `buffer`. `body` is the length of a following body in bytes, [`wire::NO_LENGTH`] if it
/// is unknown,
/// `None` if there is no body.
pub(crate) fn write_request(
    buffer: &mut Vec<u8>,
    parts: &Parts,
    context: &RequestContext,
    body: Option<u64>,
) -> Result<(), TooLarge> {
    write_frame(buffer, parts, context, body, &[])
}

/// Appends the REQUEST frame of a warm-up request for the zygote.
pub(crate) fn write_warm_up(
    buffer: &mut Vec<u8>,
    parts: &Parts,
    context: &RequestContext,
) -> Result<(), TooLarge> {
    write_frame(buffer, parts, context, None, &[(b"HEARTH_WARM_UP", b"1")])
}

fn write_frame(
    buffer: &mut Vec<u8>,
    parts: &Parts,
    context: &RequestContext,
    body: Option<u64>,
    more: &[(&[u8], &[u8])],
) -> Result<(), TooLarge> {
    let (number, _) = protocol(parts.version);
    let mut frame = RequestWriter::new(buffer, number, body.unwrap_or(0));
    let sent = parts.headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
    let counted = match (sent, body) {
        // The client did not announce it; the whole body is here.
        (None, Some(length)) if length != wire::NO_LENGTH => length.to_string(),
        _ => String::new(),
    };
    let length = sent.unwrap_or(counted.as_bytes());
    write_variables(&mut frame, parts, context, length);
    for (name, value) in more {
        frame.pair(name, value);
    }
    frame.finish(body.is_none())
}

/// Returns the protocol's number in a frame, and its name.
fn protocol(version: Version) -> (u8, &'static str) {
    match version {
        Version::HTTP_10 | Version::HTTP_09 => (10, "HTTP/1.0"),
        Version::HTTP_2 => (20, "HTTP/2.0"),
        Version::HTTP_3 => (30, "HTTP/3.0"),
        _ => (11, "HTTP/1.1"),
    }
}

/// Writes every variable; `length` is the text of `CONTENT_LENGTH`.
pub(crate) fn write_variables(
    frame: &mut impl Sink,
    parts: &Parts,
    context: &RequestContext,
    length: &[u8],
) {
    let (_, name) = protocol(parts.version);
    let script = &context.script;
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());

    frame.pair(b"SCRIPT_FILENAME", script.filename.as_os_str().as_bytes());
    frame.pair(b"QUERY_STRING", parts.uri.query().unwrap_or("").as_bytes());
    frame.pair(b"REQUEST_METHOD", parts.method.as_str().as_bytes());
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    frame.pair(b"CONTENT_TYPE", content_type);
    frame.pair(b"CONTENT_LENGTH", length);
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
    // nginx's $document_uri: the script's name and the path after it
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
    frame.pair(b"REMOTE_ADDR", number.of_ip(context.remote.ip().to_canonical()));
    frame.pair(b"REMOTE_PORT", number.of_port(context.remote.port()));
    frame.pair(b"REMOTE_USER", context.remote_user.as_deref().unwrap_or("").as_bytes());
    frame.pair(b"SERVER_ADDR", number.of_ip(context.local.ip().to_canonical()));
    frame.pair(b"SERVER_PORT", number.of_port(context.server_port));
    frame.pair(b"SERVER_NAME", context.server_name.as_bytes());
    frame.pair(b"REDIRECT_STATUS", b"200");
    frame.pair(b"HEARTH_REQUEST_ID", context.id.0.as_bytes());
    for (name, value) in &context.variables {
        frame.pair(name.as_bytes(), value);
    }
    let trace = context.trace.as_ref().map(|trace| trace.context().traceparent());
    if let Some(trace) = &trace {
        frame.pair(b"HTTP_TRACEPARENT", trace.as_bytes());
    }
    write_fields(frame, parts, trace.is_some());
}

/// Writes the header fields as `HTTP_*`; several of one name are joined as in RFC 9110 section 5.3. `traced` means
/// that PHP must not see the client's `traceparent`.
fn write_fields(frame: &mut impl Sink, parts: &Parts, traced: bool) {
    if let (None, Some(authority)) = (parts.headers.get(HOST), parts.uri.authority()) {
        frame.pair(b"HTTP_HOST", authority.as_str().as_bytes()); // RFC 9113 section 8.3.1
    }
    let mut variable = Vec::with_capacity(64);
    for name in parts.headers.keys() {
        if !reaches_php(name) || (traced && name == TRACEPARENT) {
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

/// Returns whether PHP may see a field: see the invariants above.
pub(crate) fn reaches_php(name: &HeaderName) -> bool {
    name != "proxy"
        && name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn write_joined(frame: &mut impl Sink, variable: &[u8], parts: &Parts, name: &HeaderName) {
    let comma: &[u8] = if name == COOKIE { b"; " } else { b", " }; // RFC 9113 section 8.2.3
    let values = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let joined = values.collect::<Vec<_>>().join(comma);
    frame.pair(variable, &joined);
}

/// Formats addresses and numbers without allocating. `core::fmt` would cost a tenth of all the server's work for a
/// request.
struct Number {
    place: [u8; 48],
}

impl Number {
    /// Writes an IPv4 address, or an IPv6 address as in RFC 5952.
    fn of_ip(&mut self, ip: IpAddr) -> &[u8] {
        let length = match ip {
            IpAddr::V4(ip) => {
                let mut at = 0;
                for (index, octet) in ip.octets().into_iter().enumerate() {
                    if index > 0 {
                        self.put(&mut at, b'.');
                    }
                    self.digits(&mut at, octet.into());
                }
                at
            }
            IpAddr::V6(ip) => {
                let mut rest = &mut self.place[..];
                let fits = write!(rest, "{ip}").is_ok();
                debug_assert!(fits, "an address has at most 45 characters");
                let left = rest.len();
                self.place.len() - left
            }
        };
        self.place.get(..length).unwrap_or_default()
    }

    fn of_port(&mut self, port: u16) -> &[u8] {
        let mut at = 0;
        self.digits(&mut at, port);
        self.place.get(..at).unwrap_or_default()
    }

    fn digits(&mut self, at: &mut usize, number: u16) {
        let mut divisor = match number {
            0..10 => 1,
            10..100 => 10,
            100..1_000 => 100,
            1_000..10_000 => 1_000,
            10_000.. => 10_000,
        };
        while divisor > 0 {
            let digit = u8::try_from(number / divisor % 10).unwrap_or(0);
            self.put(at, b'0' + digit);
            divisor /= 10;
        }
    }

    fn put(&mut self, at: &mut usize, byte: u8) {
        if let Some(place) = self.place.get_mut(*at) {
            *place = byte;
        }
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use http::{HeaderName, Request};
    use proptest::prelude::*;
    use wire::FromServer;

    use super::*;
    use crate::context::{RequestId, Script};

    fn context() -> RequestContext {
        RequestContext {
            script: Script {
                filename: Arc::from(Path::new("/srv/index.php")),
                name: Arc::from("/index.php"),
                path_info: Arc::from(""),
                document_root: Arc::from(Path::new("/srv")),
            },
            remote: "[::ffff:192.0.2.7]:1234".parse().expect("an address"),
            local: "[2001:db8::1]:80".parse().expect("an address"),
            scheme: Scheme::Http,
            server_name: Arc::from("example.org"),
            server_port: 8080,
            remote_user: None,
            id: RequestId(Arc::from("id")),
            hints: None,
            observer: None,
            deadline: None,
            trace: None,
            variables: Vec::new(),
        }
    }

    fn written(request: Request<()>) -> Vec<(String, Vec<u8>)> {
        let mut buffer = Vec::new();
        let (parts, ()) = request.into_parts();
        write_request(&mut buffer, &parts, &context(), None).expect("it fits");
        let header =
            wire::peek(&buffer, wire::Sender::ServerToWorker).expect("good").expect("whole");
        let payload = buffer.split_off(wire::HEADER_LEN);
        let Ok(FromServer::Request { head, last: true }) = FromServer::decode(header, &payload)
        else {
            panic!("a request without a body")
        };
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).expect("names are ASCII");
        head.pairs.map(|(name, value)| (text(name), value.to_vec())).collect()
    }

    #[test]
    fn addresses_are_written_as_php_expects_them() {
        let variables = written(Request::get("/").body(()).expect("a request"));
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(value("REMOTE_ADDR").as_deref(), Some("192.0.2.7"), "no ::ffff: prefix");
        assert_eq!(value("SERVER_ADDR").as_deref(), Some("2001:db8::1"));
        assert_eq!(value("SERVER_PORT").as_deref(), Some("8080"));
        assert_eq!(value("HTTPS"), None);
    }

    #[test]
    fn an_http_2_request_has_its_authority_as_host() {
        let request = Request::get("https://example.org:8443/path").body(()).expect("a request");
        let variables = written(request);
        assert!(variables.contains(&("HTTP_HOST".to_owned(), b"example.org:8443".to_vec())));
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_core_writes_them(ip in any::<IpAddr>(), port in any::<u16>()) {
            let mut number = Number { place: [0; 48] };
            prop_assert_eq!(String::from_utf8_lossy(number.of_ip(ip)), ip.to_string());
            prop_assert_eq!(String::from_utf8_lossy(number.of_port(port)), port.to_string());
        }

        #[test]
        fn fields_become_http_variables_and_nothing_else(
            fields in proptest::collection::vec(("[!#$%&'*+.^_`|~0-9a-z-]{1,20}", "[ -~]{0,20}"), 0..30)
        ) {
            let without = written(Request::get("/?q").body(()).expect("a request")).len();
            let mut request = Request::get("/?q");
            for (name, value) in &fields {
                request = request.header(name, value);
            }
            let variables = written(request.body(()).expect("a request"));
            let own = ["CONTENT_TYPE", "CONTENT_LENGTH"];
            for (name, _) in variables.iter().skip(without) {
                prop_assert!(name.starts_with("HTTP_"), "{} comes from a field", name);
            }
            for (name, value) in variables.iter().take(without) {
                prop_assert!(!name.starts_with("HTTP_") , "{} is ours", name);
                if !own.contains(&name.as_str()) {
                    let unset = written(Request::get("/?q").body(()).expect("a request"));
                    prop_assert!(unset.contains(&(name.clone(), value.clone())), "{} cannot be set", name);
                }
            }
            let mut names: Vec<&String> = variables.iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            names.dedup();
            let distinct: std::collections::HashSet<HeaderName> = fields
                .iter()
                .filter(|(name, _)| !name.contains('_') && name != "proxy")
                .map(|(name, _)| name.parse().expect("a token"))
                .collect();
            prop_assert!(variables.len() <= without + distinct.len());
            prop_assert!(!variables.iter().any(|(name, _)| name == "HTTP_PROXY"));
        }
    }
}
