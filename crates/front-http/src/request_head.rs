//! Normalises a request's head: origin-form target, one valid Host, no field that could pass for another one in CGI.

use std::net::IpAddr;
use std::str::FromStr;

use http::header::{COOKIE, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::answers::Page;
use crate::forwarded::ForwardedInfo;
use crate::front::Limits;
use crate::protocol::Protocol;

/// Methods that any resource may support, for `Allow`.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Reasons why a request ends here.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The request is rejected.
    Refused(Page),
    /// `OPTIONS *`, which concerns the server and not a resource.
    AboutServer,
}

fn bad_request(says: &'static str) -> Stop {
    Stop::Refused(Page::new(StatusCode::BAD_REQUEST, says).closing())
}

/// Validates and normalises a request. Afterwards `uri` is in origin form and `Host` is present, except in HTTP/1.0.
pub(crate) fn normalise(parts: &mut Parts, limits: &Limits) -> Result<(), Stop> {
    if parts.method == Method::CONNECT || parts.method == Method::TRACE {
        return Err(Stop::Refused(Page::method_not_allowed(ALLOW).closing()));
    }
    let target = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if target.len() > limits.max_uri {
        let page = Page::new(StatusCode::URI_TOO_LONG, "The request's address is too long.");
        return Err(Stop::Refused(page));
    }
    if let Some(refused) = refused_coding(&parts.headers) {
        return Err(refused);
    }
    let protocol = Protocol::of(parts.version);
    // An absolute-form target does not replace a Host field that is missing, repeated or invalid (RFC 9112, section
    // 3.2).
    let mut hosts = parts.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_valid_host(host.as_bytes()) => {}
        (None, None) if !protocol.demands_host() => {}
        (None, None) if protocol.has_pseudo_headers() && parts.uri.authority().is_some() => {}
        (None, None) => return Err(bad_request("The request names no host.")),
        _ => return Err(bad_request("The request's Host field is not valid.")),
    }
    adopt_authority(parts, protocol)?;
    if parts.uri.path() == "*" {
        let about_server = parts.method == Method::OPTIONS;
        return Err(if about_server {
            Stop::AboutServer
        } else {
            bad_request("The request's target is not valid.")
        });
    }
    if protocol.multiplexed() {
        join_cookies(parts);
        // hyper has already counted the fields of HTTP/1.1.
        if parts.headers.len() > limits.max_headers {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(Stop::Refused(Page::new(
                status,
                "The request has too many header fields.",
            )));
        }
    }
    drop_impostors(parts);
    Ok(())
}

/// Rejects every `Transfer-Encoding` except `chunked`. hyper checks only the last coding, and would pass on the body
/// of
/// `gzip, chunked` as if it were not compressed; 501 is the status for unknown codings (RFC 9112, section 6.1).
fn refused_coding(headers: &HeaderMap) -> Option<Stop> {
    if !headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    let values = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let codings: Vec<&[u8]> = codings.map(<[u8]>::trim_ascii).collect();
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if let [coding] = codings[..]
        && is_chunked(coding)
    {
        return None;
    }
    // `chunked` twice, or an empty list element, is not a valid message (RFC 9112, section 6.1).
    let chunked = codings.iter().filter(|coding| is_chunked(coding)).count();
    Some(if chunked != 1 || codings.iter().any(|coding| coding.is_empty()) {
        bad_request("The request's Transfer-Encoding is not valid.")
    } else {
        let says = "Of transfer codings this server knows chunked alone.";
        Stop::Refused(Page::new(StatusCode::NOT_IMPLEMENTED, says).closing())
    })
}

/// Replaces the Host field by the host of an absolute-form target or of `:authority` (RFC 9112, section 3.2.2). A
/// target in origin form has none. Authority form is for CONNECT only (section 3.2.3).
fn adopt_authority(parts: &mut Parts, protocol: Protocol) -> Result<(), Stop> {
    let Some(authority) = parts.uri.authority() else { return Ok(()) };
    let text = authority.as_str();
    if text.contains('@') {
        return Err(bad_request("The request's target has a user in it."));
    }
    let scheme = parts.uri.scheme();
    let is_http = scheme == Some(&Scheme::HTTP) || scheme == Some(&Scheme::HTTPS);
    if !is_http || text.is_empty() || !is_valid_host(text.as_bytes()) {
        return Err(bad_request("The request's target is not valid."));
    }
    let same = parts.headers.get(HOST).is_some_and(|host| host.as_bytes() == text.as_bytes());
    if !same || !protocol.has_pseudo_headers() {
        let value = HeaderValue::from_str(text)
            .map_err(|_invalid| bad_request("The request's target is not valid."))?;
        parts.headers.insert(HOST, value);
    }
    let target = std::mem::take(&mut parts.uri).into_parts().path_and_query;
    parts.uri = Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Ok(())
}

/// Returns whether the text is a name or an address, possibly with a port up to 65535, without characters of markup or
/// paths.
pub(crate) fn is_valid_host(host: &[u8]) -> bool {
    has_characters_of_host(host) && has_valid_port(host)
}

/// Returns whether the text has only characters of names, addresses and ports.
pub(crate) fn has_characters_of_host(host: &[u8]) -> bool {
    host.iter().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
    })
}

/// Returns whether nothing but a port follows the name or the address in brackets. Rules compare hosts without the
/// port, and an application may cut off any number.
fn has_valid_port(host: &[u8]) -> bool {
    let (name, port) = match host.iter().position(|byte| matches!(byte, b'[' | b']')) {
        Some(0) => {
            let Some(end) = host.iter().position(|byte| *byte == b']') else { return false };
            host.split_at(end + 1)
        }
        Some(_) => return false,
        None => host.split_at(host.iter().position(|byte| *byte == b':').unwrap_or(host.len())),
    };
    let port = match port {
        [] | [b':'] => return !name.ends_with(b"[]"),
        [b':', port @ ..] => port,
        _ => return false,
    };
    std::str::from_utf8(port).is_ok_and(|port| port.parse::<u16>().is_ok())
}

/// Drops fields with an underscore and `Proxy`, as nginx and php-fpm do. CGI turns `X-Forwarded-For` and
/// `X_Forwarded_For` into one variable, and `Proxy` into the `HTTP_PROXY` that HTTP clients obey (CVE-2016-5385).
fn drop_impostors(parts: &mut Parts) {
    let is_impostor =
        |name: &HeaderName| name.as_str().as_bytes().contains(&b'_') || name == "proxy";
    if parts.headers.keys().any(is_impostor) {
        let names: Vec<HeaderName> =
            parts.headers.keys().filter(|name| is_impostor(name)).cloned().collect();
        for name in names {
            parts.headers.remove(name);
        }
    }
}

/// Joins several cookie fields of HTTP/2 into the one that CGI has (RFC 9113, section 8.2.3).
fn join_cookies(parts: &mut Parts) {
    let cookies: Vec<&[u8]> =
        parts.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        parts.headers.insert(COOKIE, joined);
    }
}

/// Returns the requested host without a port: that of `forwarded` if given, otherwise the Host field's.
pub(crate) fn host_of<'r>(
    forwarded: Option<&'r ForwardedInfo>,
    headers: &'r HeaderMap,
) -> Option<&'r str> {
    host_and_port(forwarded, headers).map(|(host, _)| host)
}

/// Returns the requested host like [`host_of`], and its port if it is written there.
pub(crate) fn host_and_port<'r>(
    forwarded: Option<&'r ForwardedInfo>,
    headers: &'r HeaderMap,
) -> Option<(&'r str, Option<u16>)> {
    let forwarded = forwarded.and_then(|forwarded| forwarded.host.as_deref());
    let forwarded = forwarded.filter(|host| is_valid_host(host.as_bytes()));
    let host = forwarded.or_else(|| headers.get(HOST)?.to_str().ok());
    host.map(split_host)
}

/// Splits a Host field into name and port. An IPv6 address keeps its brackets, as in `SERVER_NAME`.
pub(crate) fn split_host(host: &str) -> (&str, Option<u16>) {
    let Some((name, port)) = host.rsplit_once(':') else { return (host, None) };
    if name.starts_with('[') != name.ends_with(']') {
        return (host, None);
    }
    match u16::from_str(port) {
        Ok(port) => (name, Some(port)),
        Err(_) if port.is_empty() => (name, None),
        Err(_) => (host, None),
    }
}

/// Formats an address as in `SERVER_NAME`.
pub(crate) fn name_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;
    use crate::pace::PaceLimits;

    const LIMITS: Limits = Limits {
        max_body: 0,
        max_uri: 100,
        max_headers: 100,
        max_head: 100,
        pace: PaceLimits::NONE,
    };

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_host_splits_into_name_and_port() {
        for (host, expected) in [
            ("a.example", ("a.example", None)),
            ("a.example:80", ("a.example", Some(80))),
            ("a.example:", ("a.example", None)),
            ("[::1]", ("[::1]", None)),
            ("[::1]:8080", ("[::1]", Some(8080))),
        ] {
            assert_eq!(split_host(host), expected, "{host}");
        }
    }

    #[test]
    fn an_absolute_target_replaces_the_host() {
        let mut parts =
            parts(http::Request::get("http://right.example/a?b").header("host", "wrong.example"));
        normalise(&mut parts, &LIMITS).unwrap();
        assert_eq!(
            (parts.uri.to_string().as_str(), &parts.headers[HOST]),
            ("/a?b", &HeaderValue::from_static("right.example"))
        );
    }

    #[test]
    fn ambiguous_field_names_are_dropped() {
        let mut parts = parts(
            http::Request::get("/")
                .header("host", "a")
                .header("proxy", "http://evil.example")
                .header("x_forwarded_for", "1.1.1.1")
                .header("x-kept", "1"),
        );
        normalise(&mut parts, &LIMITS).unwrap();
        let names: Vec<&str> = parts.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["host", "x-kept"]);
    }

    #[test]
    fn cookies_of_http_2_become_one_field() {
        let mut parts = parts(
            http::Request::get("https://a/")
                .version(Version::HTTP_2)
                .header("cookie", "a=1")
                .header("cookie", "b=2"),
        );
        normalise(&mut parts, &LIMITS).unwrap();
        assert_eq!(parts.headers[COOKIE], "a=1; b=2");
    }

    #[test]
    fn hosts_with_anything_but_a_name_are_refused() {
        for host in ["a b", "a/b", "a<script>", "user@a", "a\\b", "a?b"] {
            let mut parts = parts(http::Request::get("/").header("host", host));
            assert!(normalise(&mut parts, &LIMITS).is_err(), "{host}");
        }
        for host in ["a:65536", "a:99999", "a:80:80", "a:b", "a:-1", "a:80a", ":99999"] {
            assert!(!is_valid_host(host.as_bytes()), "{host}");
        }
        for host in
            ["::1", "[::1", "::1]", "[::1]]", "[[::1]]", "[::1]80", "[::1]:65536", "a[::1]", "[]"]
        {
            assert!(!is_valid_host(host.as_bytes()), "{host}");
        }
        for host in
            ["", "a", "a.", "a:", "a:0", "a:80", "a:65535", "a:0000000443", "[::1]", "[::1]:443"]
        {
            assert!(is_valid_host(host.as_bytes()), "{host}");
        }
    }
}
