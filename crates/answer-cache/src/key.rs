//! The key under which an answer is stored (RFC 9111, section 2): the whole target URI, and what else may change what PHP
//! answers.
//!
//! Invariants
//! - Keys are compared byte by byte, not by a hash of them.
//! - A field that frameworks read as host, scheme, path or method is part of the key: a client that sends one changes
//!   only what clients get that send the same.

use http::{HeaderMap, HeaderName, Uri, header};

/// The longest key; a request with a longer one is passed on.
const LONGEST: usize = 32 << 10;

/// Fields beside `X-Forwarded-*` that may change the target or the method that an application sees.
const REWRITING: [&str; 14] = [
    "forwarded",
    "front-end-https",
    "x-host",
    "x-original-host",
    "x-http-host-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-url-scheme",
    "x-scheme",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-script-name",
];

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The number of the application that answers.
    pub application: usize,
    /// The client uses TLS, as PHP is told.
    pub secure: bool,
    /// The port that PHP is told.
    pub port: u16,
    /// The host as the client sends it, or as a trusted proxy forwards it.
    pub host: &'a [u8],
    /// Path and query.
    pub uri: &'a Uri,
    /// The request's fields.
    pub headers: &'a HeaderMap,
}

/// The key of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// Returns the key of a target; `None` if it would be too long.
    pub fn of(target: &Target<'_>) -> Option<Self> {
        let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut key = Vec::with_capacity(target.host.len() + path.len() + 24);
        key.extend_from_slice(&u16::try_from(target.application).ok()?.to_be_bytes());
        key.extend_from_slice(&target.port.to_be_bytes());
        key.extend_from_slice(if target.secure { b"https://" } else { b"http://" });
        key.extend(target.host.iter().map(u8::to_ascii_lowercase));
        key.extend_from_slice(path.as_bytes());
        key.push(0);
        add_rewriting(target.headers, &mut key);
        (key.len() <= LONGEST).then_some(Self(key))
    }

    /// Returns the key of another path of the same host, without the request's other fields.
    #[must_use]
    pub fn at(&self, path_and_query: &str) -> Option<Self> {
        let host_end = self.0.get(4..)?.windows(3).position(|part| part == b"://")? + 4 + 3;
        let path = self.0.get(host_end..)?.iter().position(|byte| *byte == b'/')? + host_end;
        let end = self.0.iter().skip(path).position(|byte| *byte == 0)? + path;
        let mut key = self.0.get(..path)?.to_vec();
        key.extend_from_slice(path_and_query.as_bytes());
        key.extend_from_slice(self.0.get(end..)?);
        Some(Self(key))
    }

    /// Returns the bytes of the key that the same target has without fields that rewrite it.
    pub fn target(&self) -> &[u8] {
        target_of(&self.0)
    }

    /// Returns whether the request has fields that rewrite its target.
    pub fn is_rewritten(&self) -> bool {
        self.target().len() < self.0.len()
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the URL within the bytes of a key, for purging.
pub fn url_of(key: &[u8]) -> &[u8] {
    let rest = key.get(4..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns the target within the bytes of a key, or of one that begins with them: the key without what follows the URL.
pub fn target_of(key: &[u8]) -> &[u8] {
    let end = key.get(4..).unwrap_or_default().iter().position(|byte| *byte == 0);
    end.map_or(key, |end| &key[..=4 + end])
}

/// Returns the number of the application within the bytes of a key.
pub fn application_of(key: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*key.first_chunk()?))
}

fn add_rewriting(headers: &HeaderMap, key: &mut Vec<u8>) {
    let rewrites = |name: &&HeaderName| {
        let name = name.as_str();
        (name.starts_with("x-") || name.starts_with('f'))
            && ((name.starts_with("x-forwarded-") && name != "x-forwarded-for")
                || REWRITING.contains(&name))
    };
    let mut names: Vec<&HeaderName> = headers.keys().filter(rewrites).collect();
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    for name in names {
        key.extend_from_slice(name.as_str().as_bytes());
        for value in headers.get_all(name) {
            // No value has this byte (RFC 9110, section 5.5).
            key.push(1);
            if *name == header::FORWARDED {
                add_forwarded(value.as_bytes(), key);
            } else {
                key.extend_from_slice(value.as_bytes());
            }
        }
        key.push(0);
    }
}

/// `Forwarded` without the addresses in it, which differ for each client.
fn add_forwarded(value: &[u8], key: &mut Vec<u8>) {
    for element in value.split(|byte| *byte == b',') {
        for pair in element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
            let name = pair.get(..4).unwrap_or_default().to_ascii_lowercase();
            if name != b"for=" && !name.starts_with(b"by=") {
                key.extend_from_slice(pair);
                key.push(b';');
            }
        }
        key.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn key(host: &str, uri: &str, pairs: &[(&'static str, &str)]) -> Key {
        let headers = headers(pairs);
        let uri = uri.parse().unwrap();
        let target = Target {
            application: 0,
            secure: true,
            port: 443,
            host: host.as_bytes(),
            uri: &uri,
            headers: &headers,
        };
        Key::of(&target).unwrap()
    }

    /// RFC 9111, section 2; RFC 9110, section 4.2.3.
    #[test]
    fn the_key_is_the_whole_target() {
        assert_eq!(key("A.test", "/x?q=1", &[]), key("a.test", "/x?q=1", &[("accept", "x")]));
        for other in [
            key("b.test", "/x?q=1", &[]),
            key("a.test", "/x?q=2", &[]),
            key("a.test", "/X?q=1", &[]),
        ] {
            assert_ne!(key("a.test", "/x?q=1", &[]), other);
        }
        assert_eq!(
            url_of(key("a.test", "/x?q=1", &[("x-host", "b")]).as_bytes()),
            b"https://a.test/x?q=1"
        );
    }

    /// Cache poisoning: fields that rewrite the target.
    #[test]
    fn a_field_that_rewrites_the_target_is_part_of_the_key() {
        let plain = key("a.test", "/", &[]);
        for field in [
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-prefix",
            "x-original-url",
            "x-http-method-override",
            "forwarded",
            "x-host",
        ] {
            assert_ne!(plain, key("a.test", "/", &[(field, "evil.test")]), "{field}");
        }
        assert_eq!(plain, key("a.test", "/", &[("x-forwarded-for", "192.0.2.1")]));
        let forwarded = |value: &str| key("a.test", "/", &[("forwarded", value)]);
        assert_eq!(forwarded("for=192.0.2.1;host=a"), forwarded("For=\"[::1]\"; host=a;by=x"));
        assert_ne!(forwarded("for=192.0.2.1;host=a"), forwarded("for=192.0.2.1;host=b"));
    }

    /// PHP gets several lines of one field as one value with commas.
    #[test]
    fn two_lines_of_a_field_are_not_one_line_with_another_value() {
        let key = |values: &[&str]| {
            let pairs: Vec<_> = values.iter().map(|value| ("x-forwarded-host", *value)).collect();
            key("a.test", "/", &pairs)
        };
        for one in ["a:b", "a,b", "a:", "a"] {
            assert_ne!(key(&[one]), key(&["a", "b"]), "{one}");
            assert_ne!(key(&[one]), key(&["a", ""]), "{one}");
        }
        assert_ne!(key(&["a:b", "c"]), key(&["a", "b:c"]));
    }

    #[test]
    fn a_target_is_the_key_without_fields() {
        let plain = key("a.test", "/x?q", &[]);
        let rewritten = key("a.test", "/x?q", &[("x-forwarded-user", "a"), ("x-host", "b")]);
        assert_eq!((plain.target(), plain.is_rewritten()), (plain.as_bytes(), false));
        assert_eq!((rewritten.target(), rewritten.is_rewritten()), (plain.as_bytes(), true));
        assert_ne!(key("a.test", "/x?q1", &[]).target(), plain.target());
    }

    #[test]
    fn a_sibling_has_the_same_host_and_fields() {
        let fields = [("x-forwarded-proto", "http")];
        assert_eq!(key("a.test", "/x?q", &fields).at("/y"), Some(key("a.test", "/y", &fields)));
    }

    #[test]
    fn a_key_has_a_bound() {
        let headers = HeaderMap::new();
        let uri = "/".parse().unwrap();
        let host = vec![b'a'; LONGEST];
        let target = Target {
            application: 0,
            secure: false,
            port: 80,
            host: &host,
            uri: &uri,
            headers: &headers,
        };
        assert_eq!(Key::of(&target), None);
    }
}
