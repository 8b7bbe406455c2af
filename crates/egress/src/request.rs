//! A request in the form that each version of HTTP needs.

use std::sync::Arc;

use ::http1::{Encoder, content_length, put_spelled};
use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::Body;

use crate::upload::Upload;
use crate::{CallBody, CallError, Key, Scheme, proxy};

/// The head of a request as its caller wrote it: an extension of the request. Its field names are spelled the same on the way out.
#[derive(Clone, Debug)]
pub(crate) struct Spelled(pub(crate) Bytes);

/// Returns whether a request authenticates its connection, not only itself (RFC 4559, 6; MS-NTHT): the next request on
/// it would have the same user.
pub(crate) fn signs_in(fields: &HeaderMap) -> bool {
    const SCHEMES: [&[u8]; 3] = [b"negotiate", b"ntlm", b"kerberos"];
    fields.get_all(AUTHORIZATION).iter().any(|value| {
        let value = value.as_bytes().trim_ascii_start();
        let end = value.iter().position(|byte| !byte.is_ascii_alphanumeric());
        let scheme = &value[..end.unwrap_or(value.len())];
        SCHEMES.iter().any(|of_connections| scheme.eq_ignore_ascii_case(of_connections))
    })
}

/// A request without its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    authority: Authority,
    path: PathAndQuery,
    fields: Fields,
    extensions: http::Extensions,
}

/// The fields of a request.
#[derive(Debug)]
enum Fields {
    Own(HeaderMap),
    Shared(Arc<SharedFields>),
}

impl Fields {
    fn map(&self) -> &HeaderMap {
        match self {
            Self::Own(headers) => headers,
            Self::Shared(shared) => &shared.headers,
        }
    }
}

/// The fields of many requests without a body, checked and encoded once.
#[derive(Debug)]
pub struct SharedFields {
    headers: HeaderMap,
    /// The field lines of HTTP/1.1.
    lines: Vec<u8>,
}

impl SharedFields {
    /// Checks and encodes fields. Declines those that no request can have, and those that authenticate a connection.
    pub fn new(headers: HeaderMap) -> Result<Self, CallError> {
        check(&headers)?;
        if signs_in(&headers) {
            return Err(CallError::unsupported("Fields that sign in a connection are not shared"));
        }
        let mut lines = Vec::new();
        put_spelled(&mut lines, &headers, None);
        Ok(Self { headers, lines })
    }
}

/// Declines a method that is no call.
fn check_method(method: &Method) -> Result<(), CallError> {
    if *method == Method::CONNECT {
        return Err(CallError::unsupported("CONNECT is a tunnel, not a call"));
    }
    Ok(())
}

/// Declines fields that no connection can carry.
fn check(headers: &HeaderMap) -> Result<(), CallError> {
    // How a body is framed is decided here, on each hop again (RFC 9112, 6.1): a caller's own framing is an attack or a mistake.
    if headers.contains_key(TRANSFER_ENCODING) || headers.contains_key(UPGRADE) {
        return Err(CallError::unsupported("Transfer-Encoding and Upgrade are not passed on"));
    }
    if headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(CallError::unsupported("There is more than one Content-Length"));
    }
    Ok(())
}

impl Head {
    /// Takes a request apart; declines one that no connection can carry.
    pub(crate) fn new(request: Request<CallBody>) -> Result<(Self, CallBody), CallError> {
        let (parts, body) = request.into_parts();
        check_method(&parts.method)?;
        check(&parts.headers)?;
        let uri = parts.uri.into_parts();
        let authority =
            uri.authority.ok_or_else(|| CallError::unsupported("The target has no host"))?;
        if authority.as_str().contains('@') {
            return Err(CallError::unsupported("The target names a user"));
        }
        let path = uri.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let head = Self {
            method: parts.method,
            authority,
            path,
            fields: Fields::Own(parts.headers),
            extensions: parts.extensions,
        };
        Ok((head, body))
    }

    /// Puts a request without a body together. `authority` names no user.
    pub(crate) fn shared(
        method: Method,
        authority: Authority,
        path: PathAndQuery,
        fields: Arc<SharedFields>,
    ) -> Result<Self, CallError> {
        check_method(&method)?;
        let fields = Fields::Shared(fields);
        Ok(Self { method, authority, path, fields, extensions: http::Extensions::new() })
    }

    fn headers(&self) -> &HeaderMap {
        self.fields.map()
    }

    /// Returns whether no other caller may use its connection afterwards.
    pub(crate) fn signs_in(&self) -> bool {
        match &self.fields {
            Fields::Own(headers) => signs_in(headers),
            Fields::Shared(_) => false,
        }
    }

    /// Returns whether it has `Expect: 100-continue`.
    pub(crate) fn expectant(&self) -> bool {
        self.headers()
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    }

    /// Encodes the head for HTTP/1.1: the path alone, or the whole target for a proxy; adds Host if it is missing. Returns the body's framing.
    /// `persist`: the peer keeps a connection open only if it is asked to.
    pub(crate) fn put_http1(
        &self,
        key: &Key,
        body: &Upload,
        persist: bool,
        out: &mut Vec<u8>,
    ) -> Result<Encoder, CallError> {
        let framing = self.framing(body)?;
        // A Unix socket is used instead of a proxy: the server behind it must not get the proxy's password.
        let proxied = key
            .proxy
            .as_ref()
            .filter(|proxy| proxy.kind.http() && key.scheme == Scheme::Http && key.unix.is_none());
        let (path, spelled) = (self.path.as_str(), self.extensions.get::<Spelled>());
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        if proxied.is_some() {
            out.extend_from_slice(b"http://");
            out.extend_from_slice(self.authority.as_str().as_bytes());
        }
        // Without one (`http://a.test?query`) it begins with its query.
        if !path.starts_with('/') && path != "*" {
            out.push(b'/');
        }
        out.extend_from_slice(path.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        if !self.headers().contains_key(HOST) {
            // Observers of a request's fields expect it first.
            out.extend_from_slice(b"Host: ");
            out.extend_from_slice(self.authority.as_str().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        let basic = proxied.and_then(proxy::basic);
        let written = spelled.map(|spelled| &*spelled.0);
        match basic {
            None => match &self.fields {
                Fields::Own(headers) => put_spelled(out, headers, written),
                Fields::Shared(shared) => out.extend_from_slice(&shared.lines),
            },
            Some(basic) => {
                let mut headers = self.headers().clone();
                headers.insert(PROXY_AUTHORIZATION, field(&basic)?);
                put_spelled(out, &headers, written);
            }
        }
        match &framing {
            Encoder::Length(length) if !self.headers().contains_key(CONTENT_LENGTH) => {
                out.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
            }
            Encoder::Chunked(_) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Encoder::None | Encoder::Length(_) => {}
        }
        if persist && !self.headers().contains_key(CONNECTION) {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
        Ok(framing)
    }

    fn framing(&self, body: &Upload) -> Result<Encoder, CallError> {
        if body.is_end_stream() {
            return Ok(Encoder::None);
        }
        if self.headers().contains_key(CONTENT_LENGTH) {
            let length = content_length(self.headers());
            let length =
                length.ok_or_else(|| CallError::unsupported("Content-Length is no number"))?;
            return Ok(Encoder::Length(length));
        }
        Ok(match body.size_hint().exact() {
            Some(length) => Encoder::Length(length),
            None => Encoder::Chunked(self.headers().get_all(TRAILER).iter().cloned().collect()),
        })
    }

    /// Builds the head for HTTP/2: the whole target, without connection fields (RFC 9113, 8.2.2). Host becomes the authority (8.3.1).
    pub(crate) fn http2(&self, scheme: Scheme, body: &Upload) -> Result<Request<()>, CallError> {
        const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
        const ALIVE: HeaderName = HeaderName::from_static("keep-alive");

        let mut headers = HeaderMap::with_capacity(self.headers().len());
        for (name, value) in self.headers() {
            let hop = [CONNECTION, HOST, ALIVE, PROXY_CONNECTION].contains(name);
            if hop || (name == TE && value != "trailers") {
                continue;
            }
            headers.append(name.clone(), value.clone());
        }
        if !body.is_end_stream()
            && let Some(length) = body.size_hint().exact()
            && !headers.contains_key(CONTENT_LENGTH)
        {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(match scheme {
            Scheme::Http => http::uri::Scheme::HTTP,
            Scheme::Https => http::uri::Scheme::HTTPS,
        });
        parts.authority = Some(self.named()?);
        parts.path_and_query = Some(self.path.clone());
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() =
            Uri::from_parts(parts).map_err(|why| CallError::unsupported(why.to_string()))?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// The authority: the caller's Host, as over HTTP/1.1, or the target's.
    fn named(&self) -> Result<Authority, CallError> {
        let mut hosts = self.headers().get_all(HOST).iter();
        match (hosts.next(), hosts.next()) {
            (None, _) => Ok(self.authority.clone()),
            (Some(host), None) if host == self.authority.as_str() => Ok(self.authority.clone()),
            (Some(host), None) if !host.as_bytes().contains(&b'@') => {
                let named = Authority::try_from(host.as_bytes());
                named.map_err(|_none| CallError::unsupported("Host is none"))
            }
            _ => Err(CallError::unsupported("Host is none")),
        }
    }
}

fn field(text: &str) -> Result<HeaderValue, CallError> {
    HeaderValue::from_str(text)
        .map_err(|_bytes| CallError::unsupported("The target is no field value"))
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Empty};

    use super::*;
    use crate::testing::key;

    fn head(request: http::request::Builder) -> Result<Head, CallError> {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        Head::new(request.body(body).expect("a request")).map(|(head, _)| head)
    }

    fn written(head: &Head, key: &Key) -> String {
        let mut out = Vec::new();
        let framing = head.put_http1(key, &Upload::Empty, false, &mut out).expect("a request");
        assert_eq!(framing, Encoder::None);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn forbidden_requests_are_declined() {
        let post = || Request::post("http://a.test/");
        for request in [
            Request::builder().method("CONNECT").uri("a.test:443"),
            post().header("transfer-encoding", "chunked").header("content-length", "3"),
            post().header("transfer-encoding", "chunked"),
            post().header("content-length", "3").header("content-length", "4"),
            post().header("upgrade", "websocket"),
            Request::get("/path"),
            Request::get("http://user@a.test/"),
        ] {
            let error = head(request).expect_err("declined");
            assert_eq!(
                (error.fate, error.reason),
                (crate::Fate::Declined, crate::Reason::Unsupported)
            );
        }
    }

    #[test]
    fn connection_based_logins_are_recognised() {
        for (value, signs) in [
            ("Negotiate YII=", true),
            ("  nTlM\tTlRM", true),
            ("KERBEROS", true),
            ("Basic dTpw", false),
            ("Negotiated x", false),
            ("Bearer NTLM", false),
            ("", false),
        ] {
            let head = head(Request::get("http://a.test/").header("authorization", value));
            assert_eq!(head.expect("a head").signs_in(), signs, "{value}");
        }
    }

    #[test]
    fn http1_has_a_path_and_a_host_in_front() {
        let head = head(Request::get("http://a.test:81/p?q").header("x", "1")).expect("a head");
        assert_eq!(
            written(&head, &key("http://a.test:81")),
            "GET /p?q HTTP/1.1\r\nHost: a.test:81\r\nX: 1\r\n\r\n"
        );
    }

    fn proxy() -> crate::Proxy {
        crate::Proxy {
            kind: crate::ProxyKind::Http,
            host: "p.test".into(),
            port: 3128,
            credentials: Some(("u".into(), "p".into())),
            tls: None,
        }
    }

    #[test]
    fn http1_through_a_proxy_has_the_whole_target() {
        let mut key = key("http://a.test");
        key.proxy = Some(proxy());
        let head = head(Request::get("http://a.test")).expect("a head");
        assert_eq!(
            written(&head, &key),
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
        );
    }

    #[test]
    fn shared_fields_are_written_as_a_requests_own() {
        let own = head(Request::get("http://a.test:81/p?q").header("x-a", "1").header("B", ""));
        let own = own.expect("a head");
        let fields = Arc::new(SharedFields::new(own.headers().clone()).expect("fields"));
        let (authority, path) = (own.authority.clone(), own.path.clone());
        let shared = Head::shared(Method::GET, authority, path, fields).expect("a head");
        let mut key = key("http://a.test:81");
        assert_eq!(written(&shared, &key), written(&own, &key));
        key.proxy = Some(proxy());
        assert_eq!(written(&shared, &key), written(&own, &key));
        assert!(written(&own, &key).contains("Proxy-Authorization"));
        for (name, value) in [("upgrade", "x"), ("authorization", "NTLM x")] {
            let name = HeaderName::from_static(name);
            let fields = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            assert!(SharedFields::new(fields).is_err(), "{value}");
        }
    }

    #[test]
    fn http2_drops_connection_fields() {
        let request = Request::get("https://a.test/p")
            .header("Host", "a.test")
            .header("A", "1")
            .header("Connection", "keep-alive")
            .header("TE", "gzip")
            .header("TE", "trailers")
            .header("B", "2");
        let request = head(request).expect("a head").http2(Scheme::Https, &Upload::Empty);
        let request = request.expect("a request");
        assert_eq!(request.uri(), "https://a.test/p");
        let fields: Vec<_> = request.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(fields, ["a", "te", "b"]);
    }

    #[test]
    fn http2_authority_is_the_host_field() {
        let named = |hosts: &[&str]| {
            let request = Request::get("https://a.test/p");
            let request = hosts.iter().fold(request, |request, host| request.header("Host", *host));
            head(request).expect("a head").http2(Scheme::Https, &Upload::Empty)
        };
        for (hosts, uri) in [
            (vec![], "https://a.test/p"),
            (vec!["a.test"], "https://a.test/p"),
            (vec!["tenant.test:81"], "https://tenant.test:81/p"),
        ] {
            let request = named(&hosts).expect("a request");
            assert_eq!(request.uri(), uri);
            assert!(!request.headers().contains_key(HOST));
        }
        for hosts in [vec![""], vec!["a b"], vec!["a@b.test"], vec!["a.test", "a.test"]] {
            let error = named(&hosts).expect_err("it names no host");
            assert_eq!(error.reason, crate::Reason::Unsupported, "{hosts:?}");
        }
    }
}
