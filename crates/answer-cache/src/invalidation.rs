//! Invalidation by unsafe methods (RFC 9111, section 4.4).

use http::{HeaderMap, Method, StatusCode, header};

/// Returns whether an answer to this method makes the stored answers of its target invalid: it did not fail, and the
/// method is not safe.
pub fn invalidates(method: &Method, status: StatusCode) -> bool {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method);
    !safe && (status.is_success() || status.is_redirection())
}

/// Returns the further paths that such an answer makes invalid: those of `Location` and `Content-Location` on the same
/// host. Paths of other hosts are ignored, so that no site can clear another's.
pub fn other_targets<'h>(headers: &'h HeaderMap, host: &[u8]) -> Vec<&'h str> {
    let fields = [header::LOCATION, header::CONTENT_LOCATION];
    let values = fields.iter().filter_map(|name| headers.get(name)?.to_str().ok());
    values.filter_map(|value| path_here(value, host)).collect()
}

fn path_here<'v>(value: &'v str, host: &[u8]) -> Option<&'v str> {
    let value = value.split('#').next().unwrap_or_default();
    let rest = match value.split_once("://") {
        Some((scheme, rest)) if scheme == "http" || scheme == "https" => rest,
        Some(_) => return None,
        None => match value.strip_prefix("//") {
            Some(rest) => rest,
            None => return value.starts_with('/').then_some(value),
        },
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(end);
    if !named.as_bytes().eq_ignore_ascii_case(host) {
        return None;
    }
    Some(if path.starts_with('/') { path } else { "/" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9111, section 4.4.
    #[test]
    fn only_unsafe_methods_that_did_not_fail_invalidate() {
        for (method, status, invalid) in [
            (Method::POST, 200, true),
            (Method::PUT, 201, true),
            (Method::DELETE, 303, true),
            (Method::from_bytes(b"PURGE").unwrap(), 204, true),
            (Method::POST, 404, false),
            (Method::POST, 500, false),
            (Method::GET, 200, false),
            (Method::OPTIONS, 200, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(invalidates(&method, status), invalid, "{method} {status}");
        }
    }

    #[test]
    fn other_targets_are_on_the_same_host() {
        let targets = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("location", value.parse().unwrap());
            other_targets(&headers, b"a.test:81").first().map(|path| (*path).to_owned())
        };
        assert_eq!(targets("/x?y#z").as_deref(), Some("/x?y"));
        assert_eq!(targets("http://A.test:81/x").as_deref(), Some("/x"));
        assert_eq!(targets("//a.test:81").as_deref(), Some("/"));
        for other in ["http://a.test/x", "http://b.test:81/x", "x", "ftp://a.test:81/x", ""] {
            assert_eq!(targets(other), None, "{other}");
        }
    }
}
