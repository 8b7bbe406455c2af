//! A request as each protocol wants it.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::Body;

use crate::upload::Upload;
use crate::{CallBody, CallError, Key, Scheme, proxy};

/// A request without its body.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    authority: Authority,
    path: PathAndQuery,
    headers: HeaderMap,
    extensions: http::Extensions,
}

impl Head {
    /// Takes a request apart; declines what no connection may carry.
    pub(crate) fn new(request: Request<CallBody>) -> Result<(Self, CallBody), CallError> {
        let (parts, body) = request.into_parts();
        if parts.method == Method::CONNECT {
            return Err(CallError::unsupported("CONNECT is a tunnel, not a call"));
        }
        // How a body is framed is decided here, on each hop anew (RFC 9112, 6.1): whoever says it for us wants something else.
        if parts.headers.contains_key(TRANSFER_ENCODING) || parts.headers.contains_key(UPGRADE) {
            return Err(CallError::unsupported("Transfer-Encoding and Upgrade are not passed on"));
        }
        if parts.headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
            return Err(CallError::unsupported("There is more than one Content-Length"));
        }
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
            headers: parts.headers,
            extensions: parts.extensions,
        };
        Ok((head, body))
    }

    /// With `Expect: 100-continue`.
    pub(crate) fn expectant(&self) -> bool {
        self.headers
            .get(EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    }

    /// For HTTP/1.1: the path alone, or the whole target for a proxy; with Host.
    pub(crate) fn http1(self, key: &Key, body: Upload) -> Result<Request<Upload>, CallError> {
        let mut headers = self.headers;
        if !headers.contains_key(HOST) {
            // Whoever sees a request's fields in order expects it first.
            let mut with_host = HeaderMap::with_capacity(headers.len() + 1);
            with_host.insert(HOST, field(self.authority.as_str())?);
            with_host.extend(headers);
            headers = with_host;
        }
        if !body.is_end_stream()
            && body.size_hint().exact().is_none()
            && !headers.contains_key(CONTENT_LENGTH)
        {
            // hyper would drop the body of a GET otherwise.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let proxied =
            key.proxy.as_ref().filter(|proxy| proxy.kind.http() && key.scheme == Scheme::Http);
        let uri = match proxied {
            None => Uri::from(self.path),
            Some(proxy) => {
                if let Some(basic) = proxy::basic(proxy) {
                    headers.insert(PROXY_AUTHORIZATION, field(&basic)?);
                }
                let mut parts = http::uri::Parts::default();
                parts.scheme = Some(http::uri::Scheme::HTTP);
                parts.authority = Some(self.authority);
                parts.path_and_query = Some(self.path);
                Uri::from_parts(parts).map_err(|why| CallError::unsupported(why.to_string()))?
            }
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        *request.extensions_mut() = self.extensions;
        Ok(request)
    }

    /// For HTTP/2: the whole target, without Host and what belongs to a connection (RFC 9113, 8.2.2).
    pub(crate) fn http2(&self, scheme: Scheme, body: &Upload) -> Result<Request<()>, CallError> {
        const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
        const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let hop = [CONNECTION, HOST, KEEP_ALIVE, PROXY_CONNECTION].contains(name);
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
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(self.path.clone());
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() =
            Uri::from_parts(parts).map_err(|why| CallError::unsupported(why.to_string()))?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        Ok(request)
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

    #[test]
    fn what_no_connection_may_carry_is_declined() {
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
    fn http1_has_a_path_and_a_host_in_front() {
        let head = head(Request::get("http://a.test:81/p?q").header("x", "1")).expect("a head");
        let request = head.http1(&key("http://a.test:81"), Upload::Empty).expect("a request");
        assert_eq!(request.uri(), "/p?q");
        let names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["host", "x"]);
        assert_eq!(request.headers()[HOST], "a.test:81");
    }

    #[test]
    fn http1_through_a_proxy_has_the_whole_target() {
        let mut key = key("http://a.test");
        key.proxy = Some(crate::Proxy {
            kind: crate::ProxyKind::Http,
            host: "p.test".into(),
            port: 3128,
            credentials: Some(("u".into(), "p".into())),
            tls: None,
        });
        let head = head(Request::get("http://a.test")).expect("a head");
        let request = head.http1(&key, Upload::Empty).expect("a request");
        assert_eq!(request.uri(), "http://a.test/");
        assert_eq!(request.headers()[PROXY_AUTHORIZATION], "Basic dTpw");
    }

    #[test]
    fn http2_has_no_fields_of_a_connection() {
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
}
