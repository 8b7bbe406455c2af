//! Redirects: the new target, and the request that is sent there (RFC 9110, 15.4; the Fetch standard, "HTTP-redirect fetch").

use http::{HeaderMap, HeaderName, Method, header};

use crate::settings::Follow;
use crate::target::Target;

/// How a redirected request is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Onward {
    /// Repeat the method and the body.
    Same,
    /// GET, or HEAD if it was HEAD, without a body.
    Get,
}

/// Returns how to follow a response with this status; `None`: it is not a redirect, or must not be followed.
pub(crate) fn onward(
    follow: Follow,
    status: u16,
    method: &Method,
    followed: u32,
) -> Option<Onward> {
    let browsers = match follow {
        Follow::No => return None,
        Follow::First if followed > 0 => return None,
        Follow::AsWritten => false,
        Follow::AsBrowsers | Follow::First => true,
    };
    match status {
        301 | 302 if browsers && *method == Method::POST => Some(Onward::Get),
        303 if !matches!(*method, Method::GET | Method::HEAD) => Some(Onward::Get),
        301 | 302 | 303 | 307 | 308 => Some(Onward::Same),
        _ => None,
    }
}

/// Returns whether it is a redirect at all.
pub(crate) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Removes fields that must not be sent again: fields of a dropped body, and secrets if the origin changes.
pub(crate) fn strip(headers: &mut HeaderMap, onward: Onward, other_origin: bool) {
    if onward == Onward::Get {
        for name in [
            header::CONTENT_TYPE,
            header::CONTENT_ENCODING,
            header::CONTENT_LANGUAGE,
            header::CONTENT_LOCATION,
            header::CONTENT_RANGE,
            header::EXPECT,
        ] {
            headers.remove(name);
        }
    }
    if other_origin {
        const SECRETS: [HeaderName; 4] =
            [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION, header::HOST];
        for name in SECRETS {
            headers.remove(name);
        }
    }
}

/// Returns whether both have the same origin, to which secrets may be sent: the same scheme, host and port.
pub(crate) fn same_origin(one: &Target, other: &Target) -> bool {
    one.origin() == other.origin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_change_methods_as_rfc_9110_says() {
        use Follow::{AsBrowsers, AsWritten, First, No};
        use Onward::{Get, Same};
        for (follow, status, method, onward_to) in [
            (No, 302, Method::GET, None),
            (AsWritten, 200, Method::GET, None),
            (AsWritten, 304, Method::GET, None),
            (AsWritten, 300, Method::GET, None),
            (AsWritten, 301, Method::POST, Some(Same)),
            (AsWritten, 302, Method::POST, Some(Same)),
            (AsWritten, 303, Method::POST, Some(Get)),
            (AsWritten, 303, Method::PUT, Some(Get)),
            (AsWritten, 303, Method::HEAD, Some(Same)),
            (AsWritten, 307, Method::POST, Some(Same)),
            (AsBrowsers, 301, Method::POST, Some(Get)),
            (AsBrowsers, 302, Method::POST, Some(Get)),
            (AsBrowsers, 301, Method::PUT, Some(Same)),
            (AsBrowsers, 302, Method::DELETE, Some(Same)),
            (AsBrowsers, 308, Method::POST, Some(Same)),
            (AsBrowsers, 303, Method::PATCH, Some(Get)),
            (First, 302, Method::GET, Some(Same)),
        ] {
            assert_eq!(
                onward(follow, status, &method, 0),
                onward_to,
                "{follow:?} {status} {method}"
            );
        }
        assert_eq!(onward(First, 302, &Method::GET, 1), None);
    }

    #[test]
    fn secrets_stay_at_their_origin() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "content-type", "x-mine"] {
            headers.insert(HeaderName::from_static(name), "1".parse().expect("a value"));
        }
        let mut same = headers.clone();
        strip(&mut same, Onward::Same, false);
        assert_eq!(same.len(), 4);
        strip(&mut headers, Onward::Get, true);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-mine"]);
        let parse = |text: &str| Target::parse(text.as_bytes()).expect("a URL");
        assert!(same_origin(&parse("http://a/x"), &parse("http://a:80/y")));
        for other in ["https://a/", "http://a:81/", "http://b.a/", "http://b/"] {
            assert!(!same_origin(&parse("http://a/"), &parse(other)), "{other}");
        }
    }
}
