//! Selects the application of a request by its host, then by its path.
//!
//! Invariants
//! - The most specific claim wins: an exact host, then the longest matching `*.` host, then any host; with the same
//!   host the longest path.
//! - Paths are compared by whole segments of the decoded form that is also used to find files and scripts, so no
//!   spelling bypasses a claim.
//! - With a single application that claims everything, nothing is compared.
//! - Selecting allocates nothing, whatever a client sends.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::request_head::is_valid_host;
use crate::route;

/// Maximum length of a host name (RFC 1035, section 2.3.4).
const LONGEST_HOST: usize = 255;

/// The host part of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostClaim {
    /// Matches every host, and requests without a host.
    Any,
    /// Matches one host in lower case, for example `shop.example.com`.
    Exact(String),
    /// Matches subdomains of any depth: `*.example.com` matches `a.example.com` and `a.b.example.com`, not
    /// `example.com` itself. Stored without the `*.`, in lower case.
    Below(String),
}

/// The error for a text that is not a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a host's name")]
pub struct NoHost;

impl FromStr for HostClaim {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        let (text, below) = text.strip_prefix("*.").map_or((text, false), |below| (below, true));
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        // An IPv6 address has brackets, as in a Host field.
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let fits = match bare {
            Some(address) => !below && address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                is_valid_host(name.as_bytes())
                    && !name.contains([':', '[', ']'])
                    && name.split('.').all(|label| !label.is_empty())
            }
        };
        if !fits || name.len() > LONGEST_HOST {
            return Err(NoHost);
        }
        Ok(if below { Self::Below(name) } else { Self::Exact(name) })
    }
}

impl fmt::Display for HostClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any host"),
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// The path part of a claim: `/legacy` matches itself and everything below it; empty matches all paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathClaim(String);

/// The error for a text that is not a path prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a decoded path without dot segments and `*`")]
pub struct NoPath;

impl PathClaim {
    /// Returns the prefix, for example `/legacy`; empty for all paths.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PathClaim {
    type Err = NoPath;

    fn from_str(text: &str) -> Result<Self, NoPath> {
        // `/legacy/*` is rejected because it is another notation for `/legacy`, and no real folder has that name.
        let fits = !text.contains(['%', '?', '#', '*', '\\', '\0'])
            && route::clean(text).is_ok_and(|clean| clean.as_bytes() == text.as_bytes());
        if fits { Ok(Self(text.trim_end_matches('/').to_owned())) } else { Err(NoPath) }
    }
}

/// A set of requests that belong to an application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The host.
    pub host: HostClaim,
    /// The path prefix.
    pub path: PathClaim,
}

impl Claim {
    /// Returns a claim that matches all requests.
    pub const fn everything() -> Self {
        Self { host: HostClaim::Any, path: PathClaim(String::new()) }
    }

    /// Returns whether the claim matches every request that `other` matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let hosts = match (&self.host, &other.host) {
            (HostClaim::Any, _) => true,
            (HostClaim::Below(above), HostClaim::Exact(name) | HostClaim::Below(name)) => {
                let matches = |rest: &str| rest.ends_with('.');
                self.host == other.host || name.strip_suffix(&**above).is_some_and(matches)
            }
            (one, other) => one == other,
        };
        let rest = other.path.as_str().strip_prefix(self.path.as_str());
        hosts && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the claim with its path in lower case.
    pub(crate) fn to_lowercase(&self) -> Self {
        Self { host: self.host.clone(), path: PathClaim(self.path.0.to_ascii_lowercase()) }
    }
}

/// The error for a text that is not a set of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a path such as `/admin`, possibly after a host")]
pub struct NoClaim;

impl FromStr for Claim {
    type Err = NoClaim;

    /// Reads `/path`, `host/path` or `host`.
    fn from_str(text: &str) -> Result<Self, NoClaim> {
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let host = match host {
            "" => HostClaim::Any,
            host => host.parse().map_err(|_no_host| NoClaim)?,
        };
        let path = match path {
            "" if host == HostClaim::Any => return Err(NoClaim),
            "" => PathClaim::default(),
            path => path.parse().map_err(|_no_path| NoClaim)?,
        };
        Ok(Self { host, path })
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.path.as_str()) {
            (HostClaim::Any, "") => f.write_str("everything"),
            (HostClaim::Any, path) => f.write_str(path),
            (host, path) => write!(f, "{host}{path}"),
        }
    }
}

/// The reasons why no application claims a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unclaimed {
    /// No application claims the host.
    Host,
    /// Applications claim the host, but not this path.
    Path,
}

/// Path prefixes without their first slash, with the number of their application, the longest first.
#[derive(Debug, Default)]
struct Paths(Vec<(Box<[u8]>, usize)>);

impl Paths {
    fn add(&mut self, path: &str, number: usize) {
        let path = path.strip_prefix('/').unwrap_or(path);
        let at = self.0.partition_point(|(known, _)| known.len() >= path.len());
        self.0.insert(at, (path.as_bytes().into(), number));
    }

    fn find(&self, path: &[u8]) -> Option<usize> {
        let begins = |claimed: &[u8]| {
            path.strip_prefix(claimed)
                .is_some_and(|rest| claimed.is_empty() || matches!(rest.first(), None | Some(b'/')))
        };
        self.0.iter().find(|(claimed, _)| begins(claimed)).map(|(_, number)| *number)
    }
}

/// The claims of several applications, which are numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    exact: HashMap<Box<[u8]>, Paths>,
    below: HashMap<Box<[u8]>, Paths>,
    any: Paths,
}

impl Claims {
    /// Creates the table from claims with the number of their application.
    pub(crate) fn new<'c>(claims: impl IntoIterator<Item = (&'c Claim, usize)>) -> Self {
        let mut all = Self::default();
        for (Claim { host, path }, number) in claims {
            let paths = match host {
                HostClaim::Any => &mut all.any,
                HostClaim::Exact(name) => all.exact.entry(name.as_bytes().into()).or_default(),
                HostClaim::Below(name) => all.below.entry(name.as_bytes().into()).or_default(),
            };
            paths.add(path.as_str(), number);
        }
        all
    }

    /// Returns the application of a request. `host` has no port; `path` is normalised, possibly without its first slash.
    pub(crate) fn choose(&self, host: &str, path: &[u8]) -> Result<usize, Unclaimed> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let mut lower = [0; LONGEST_HOST];
        let host = host.strip_suffix('.').unwrap_or(host).as_bytes();
        // A host that does not fit is longer than any claim.
        let host = match lower.get_mut(..host.len()) {
            Some(lower) => {
                lower.copy_from_slice(host);
                lower.make_ascii_lowercase();
                &*lower
            }
            None => &[],
        };
        let mut known = false;
        let mut look = |paths: Option<&Paths>| {
            known |= paths.is_some_and(|paths| !paths.0.is_empty());
            paths.and_then(|paths| paths.find(path))
        };
        if let Some(number) = look(self.exact.get(host)) {
            return Ok(number);
        }
        if !self.below.is_empty() {
            for (dot, _) in host.iter().enumerate().filter(|(at, byte)| *at > 0 && **byte == b'.') {
                if let Some(number) =
                    look(host.get(dot + 1..).and_then(|name| self.below.get(name)))
                {
                    return Ok(number);
                }
            }
        }
        look(Some(&self.any)).ok_or(if known { Unclaimed::Path } else { Unclaimed::Host })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_claim_covers_what_is_more_specific() {
        let covers = |one: &str, other: &str| {
            let [one, other]: [Claim; 2] = [one, other].map(|text| text.parse().unwrap());
            (one.covers(&other), other.covers(&one))
        };
        for (wide, narrow) in [
            ("/", "/admin"),
            ("/admin", "/admin/users"),
            ("/", "a.example"),
            ("/admin", "*.a.example/admin/users"),
            ("a.example", "a.example/admin"),
            ("*.a.example", "b.a.example/admin"),
            ("*.a.example", "*.b.a.example"),
        ] {
            assert_eq!(covers(wide, narrow), (true, false), "{wide} {narrow}");
        }
        for (one, other) in [
            ("/admin", "/administrator"),
            ("/admin", "a.example"),
            ("*.a.example", "a.example"),
            ("*.a.example", "ba.example"),
            ("*.a.example/admin", "b.a.example"),
            ("a.example", "b.example/admin"),
        ] {
            assert_eq!(covers(one, other), (false, false), "{one} {other}");
        }
        assert_eq!(covers("*.a.example/x", "*.a.example/x"), (true, true));
    }

    fn claim(host: &str, path: &str) -> Claim {
        let host = if host.is_empty() { HostClaim::Any } else { host.parse().unwrap() };
        Claim {
            host,
            path: if path.is_empty() { PathClaim::default() } else { path.parse().unwrap() },
        }
    }

    fn claims(all: &[(&str, &str)]) -> Claims {
        let all: Vec<Claim> = all.iter().map(|(host, path)| claim(host, path)).collect();
        Claims::new(all.iter().zip(0..))
    }

    #[test]
    fn the_most_specific_claim_wins_its_host_before_its_path() {
        let claims = claims(&[
            ("", ""),
            ("", "/legacy"),
            ("shop.example.com", ""),
            ("*.example.com", ""),
            ("*.eu.example.com", "/a"),
            ("shop.example.com", "/a/b"),
            ("shop.example.com", "/a"),
        ]);
        for (host, path, number) in [
            ("other.org", "/", 0),
            ("", "/x", 0),
            ("other.org", "/legacy", 1),
            ("other.org", "/legacy/x", 1),
            ("other.org", "/legacyx", 0),
            ("shop.example.com", "/legacy", 2),
            ("SHOP.Example.com.", "/", 2),
            ("a.example.com", "/legacy", 3),
            ("a.b.example.com", "/", 3),
            ("example.com", "/", 0),
            (".example.com", "/", 0),
            ("a.eu.example.com", "/a/", 4),
            ("a.eu.example.com", "/b", 3),
            ("shop.example.com", "/a/b/c", 5),
            ("shop.example.com", "/a/bc", 6),
        ] {
            assert_eq!(claims.choose(host, path.as_bytes()), Ok(number), "{host}{path}");
            assert_eq!(claims.choose(host, &path.as_bytes()[1..]), Ok(number), "{host}{path}");
        }
        let long = "a.".repeat(200) + "example.com";
        assert_eq!(claims.choose(&long, b"/"), Ok(0), "longer than any name");
    }

    #[test]
    fn without_an_application_for_everything_an_unknown_host_differs_from_an_unknown_path() {
        let claims = claims(&[("shop.example.com", "/a"), ("*.example.org", "")]);
        assert_eq!(claims.choose("shop.example.com", b"/b"), Err(Unclaimed::Path));
        assert_eq!(claims.choose("other.example.com", b"/a"), Err(Unclaimed::Host));
        assert_eq!(claims.choose("", b"/a"), Err(Unclaimed::Host));
        assert_eq!(claims.choose("x.example.org", b"/a"), Ok(1));
    }

    #[test]
    fn claims_are_normalised_or_rejected() {
        assert_eq!("*.Example.COM.".parse(), Ok(HostClaim::Below("example.com".into())));
        assert_eq!("[::1]".parse(), Ok(HostClaim::Exact("[::1]".into())));
        for host in [
            "",
            "*",
            "*.",
            "a..b",
            ".a",
            "a:80",
            "http://a",
            "a/b",
            "*.*.a",
            "ä.example",
            "[x]",
            "a b",
        ] {
            assert_eq!(host.parse::<HostClaim>(), Err(NoHost), "{host}");
        }
        for (path, whole) in [("/", ""), ("/a", "/a"), ("/a/", "/a"), ("/a/b.c", "/a/b.c")] {
            assert_eq!(path.parse::<PathClaim>().unwrap().as_str(), whole);
        }
        for path in [
            "", "a", "//", "/a//b", "/a/../b", "/./a", "/a%20b", "/a?b", "/a#b", "/a/*", "/*",
            "/a\\b",
        ] {
            assert_eq!(path.parse::<PathClaim>(), Err(NoPath), "{path}");
        }
    }

    proptest! {
        #[test]
        fn an_application_gets_only_its_claimed_requests(
            host in "[a-cA-C.]{0,6}(b\\.c)?\\.?",
            path in "(/[ab]{0,2}){1,3}",
        ) {
            let claims = claims(&[("", ""), ("b.c", ""), ("*.b.c", ""), ("", "/a")]);
            let name = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
            let below = name.strip_suffix(".b.c").is_some_and(|label| !label.is_empty());
            let claimed = path == "/a" || path.starts_with("/a/");
            let expected = match (name == "b.c", below, claimed) {
                (true, ..) => 1,
                (_, true, _) => 2,
                (.., true) => 3,
                _ => 0,
            };
            prop_assert_eq!(claims.choose(&host, path.as_bytes()), Ok(expected));
        }
    }
}
