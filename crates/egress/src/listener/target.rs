//! The origin of a request: the target in absolute form, or a path and `Hearth-Origin`.

use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, Uri};

use super::refusal::Refusal;
use crate::Scheme;

/// Names the origin if the target cannot.
pub(crate) const ORIGIN: HeaderName = HeaderName::from_static("hearth-origin");
/// The host that callers send if they have to send one.
const OURS: &str = "hearth";

/// The origin of a request.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Target {
    /// The scheme.
    pub(crate) scheme: Scheme,
    /// The host, in lower case, without brackets.
    pub(crate) host: String,
    /// The port; the scheme's default if none is named.
    pub(crate) port: u16,
    /// The whole target, in absolute form.
    pub(crate) uri: Uri,
    /// The value of `Host` for the origin: the default port is left out.
    pub(crate) authority: String,
}

/// Parses a target that has to be a URI: hyper answers others by itself, and such an answer could be taken for the
/// origin's.
pub(crate) fn check(written: &str) -> Result<Uri, Refusal> {
    written.parse().map_err(|_invalid| Refusal::target("the target is no URI that we know"))
}

/// Finds the origin. `written`: the target as received, because its [`Uri`] has lost the fragment.
pub(crate) fn target(written: &str, uri: Uri, fields: &HeaderMap) -> Result<Target, Refusal> {
    if written.contains('#') {
        return Err(Refusal::target("the target has a fragment"));
    }
    let mut origins = fields.get_all(ORIGIN).iter();
    let uri = match (origins.next(), origins.next(), uri.scheme().is_some()) {
        (None, _, true) => uri,
        (None, _, false) => {
            return Err(Refusal::target(
                "the target is not absolute, and no Hearth-Origin is there",
            ));
        }
        (Some(origin), None, false) if written.starts_with('/') => {
            let path = uri.path_and_query().cloned();
            joined(origin.as_bytes(), path.unwrap_or_else(|| PathAndQuery::from_static("/")))?
        }
        _ => return Err(Refusal::target("the target and Hearth-Origin name an origin each")),
    };
    let scheme = uri
        .scheme_str()
        .and_then(Scheme::named)
        .ok_or_else(|| Refusal::target("the scheme is neither http nor https"))?;
    let authority = uri.authority().ok_or_else(|| Refusal::target("the target has no host"))?;
    if authority.as_str().contains('@') {
        return Err(Refusal::target("the target holds user information"));
    }
    let host = bare_host(authority);
    let port = port(authority, scheme)?;
    if host.is_empty() {
        return Err(Refusal::target("the target has no host"));
    }
    if let Some(named) = fields.get(HOST)
        && named != authority.as_str()
        && named != OURS
        && !named.is_empty()
    {
        let named: Authority = named.as_bytes().try_into().map_err(|_other| Refusal::host())?;
        if named.as_str().contains('@')
            || bare_host(&named) != host
            || self::port(&named, scheme)? != port
        {
            return Err(Refusal::host());
        }
    }
    let written_host = authority.host();
    let authority = if port == scheme.default_port() {
        written_host.to_owned()
    } else {
        format!("{written_host}:{port}")
    };
    Ok(Target { scheme, host, port, uri, authority })
}

fn joined(origin: &[u8], path: PathAndQuery) -> Result<Uri, Refusal> {
    let wrong = || Refusal::target("Hearth-Origin is not scheme://host[:port]");
    let origin: Uri = origin.try_into().map_err(|_invalid| wrong())?;
    let parts = origin.into_parts();
    let bare = parts.path_and_query.is_none_or(|path| path == "/");
    let (Some(scheme), Some(authority), true) = (parts.scheme, parts.authority, bare) else {
        return Err(wrong());
    };
    Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(path)
        .build()
        .map_err(|_invalid| wrong())
}

fn bare_host(authority: &Authority) -> String {
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.to_ascii_lowercase()
}

fn port(authority: &Authority, scheme: Scheme) -> Result<u16, Refusal> {
    match authority.port() {
        Some(port) if port.as_u16() > 0 => Ok(port.as_u16()),
        Some(_) => Err(Refusal::target("the port is 0")),
        // `host:` has no port, `host:99999` none that exists.
        None if authority.as_str().trim_end_matches(':').len() > authority.host().len() => {
            Err(Refusal::target("the port is no number below 65536"))
        }
        None => Ok(scheme.default_port()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(
        written: &str,
        fields: &[(&'static str, &'static str)],
    ) -> Result<Target, &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        check(written).and_then(|uri| target(written, uri, &map)).map_err(|refusal| refusal.word)
    }

    #[test]
    fn both_forms_name_the_origin() {
        let absolute =
            read("https://API.example.com/a?b=1", &[("host", "api.example.com")]).unwrap();
        assert_eq!(
            (absolute.scheme, &*absolute.host, absolute.port),
            (Scheme::Https, "api.example.com", 443)
        );
        assert_eq!(absolute.uri, "https://API.example.com/a?b=1");
        let named = [("hearth-origin", "https://api.example.com:8443"), ("host", "hearth")];
        let by_field = read("/a?b=1", &named).unwrap();
        assert_eq!((by_field.port, &*by_field.authority), (8443, "api.example.com:8443"));
        assert_eq!(by_field.uri, "https://api.example.com:8443/a?b=1");
        let v6 = read("http://[::1]:80/", &[("host", "[::1]")]).unwrap();
        assert_eq!((&*v6.host, v6.port, &*v6.authority), ("::1", 80, "[::1]"));
    }

    #[test]
    fn a_default_port_may_be_given() {
        assert!(read("http://a.test/", &[("host", "a.test:80")]).is_ok());
        assert!(read("https://a.test:443/", &[("host", "A.test")]).is_ok());
        assert_eq!(read("https://a.test/", &[("host", "a.test:80")]), Err("host"));
    }

    #[test]
    fn ambiguous_targets_are_declined() {
        for (written, fields) in [
            ("/path", &[][..]),
            ("*", &[]),
            ("a.test:443", &[]),
            ("*", &[("hearth-origin", "http://a.test")]),
            ("http://a.test/", &[("hearth-origin", "http://a.test")]),
            ("/", &[("hearth-origin", "http://a.test"), ("hearth-origin", "http://b.test")]),
            ("/", &[("hearth-origin", "a.test")]),
            ("/", &[("hearth-origin", "http://a.test/path")]),
            ("/", &[("hearth-origin", "ftp://a.test")]),
            ("http://user@a.test/", &[]),
            ("http://a.test/#part", &[]),
            ("http://a.test:0/", &[]),
            ("http://a.test:99999/", &[]),
            ("ftp://a.test/", &[]),
            ("http:///path", &[]),
        ] {
            assert_eq!(read(written, fields), Err("target"), "{written} {fields:?}");
        }
        for host in ["b.test", "a.test:81", "a.test, b.test", "x@a.test"] {
            let fields = [("host", host)];
            assert_eq!(read("http://a.test/", &fields), Err("host"), "{host}");
        }
    }
}
