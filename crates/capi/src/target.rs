//! URLs, parsed strictly: the URL that was set is the one that is called.
//!
//! Invariants
//! - A target's text is one line of printable ASCII: scheme, authority without user information, path and query; no fragment.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use url::Url;

use crate::error::Refused;

/// The target of a request. A clone shares the text. Its parts are found in the text each time: tens of thousands of targets may wait.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    text: Arc<str>,
}

/// The longest URL.
const LONGEST: usize = 64 << 10;

impl Target {
    /// Parses an absolute URL.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Refused> {
        let refuse = |what: &str| Err(Refused::invalid(format!("URL: {what}")));
        let Ok(text) = str::from_utf8(text) else { return refuse("it is no UTF-8") };
        if text.len() > LONGEST {
            return refuse("it is longer than 65536 bytes");
        }
        if plain(text).is_some() {
            return Ok(Self { text: text.into() });
        }
        // The URL standard removes these silently; a URL that has them is a mistake or an attack.
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return refuse("there are spaces or control characters in it");
        }
        if text.split(['?', '#']).next().is_some_and(|before| before.contains('\\')) {
            return refuse("there is a backslash in it");
        }
        match Url::parse(text) {
            Ok(url) => Self::from_url(url),
            Err(why) => refuse(&format!("{why}")),
        }
    }

    /// Parses the URL of a mail server, `smtp://host:port/name`: the name is the one in EHLO.
    pub(crate) fn parse_mail(text: &[u8]) -> Result<Self, Refused> {
        let refuse = |what: &str| Refused::invalid(format!("URL: {what}"));
        let text = str::from_utf8(text).map_err(|_not| refuse("it is no UTF-8"))?;
        let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse("it is not absolute"))?;
        let scheme = scheme.to_ascii_lowercase();
        if rest.contains(['?', '#']) {
            return Err(refuse("a mail server has no query"));
        }
        if !matches!(scheme.as_str(), "smtp" | "smtps") {
            return Err(Refused::unsupported(
                "URL: that of a mail server begins with smtp:// or smtps://",
            ));
        }
        // Parsed with a scheme of the URL standard; `ftp` has a default port that it omits.
        let parsed = Self::parse(format!("ftp://{rest}").as_bytes())?;
        let (host, port) = parsed.host_port();
        let authority = rest.split('/').next().unwrap_or_default();
        let port = port.or_else(|| authority.ends_with(":21").then_some(21));
        let default = if scheme == "smtps" { 465 } else { 25 };
        let name = rest.split_once('/').map_or("", |(_, name)| name);
        let of_name = |c: char| c.is_ascii_alphanumeric() || "-.[]:".contains(c);
        if name.len() > 255 || !name.chars().all(of_name) {
            return Err(refuse("what is behind the host is our own name, and this is none"));
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let text = format!("{scheme}://{host}:{}/{name}", port.unwrap_or(default));
        Ok(Self { text: text.into() })
    }

    fn from_url(mut url: Url) -> Result<Self, Refused> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::invalid("URL: user information belongs into options"));
        }
        url.set_fragment(None);
        if url.scheme() == "file" {
            if url.has_host() {
                return Err(Refused::invalid("URL: a file of another machine cannot be read"));
            }
        } else if !url.has_host() || url.host_str().is_none_or(str::is_empty) {
            return Err(Refused::invalid("URL: there is no host in it"));
        }
        if url.port() == Some(0) {
            return Err(Refused::invalid("URL: port 0 cannot be called"));
        }
        Ok(Self { text: String::from(url).into() })
    }

    /// Splits the text behind scheme and authority. There is no `/` in an authority.
    fn split(&self) -> (&str, &str) {
        let authority = self.scheme().len() + "://".len();
        let rest = self.text.as_bytes().get(authority..).unwrap_or_default();
        let length = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
        let end = authority + length.unwrap_or(rest.len());
        self.text.split_at_checked(end).unwrap_or((&self.text, ""))
    }

    /// Returns the target of `location` relative to this one (RFC 9110, 10.2.2).
    pub(crate) fn join(&self, location: &[u8]) -> Result<Self, Refused> {
        let wrong = || Refused::invalid("URL: Location is none");
        let location = String::from_utf8_lossy(location);
        let location = location.trim_matches([' ', '\t']);
        if location.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(wrong());
        }
        let base = Url::parse(&self.text).map_err(|_none| wrong())?;
        Self::from_url(base.join(location).map_err(|_none| wrong())?)
    }

    /// Returns the scheme of `location` if it cannot be called over HTTP.
    pub(crate) fn foreign_scheme(&self, location: &[u8]) -> Option<String> {
        let location = String::from_utf8_lossy(location);
        let url = Url::parse(&self.text).ok()?.join(location.trim_matches([' ', '\t'])).ok()?;
        let known = matches!(url.scheme(), "http" | "https" | "file");
        (!known).then(|| url.scheme().to_owned())
    }

    /// The text, without a copy.
    pub(crate) fn shared_text(&self) -> Bytes {
        struct Text(Arc<str>);
        impl AsRef<[u8]> for Text {
            fn as_ref(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }
        Bytes::from_owner(Text(Arc::clone(&self.text)))
    }

    /// Path and query, without a copy.
    pub(crate) fn shared_path(&self) -> Bytes {
        let mut text = self.shared_text();
        text.advance(self.origin().len());
        text
    }

    /// Returns the whole URL.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names a local file.
    pub(crate) fn is_file(&self) -> bool {
        self.scheme() == "file"
    }

    /// Returns scheme and authority.
    pub(crate) fn origin(&self) -> &str {
        self.split().0
    }

    /// Returns the scheme, in lower case.
    pub(crate) fn scheme(&self) -> &str {
        let colon = self.text.bytes().position(|byte| byte == b':');
        self.text.get(..colon.unwrap_or_default()).unwrap_or_default()
    }

    pub(crate) fn authority(&self) -> &str {
        self.origin().get(self.scheme().len() + 3..).unwrap_or_default()
    }

    /// Returns path and query, as in a request line.
    pub(crate) fn path(&self) -> &str {
        self.split().1
    }

    /// Returns the host without brackets, and the port if one is named.
    pub(crate) fn host_port(&self) -> (&str, Option<u16>) {
        let authority = self.authority();
        if let Some(rest) = authority.strip_prefix('[') {
            let (host, after) = rest.split_once(']').unwrap_or((rest, ""));
            return (host, after.strip_prefix(':').and_then(|port| port.parse().ok()));
        }
        match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().ok()),
            None => (authority, None),
        }
    }

    /// Adds `name=value` to the query. Both may contain any bytes.
    pub(crate) fn add_query(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refused> {
        let encode = |bytes: &[u8]| percent_encoding::percent_encode(bytes, QUERY).to_string();
        let glue = if !self.path().contains('?') {
            "?"
        } else if self.text.ends_with(['?', '&']) {
            ""
        } else {
            "&"
        };
        let text = format!("{}{glue}{}={}", self.text, encode(name), encode(value));
        if text.len() > LONGEST {
            return Err(Refused::invalid("URL: it is longer than 65536 bytes"));
        }
        self.text = text.into();
        Ok(())
    }
}

/// The characters that are not encoded in a query's names and values: RFC 3986's unreserved characters.
const QUERY: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the length of scheme and authority if the URL is already in the URL standard's form. Most are, and checking
/// is ten times cheaper than parsing. `None`: unknown.
fn plain(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (rest, default): (_, &[u8]) = match bytes.strip_prefix(b"http") {
        Some(rest) => match rest.strip_prefix(b"://") {
            Some(rest) => (rest, b"80"),
            None => (rest.strip_prefix(b"s://")?, b"443"),
        },
        None => return None,
    };
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let (authority, path) = rest.split_at(slash);
    let (host, port) = match authority.iter().position(|byte| *byte == b':') {
        Some(colon) => (authority.get(..colon)?, authority.get(colon + 1..)),
        None => (authority, None),
    };
    let fits = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    if host.is_empty() || host.len() > 253 || !host.iter().all(fits) || memchr(host, b"xn--") {
        return None;
    }
    // A last label that begins with a digit may be an address, written in one of many ways.
    let last = host.rsplit(|byte| *byte == b'.').next()?;
    if last.first().is_none_or(u8::is_ascii_digit) {
        let host = str::from_utf8(host).ok()?;
        host.parse::<std::net::Ipv4Addr>().ok()?;
    }
    if let Some(port) = port {
        let digits = (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
        if !digits || port.starts_with(b"0") || port == default {
            return None;
        }
        str::from_utf8(port).ok()?.parse::<u16>().ok()?;
    }
    let mut before = b' ';
    let mut query = false;
    for byte in path {
        let fits = match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'~'
            | b'!'
            | b'$'
            | b'&'
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b';'
            | b'='
            | b':'
            | b'@'
            | b'/' => true,
            b'.' => query || before != b'/',
            b'%' => query,
            b'?' => {
                query = true;
                true
            }
            _ => false,
        };
        if !fits {
            return None;
        }
        before = *byte;
    }
    Some(text.len() - path.len())
}

fn memchr(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        Target::parse(text.as_bytes())
            .map(|target| target.as_str().to_owned())
            .map_err(|refused| refused.message)
    }

    #[test]
    fn plain_urls_equal_the_standards_form() {
        for text in [
            "http://a/",
            "http://127.0.0.1:8080/x?y=1",
            "https://api.example.com/a/b.c?d=%20&e",
            "http://a-b.c:81/:@!$&()*+,;=~_",
        ] {
            assert_eq!(plain(text).map(|_| text), Some(text));
            assert_eq!(Url::parse(text).expect("a URL").as_str(), text);
        }
        for text in [
            "http://a",
            "http://A/",
            "http://127.1/",
            "http://1.2.3.4.5/",
            "http://0x7f.1/",
            "http://a:80/",
            "https://a:443/",
            "http://a:99999/",
            "http://a:080/",
            "http://a/../b",
            "http://a/./b",
            "http://a/.",
            "http://a/%2e%2e/b",
            "http://a/ ",
            "http://a/\u{e9}",
            "http://xn--a/",
            "http://u@a/",
            "http://a/#f",
            "ftp://a/",
            "http:///a",
        ] {
            assert_eq!(plain(text), None, "{text}");
        }
    }

    #[test]
    fn a_url_is_written_as_the_standard_writes_it() {
        for (text, written) in [
            ("http://A.Test", "http://a.test/"),
            ("HTTP://a.test:80/x#frag", "http://a.test/x"),
            ("http://b\u{fc}cher.test/", "http://xn--bcher-kva.test/"),
            ("http://a.test/\u{fc}", "http://a.test/%C3%BC"),
            ("http://127.1/", "http://127.0.0.1/"),
            ("http://[::1]:81/", "http://[::1]:81/"),
            ("http://a.test/a/../b?c d".replace(' ', "+").as_str(), "http://a.test/b?c+d"),
            ("ftp://a.test/", "ftp://a.test/"),
            ("file:///a/../b%20c", "file:///b%20c"),
            ("file://localhost/a", "file:///a"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn smuggling_targets_are_rejected() {
        for text in [
            "",
            "a",
            "/a",
            "http://",
            "http:///",
            "http://a b/",
            "http://a/\r\nX: y",
            "http://a/\0",
            "\thttp://a/",
            "http://a/\t",
            "http://u:p@a/",
            "http://u@a/",
            "http://a\\@b/",
            "http://a:0/",
            "http://a:65536/",
            "http://[::1/",
            "http://a%00b/",
            "http://\u{ad}/",
            "mailto:x",
            "file://other/etc/passwd",
            "http://exa mple/",
            "http://a/ ",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(Target::parse(b"http://a/\xff").is_err());
    }

    #[test]
    fn a_location_is_resolved() {
        let base = Target::parse(b"http://a.test:81/b/c?d").expect("a URL");
        let join = |location: &str| {
            base.join(location.as_bytes()).map(|target| target.as_str().to_owned()).ok()
        };
        assert_eq!(join("e").as_deref(), Some("http://a.test:81/b/e"));
        assert_eq!(join("/e f").as_deref(), Some("http://a.test:81/e%20f"));
        assert_eq!(join("//x.test/").as_deref(), Some("http://x.test/"));
        assert_eq!(join("https://x.test").as_deref(), Some("https://x.test/"));
        assert_eq!(join("?q#f").as_deref(), Some("http://a.test:81/b/c?q"));
        assert_eq!(join("http://u:p@x.test/"), None);
        assert_eq!(join("http://x.test/\r\n"), None);
        assert_eq!(join("javascript:alert(1)"), None);
    }

    #[test]
    fn other_schemes_are_recognised() {
        let base = Target::parse(b"http://a.test/").expect("a URL");
        let scheme = |location: &[u8]| base.foreign_scheme(location);
        assert_eq!(scheme(b"javascript:x").as_deref(), Some("javascript"));
        assert_eq!(scheme(b"FTP://x/").as_deref(), Some("ftp"));
        assert_eq!(scheme(b"https://u:p@x/"), None);
        assert_eq!(scheme(b"/x"), None);
    }

    #[test]
    fn a_mail_url_has_a_port_and_a_client_name() {
        for (text, wanted) in [
            ("smtp://mail.test", Some("smtp://mail.test:25/")),
            ("SMTPS://Mail.Test/", Some("smtps://mail.test:465/")),
            ("smtp://mail.test:587/me.test", Some("smtp://mail.test:587/me.test")),
            ("smtp://mail.test:21", Some("smtp://mail.test:21/")),
            ("smtp://[::1]:2525/[127.0.0.1]", Some("smtp://[::1]:2525/[127.0.0.1]")),
            ("smtp://b\u{fc}cher.test", Some("smtp://xn--bcher-kva.test:25/")),
            ("http://mail.test", None),
            ("mail.test", None),
            ("smtp://", None),
            ("smtp://u:p@mail.test", None),
            ("smtp://mail.test/a b", None),
            ("smtp://mail.test/a%0d%0aRSET", None),
            ("smtp://mail.test/a\r\nRSET", None),
            ("smtp://mail.test:0", None),
            ("smtp://mail.test?x", None),
            ("smtp://mail.test/a/b", None),
        ] {
            let parsed = Target::parse_mail(text.as_bytes()).ok();
            assert_eq!(parsed.as_ref().map(Target::as_str), wanted, "{text:?}");
        }
    }

    #[test]
    fn parts_are_found() {
        let target = Target::parse(b"https://[::1]:81/p?q").expect("a URL");
        assert_eq!(
            (target.scheme(), target.authority(), target.path()),
            ("https", "[::1]:81", "/p?q")
        );
        assert_eq!(target.host_port(), ("::1", Some(81)));
        let mut target = Target::parse(b"http://a/").expect("a URL");
        target.add_query(b"a b", "c&d=\u{fc}".as_bytes()).expect("short");
        target.add_query(b"e\xff", b"\0\x80").expect("short");
        assert_eq!(target.as_str(), "http://a/?a%20b=c%26d%3D%C3%BC&e%FF=%00%80");
        assert_eq!(target.host_port(), ("a", None));
    }
}
