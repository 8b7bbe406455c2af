//! Access to the admin address.
//!
//! Invariants
//! - Without a token it is for this machine: it listens on loopback only, and answers only requests that name it by an address or `localhost`,
//!   so that no foreign name leads here (DNS rebinding).
//! - Without a token it only shows figures: a process that can connect to loopback, e.g. PHP in a sandbox, gets no event of a channel and sends none.
//! - With a token everything but `/up` wants it: as `Authorization: Bearer`, or as the password that a browser asks for.
//! - Pages of other origins get nothing, not even a confirmation.

use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use http::{HeaderValue, StatusCode};

use crate::config::Token;
use crate::failure::Failure;

/// The path for load balancers, under any host name: it reveals nothing but a state.
pub(crate) const OPEN: &str = "/up";
/// The debug console: it shows events and members of channels, and sends events.
const CONSOLE: &str = "/realtime";
/// The path of the dashboard's figures.
pub(super) const EVENTS: &str = "/events";
/// The path that removes stored answers.
pub(crate) const PURGE: &str = "/cache/purge";
/// The challenge for browsers, which ask a person for the password.
pub(super) const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"Hearth\", charset=\"UTF-8\"");

/// The reasons to reject a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The name is none of ours.
    Name,
    /// A page of another origin asks.
    Origin,
    /// The token is missing or wrong.
    Token,
    /// There is no token, and the path shows more than figures.
    NoToken,
    /// There is no token, and the path changes what clients get.
    NoTokenToPurge,
}

impl Refused {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Name => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin | Self::NoToken | Self::NoTokenToPurge => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Name => "the admin address is reached by an address or by localhost only\n",
            Self::Origin => "the admin address is not for pages of other origins\n",
            Self::Token => "the admin address wants its token: see `admin.token`\n",
            Self::NoTokenToPurge => {
                "stored answers are purged with a token only: set `admin.token` (HEARTH_ADMIN_TOKEN), or run \
                 `hearth purge` as the server's user\n"
            }
            Self::NoToken => {
                "channels are watched, and events sent, with a token only: set `admin.token` (HEARTH_ADMIN_TOKEN), or ask the control socket of \
                 `hearth serve` as its user: curl --unix-socket RUN_DIR/control.sock 'http://hearth/realtime/events?watch=CHANNEL'\n"
            }
        }
    }
}

/// Checks whether the admin address may listen there.
pub(crate) fn may_listen(address: SocketAddr, token: Option<&Token>) -> Result<(), Failure> {
    if address.ip().is_loopback() || token.is_some() {
        return Ok(());
    }
    Err(Failure::misused(
        format!(
            "the admin address {address} can be reached from other machines, and there is no `admin.token`"
        ),
        "listen on 127.0.0.1, or set `admin.token` (HEARTH_ADMIN_TOKEN), which clients must then send",
    ))
}

/// Checks whether this request is answered.
pub(super) fn check(path: &str, headers: &HeaderMap, token: Option<&Token>) -> Result<(), Refused> {
    if path == OPEN {
        return Ok(());
    }
    match token {
        None if !is_here(headers) => return Err(Refused::Name),
        Some(token) if !knows(headers, token) => return Err(Refused::Token),
        _ => {}
    }
    if is_of_another_origin(headers) {
        return Err(Refused::Origin);
    }
    match token {
        None if is_console(path) => Err(Refused::NoToken),
        None if path == PURGE => Err(Refused::NoTokenToPurge),
        _ => Ok(()),
    }
}

/// Returns whether the answer is a stream of events, which ends with the connection.
pub(super) fn is_of_events(path: &str) -> bool {
    [EVENTS, "/realtime/events"].contains(&path)
}

/// Returns whether the debug console answers this path.
pub(crate) fn is_console(path: &str) -> bool {
    path.strip_prefix(CONSOLE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether the request names this server by an address or as `localhost`.
fn is_here(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name == "localhost" || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

/// Returns whether a page of another origin makes this request. Browsers send `Origin`, or else `Sec-Fetch-Site` (Fetch Metadata). A
/// followed link is no such request: the page with the link gets nothing back.
fn is_of_another_origin(headers: &HeaderMap) -> bool {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let same_origin = |origin: &str| {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let name = origin.split_once("://").map(|(_, name)| name);
        name.is_some_and(|name| Some(name) == host)
    };
    if field(ORIGIN.as_str()).is_some_and(|origin| !same_origin(origin)) {
        return true;
    }
    let is_foreign = matches!(field("sec-fetch-site"), Some("cross-site" | "same-site"));
    is_foreign && field("sec-fetch-mode") != Some("navigate")
}

/// Returns whether the request carries the token: RFC 6750, 2.1; RFC 7617 with the token as password and any name.
fn knows(headers: &HeaderMap, token: &Token) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((scheme, credentials)) = given.and_then(|given| given.split_once(' ')) else {
        return false;
    };
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return is_same(credentials.as_bytes(), token);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return false;
    }
    let decoded = STANDARD.decode(credentials).unwrap_or_default();
    let colon = decoded.iter().position(|byte| *byte == b':');
    colon.is_some_and(|at| is_same(decoded.get(at + 1..).unwrap_or_default(), token))
}

/// Compares in constant time for texts of one length.
fn is_same(given: &[u8], token: &Token) -> bool {
    let token = token.expose().as_bytes();
    let differing = given.iter().zip(token).fold(0, |bits, (one, other)| bits | (one ^ other));
    given.len() == token.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Raw, Value as _};

    const SECRET: &str = "0123456789abcdef";

    fn token() -> Token {
        Token::parse(&Raw::Text(SECRET.into()), Path::new("/")).unwrap()
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn asked(path: &str, fields: &[(&'static str, &str)]) -> Result<(), Refused> {
        check(path, &headers(fields), None)
    }

    #[test]
    fn only_addresses_and_localhost_are_valid_hosts() {
        for host in ["127.0.0.1:9180", "localhost:9180", "[::1]:9180", "[::1]", "localhost"] {
            assert_eq!(asked("/status", &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["rebound.example:9180", "localhost.example", "127.0.0.1.example:80", ""] {
            assert_eq!(asked("/", &[("host", host)]), Err(Refused::Name), "{host}");
        }
        assert_eq!(asked("/metrics", &[]), Err(Refused::Name));
        assert_eq!(asked("/up", &[("host", "balancer.example")]), Ok(()));
    }

    #[test]
    fn pages_of_other_origins_are_rejected() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:9180");
        let own = ("origin", "http://127.0.0.1:9180");
        assert_eq!(asked("/events", &[HOST, own, ("sec-fetch-site", "same-origin")]), Ok(()));
        for origin in ["https://evil.example", "null", "http://127.0.0.1:8080", "127.0.0.1:9180"] {
            assert_eq!(asked("/", &[HOST, ("origin", origin)]), Err(Refused::Origin), "{origin}");
        }
        let cross = ("sec-fetch-site", "cross-site");
        let image = [HOST, cross, ("sec-fetch-mode", "no-cors")];
        assert_eq!(asked("/status", &image), Err(Refused::Origin));
        assert_eq!(asked("/", &[HOST, cross, ("sec-fetch-mode", "navigate")]), Ok(()), "a link");
    }

    #[test]
    fn without_a_token_only_figures_are_shown() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:9180");
        for path in ["/realtime", "/realtime/", "/realtime/events", "/realtime/publish"] {
            assert_eq!(asked(path, &[HOST]), Err(Refused::NoToken), "{path}");
            let fields = headers(&[HOST, ("authorization", &format!("Bearer {SECRET}"))]);
            assert_eq!(check(path, &fields, None), Err(Refused::NoToken), "{path}");
            assert_eq!(check(path, &fields, Some(&token())), Ok(()), "{path}");
        }
        for path in ["/", "/events", "/status", "/metrics", "/up", "/realtimes"] {
            assert_eq!(asked(path, &[HOST]), Ok(()), "{path}");
        }
        assert_eq!(Refused::NoToken.status(), StatusCode::FORBIDDEN);
        assert!(Refused::NoToken.text().contains("admin.token"));
    }

    #[test]
    fn with_a_token_any_host_works_and_requests_without_it_fail() {
        let token = token();
        let ask = |path: &str, given: &str| {
            let fields = headers(&[("host", "ops.example"), ("authorization", given)]);
            check(path, &fields, Some(&token))
        };
        let basic = |text: String| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(ask("/status", &format!("Bearer {SECRET}")), Ok(()));
        assert_eq!(ask("/status", &format!("bearer  {SECRET}")), Ok(()));
        assert_eq!(ask("/", &basic(format!("me:{SECRET}"))), Ok(()));
        for wrong in [
            "Bearer 0123456789abcdeg".to_owned(),
            format!("Bearer {SECRET}0"),
            "Bearer 0123456789abcde".to_owned(),
            "Bearer".to_owned(),
            format!("Digest {SECRET}"),
            basic(SECRET.to_owned()),
            basic(format!("{SECRET}:")),
            "Basic ?".to_owned(),
        ] {
            assert_eq!(ask("/metrics", &wrong), Err(Refused::Token), "{wrong}");
        }
        assert_eq!(ask("/up", "none"), Ok(()));
        let host = headers(&[("host", "127.0.0.1")]);
        assert_eq!(check("/", &host, Some(&token)), Err(Refused::Token));
    }

    #[test]
    fn without_a_token_it_listens_on_loopback_only() {
        for address in ["127.0.0.1:0", "[::1]:9180", "127.9.9.9:1"] {
            assert!(may_listen(address.parse().unwrap(), None).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:0", "[::]:9180", "192.0.2.1:1"] {
            let address = address.parse().unwrap();
            let failure = may_listen(address, None).unwrap_err();
            assert_eq!(failure.status(), 2);
            assert!(failure.render().contains("admin.token"), "{}", failure.render());
            assert!(may_listen(address, Some(&token())).is_ok());
        }
    }
}
