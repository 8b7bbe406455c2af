//! Client information from proxies: `Forwarded` (RFC 7239) or `X-Forwarded-*`, read from the right, and only from
//! trusted peers.
//!
//! Invariants
//! - A header from an untrusted peer has no effect.
//! - Reading stops at the first untrusted address: the client wrote what is left of it.
//! - Only the configured fields of one family are used. The other family may only agree with it, because a proxy that
//!   does not set it passes its client's on.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::FORWARDED;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::answers::Page;
use crate::request_head::{self, Stop};
use crate::trusted_headers::{self, TrustedHeader, TrustedHeaders};

/// A network, e.g. `10.0.0.0/8`, `fd00::/8` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// The error for a text that is not a network.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an address or a network such as `10.0.0.0/8`")]
pub struct InvalidCidr(String);

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let parse = || {
            let (address, prefix) = match text.split_once('/') {
                Some((address, prefix)) => (address.parse().ok()?, Some(prefix.parse().ok()?)),
                None => (text.parse().ok()?, None),
            };
            let width = match address {
                IpAddr::V4(_) => 32,
                IpAddr::V6(_) => 128,
            };
            let prefix = prefix.unwrap_or(width);
            (prefix <= width).then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| InvalidCidr(text.to_owned()))
    }
}

impl Cidr {
    /// Returns whether `address` is in this network. An IPv4 address mapped into IPv6 counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix);
                let cut = |ip: Ipv4Addr| ip.to_bits().checked_shr(shift).unwrap_or(0);
                cut(network) == cut(address)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.prefix);
                let cut = |ip: Ipv6Addr| ip.to_bits().checked_shr(shift).unwrap_or(0);
                cut(network) == cut(address)
            }
            _ => false,
        }
    }
}

/// The information from trusted proxies about a request; `None` for what they do not state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForwardedInfo {
    /// The client's address; port 0 if it is not stated.
    pub(crate) client: Option<SocketAddr>,
    /// Whether the client used TLS.
    pub(crate) secure: Option<bool>,
    /// The requested host, possibly with a port.
    pub(crate) host: Option<String>,
    /// The port to which the client connected.
    pub(crate) port: Option<u16>,
}

/// Reasons why a request from a trusted proxy is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Contradiction {
    /// The families name different addresses, schemes or hosts.
    #[error("Forwarded and X-Forwarded-{0} contradict each other")]
    Families(&'static str),
    /// The text behind the forwarded host is no port. An application may cut it off, and see a host that has other rules.
    #[error("the forwarded host has no valid port")]
    Port,
    /// A quoted string in a `Forwarded` field that is used does not end. The client may have opened it to hide what
    /// the proxy appended.
    #[error("a quotation in Forwarded does not end")]
    OpenQuote,
}

/// Interval in which at most one contradiction is logged as a warning; further ones are logged at debug level, so
/// that clients cannot fill the log.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

impl Contradiction {
    /// Returns the response to such a request, and logs which proxy forwarded it.
    pub(crate) fn refuse(self, proxy: SocketAddr) -> Stop {
        static WARNED: Mutex<Option<Instant>> = Mutex::new(None);
        let now = Instant::now();
        let is_recent = |at: &Instant| now.duration_since(*at) < WARNING_INTERVAL;
        let warns = {
            let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
            if warned.as_ref().is_some_and(is_recent) {
                false
            } else {
                warned.replace(now);
                true
            }
        };
        let proxy = proxy.ip();
        if warns {
            let hint =
                "the proxy has to remove the fields that it does not set (docs/guide/proxies.md)";
            tracing::warn!(network.peer.address = %proxy, reason = %self, hint, "request through a trusted proxy refused");
        } else {
            tracing::debug!(network.peer.address = %proxy, reason = %self, "request through a trusted proxy refused");
        }
        let says = match self {
            Self::Port => "The request's forwarded host is not valid.",
            Self::Families(_) | Self::OpenQuote => {
                "The request's Forwarded and X-Forwarded fields contradict each other."
            }
        };
        Stop::Refused(Page::new(StatusCode::BAD_REQUEST, says))
    }
}

/// Reads the trusted fields of a trusted peer, and removes the others, which PHP must not see.
pub(crate) fn take(
    headers: &mut HeaderMap,
    believed: TrustedHeaders,
    trusted: &[Cidr],
) -> Result<ForwardedInfo, Contradiction> {
    if !trusted_headers::any(headers) {
        return Ok(ForwardedInfo::default());
    }
    let forwarded = if believed.has(TrustedHeader::Forwarded) {
        let forwarded = read_forwarded(headers, trusted)?;
        forwarded.agrees_with(&read_x_forwarded(headers, TrustedHeaders::X_FORWARDED, trusted))?;
        forwarded
    } else {
        let forwarded = read_x_forwarded(headers, believed, trusted);
        if headers.contains_key(FORWARDED)
            && let Ok(other) = read_forwarded(headers, trusted)
        {
            forwarded.agrees_with(&other)?;
        }
        forwarded
    };
    if let Some(host) = forwarded.host.as_deref().map(str::as_bytes)
        && request_head::has_characters_of_host(host)
        && !request_head::is_valid_host(host)
    {
        return Err(Contradiction::Port);
    }
    trusted_headers::drop_others(headers, believed);
    Ok(forwarded)
}

impl ForwardedInfo {
    /// Compares the families. Ports are ignored, because few proxies write the client's.
    fn agrees_with(&self, other: &Self) -> Result<(), Contradiction> {
        let ip = |forwarded: &Self| forwarded.client.map(|client| client.ip().to_canonical());
        let of_for = ip(self).zip(ip(other)).is_none_or(|(one, other)| one == other);
        let of_proto = self.secure.zip(other.secure).is_none_or(|(one, other)| one == other);
        let hosts = self.host.as_deref().zip(other.host.as_deref());
        let of_host = hosts.is_none_or(|(one, other)| one.eq_ignore_ascii_case(other));
        match (of_for, of_proto, of_host) {
            (false, ..) => Err(Contradiction::Families("For")),
            (_, false, _) => Err(Contradiction::Families("Proto")),
            (.., false) => Err(Contradiction::Families("Host")),
            (true, true, true) => Ok(()),
        }
    }
}

fn is_trusted(address: IpAddr, trusted: &[Cidr]) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

fn read_forwarded(headers: &HeaderMap, trusted: &[Cidr]) -> Result<ForwardedInfo, Contradiction> {
    let mut forwarded = ForwardedInfo::default();
    let values = values(headers, FORWARDED.as_str());
    if values.iter().any(|value| has_open_quote(value)) {
        return Err(Contradiction::OpenQuote);
    }
    let elements: Vec<&str> = values.iter().flat_map(|value| split_quoted(value, b',')).collect();
    for element in elements.into_iter().rev() {
        let mut next = ForwardedInfo::default();
        let mut node = None;
        for pair in split_quoted(element, b';') {
            let Some((name, value)) = pair.split_once('=') else { continue };
            let value = unquote(value.trim());
            match name.trim().to_ascii_lowercase().as_str() {
                "for" => node = Some(value),
                "proto" => next.secure = secure(&value),
                "host" => next.host = Some(value),
                _ => {}
            }
        }
        // An element describes the request as received by the proxy that wrote it, and that proxy is trusted.
        next.client = forwarded.client;
        let client = node.as_deref().and_then(parse_node);
        if let Some(client) = client {
            next.client = Some(client);
        }
        forwarded = ForwardedInfo {
            secure: next.secure.or(forwarded.secure),
            host: next.host.or(forwarded.host),
            client: next.client,
            port: None,
        };
        if !client.is_some_and(|client| is_trusted(client.ip(), trusted)) {
            break;
        }
    }
    Ok(forwarded)
}

/// Reads the trusted fields of `X-Forwarded-*`.
fn read_x_forwarded(
    headers: &HeaderMap,
    believed: TrustedHeaders,
    trusted: &[Cidr],
) -> ForwardedInfo {
    let values = |header: TrustedHeader| {
        if believed.has(header) { values(headers, header.name()) } else { Vec::new() }
    };
    let clients = values(TrustedHeader::XForwardedFor);
    let clients = list(&clients);
    let mut hops = 0;
    let mut client = None;
    for text in clients.iter().rev() {
        let Some(address) = parse_node(text) else { break };
        client = Some(address);
        if !is_trusted(address.ip(), trusted) {
            break;
        }
        hops += 1;
    }
    // A list as long as that of the addresses has an entry per proxy; a shorter one was written by the nearest proxy.
    let at = |header: TrustedHeader| -> Option<String> {
        let values = values(header);
        let mut list = list(&values);
        let steps = if list.len() >= clients.len() { hops } else { 0 };
        let index = list.len().checked_sub(1 + steps.min(list.len().saturating_sub(1)))?;
        Some(list.swap_remove(index).to_owned())
    };
    ForwardedInfo {
        client,
        secure: at(TrustedHeader::XForwardedProto).and_then(|proto| secure(&proto)),
        host: at(TrustedHeader::XForwardedHost),
        port: at(TrustedHeader::XForwardedPort).and_then(|port| port.parse().ok()),
    }
}

/// Returns all values of a field. Invalid UTF-8 is replaced instead of dropping the value. Otherwise a client could
/// invalidate the value that a proxy appends to, and be taken for the proxy.
fn values<'h>(headers: &'h HeaderMap, name: &str) -> Vec<Cow<'h, str>> {
    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect()
}

fn list<'v>(values: &'v [Cow<'_, str>]) -> Vec<&'v str> {
    let entries = values.iter().flat_map(|value| value.split(','));
    entries.map(str::trim).filter(|text| !text.is_empty()).collect()
}

fn secure(proto: &str) -> Option<bool> {
    if proto.eq_ignore_ascii_case("https") || proto.eq_ignore_ascii_case("wss") {
        Some(true)
    } else if proto.eq_ignore_ascii_case("http") || proto.eq_ignore_ascii_case("ws") {
        Some(false)
    } else {
        None
    }
}

/// Parses an address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80`,
/// `2001:db8::1`. Obfuscated names (`_hidden`, `unknown`) are rejected.
fn parse_node(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, 0));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address);
    }
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        // `]` or `]:_port`: RFC 7239 allows an obfuscated port.
        return (port.is_empty() || port.starts_with(":_"))
            .then(|| SocketAddr::new(address.into(), 0));
    }
    let (address, port) = text.split_once(':')?;
    port.starts_with('_').then_some(SocketAddr::new(IpAddr::V4(address.parse().ok()?), 0))
}

fn has_open_quote(text: &str) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}

/// Splits at a separator outside of quoted strings.
fn split_quoted(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        let mut escaped = false;
        for (index, byte) in text.bytes().enumerate() {
            if escaped {
                escaped = false;
            } else if quoted && byte == b'\\' {
                escaped = true;
            } else if byte == b'"' {
                quoted = !quoted;
            } else if byte == separator && !quoted {
                let (head, tail) = text.split_at(index);
                rest = tail.get(1..);
                return Some(head.trim());
            }
        }
        rest = None;
        Some(text.trim())
    })
}

fn unquote(text: &str) -> String {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return text.to_owned();
    };
    let mut out = String::with_capacity(inner.len());
    let mut escaped = false;
    for character in inner.chars() {
        if character == '\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn believing(names: &[&str]) -> TrustedHeaders {
        TrustedHeaders::new(names.iter().map(|name| name.parse().unwrap())).unwrap()
    }

    fn networks(trusted: &[&str]) -> Vec<Cidr> {
        trusted.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Reads the pairs with the family that is present as the trusted one.
    fn forwarded(pairs: &[(&'static str, &str)], trusted: &[&str]) -> ForwardedInfo {
        let family = if pairs.iter().any(|(name, _)| *name == "forwarded") {
            believing(&["forwarded"])
        } else {
            TrustedHeaders::X_FORWARDED
        };
        take(&mut fields(pairs), family, &networks(trusted)).unwrap()
    }

    fn taken(
        pairs: &[(&'static str, &str)],
        believed: &[&str],
    ) -> (Result<ForwardedInfo, Contradiction>, Vec<String>) {
        let mut headers = fields(pairs);
        let forwarded = take(&mut headers, believing(believed), &networks(&["10.0.0.0/8"]));
        let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
        left.sort();
        (forwarded, left)
    }

    const DEFAULT: &[&str] = &["x-forwarded-for", "x-forwarded-proto"];

    #[test]
    fn unnamed_proxy_fields_are_ignored_and_removed() {
        let all = [
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "intern.example"),
            ("x-forwarded-port", "1"),
            ("forwarded", "host=other.example"),
            ("x-request-id", "1"),
        ];
        let (forwarded, left) = taken(&all, DEFAULT);
        let client = Some("203.0.113.7:0".parse().unwrap());
        assert_eq!(
            forwarded,
            Ok(ForwardedInfo { client, secure: Some(true), host: None, port: None })
        );
        assert_eq!(left, ["x-forwarded-for", "x-forwarded-proto", "x-request-id"]);
        let (forwarded, left) = taken(&all, &["forwarded"]);
        assert_eq!(forwarded, Err(Contradiction::Families("Host")));
        assert_eq!(left.len(), 6, "nothing is removed of a request that is refused");
        let (forwarded, left) = taken(&all[..5], &[]);
        assert_eq!((forwarded, left), (Ok(ForwardedInfo::default()), Vec::new()));
        // An ignored list of addresses does not determine the length of other lists either.
        let (forwarded, _) = taken(
            &[("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "https, http")],
            &["x-forwarded-proto"],
        );
        assert_eq!(forwarded.unwrap().secure, Some(false));
    }

    #[test]
    fn contradicting_families_are_rejected() {
        let pairs = |forwarded| {
            [
                ("x-forwarded-for", "203.0.113.7"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "a.example"),
                ("forwarded", forwarded),
            ]
        };
        for (forwarded, of_x, of_forwarded) in [
            ("for=203.0.113.7;proto=https;host=A.example", None, None),
            ("for=\"[::ffff:203.0.113.7]:81\"", None, None),
            ("for=unknown", None, None),
            ("by=203.0.113.9", None, None),
            ("for=203.0.113.8", Some("For"), Some("For")),
            ("for=203.0.113.7;proto=http", Some("Proto"), Some("Proto")),
            // The default ignores X-Forwarded-Host.
            ("host=b.example", None, Some("Host")),
        ] {
            let families = |found: Option<&'static str>| found.map(Contradiction::Families);
            let (info, left) = taken(&pairs(forwarded), DEFAULT);
            assert_eq!(info.err(), families(of_x), "{forwarded}");
            assert_eq!(left.contains(&"forwarded".to_owned()), of_x.is_some(), "{forwarded}");
            let (info, _) = taken(&pairs(forwarded), &["forwarded"]);
            assert_eq!(info.err(), families(of_forwarded), "{forwarded}");
        }
    }

    #[test]
    fn a_client_cannot_mask_a_proxys_field() {
        for words in ["\u{e9}", "\u{ff}\u{80}", "unknown", "[", ","] {
            let value = format!("{words}, 203.0.113.7");
            let (forwarded, _) = taken(&[("x-forwarded-for", &value)], DEFAULT);
            assert_eq!(
                forwarded.unwrap().client,
                Some("203.0.113.7:0".parse().unwrap()),
                "{value}"
            );
        }
        for words in ["for=10.0.0.9;x=\"", "for=\"", "for=10.0.0.9;x=\"\\"] {
            for added in ["for=203.0.113.7", "for=\"[2001:db8::7]:80\";proto=http"] {
                let value = format!("{words}, {added}");
                let (forwarded, _) = taken(&[("forwarded", &value)], &["forwarded"]);
                assert_eq!(forwarded, Err(Contradiction::OpenQuote), "{value}");
            }
        }
        // A fault in an ignored field has no effect.
        assert_eq!(taken(&[("forwarded", "for=\"")], DEFAULT).0, Ok(ForwardedInfo::default()));
    }

    #[test]
    fn a_network_holds_its_addresses_and_no_others() {
        let network: Cidr = "10.1.0.0/16".parse().unwrap();
        assert!(network.contains("10.1.255.3".parse().unwrap()));
        assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!network.contains("10.2.0.0".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains("203.0.113.9".parse().unwrap()));
        assert!(!"0.0.0.0/0".parse::<Cidr>().unwrap().contains("2001:db8::1".parse().unwrap()));
        assert!("fd00::/8".parse::<Cidr>().unwrap().contains("fd12::1".parse().unwrap()));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "host", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_walk_stops_at_the_first_address_that_is_not_trusted() {
        let spoofed =
            forwarded(&[("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2")], &["10.0.0.0/8"]);
        assert_eq!(spoofed.client, Some("203.0.113.7:0".parse().unwrap()));
        let headers = [
            ("forwarded", "for=1.1.1.1;proto=https"),
            (
                "forwarded",
                "for=\"[2001:db8::7]:4711\";host=shop.example;proto=http, for=10.0.0.2;proto=https",
            ),
        ];
        let forwarded = forwarded(&headers, &["10.0.0.0/8"]);
        assert_eq!(forwarded.client, Some("[2001:db8::7]:4711".parse().unwrap()));
        assert_eq!(forwarded.secure, Some(false));
        assert_eq!(forwarded.host.as_deref(), Some("shop.example"));
    }

    #[test]
    fn a_chain_of_trusted_proxies_alone_gives_its_first_address() {
        let forwarded = forwarded(&[("x-forwarded-for", "10.0.0.9, 10.0.0.2")], &["10.0.0.0/8"]);
        assert_eq!(forwarded.client, Some("10.0.0.9:0".parse().unwrap()));
    }

    #[test]
    fn x_forwarded_proto_host_and_port_are_read() {
        let forwarded = forwarded(
            &[
                ("x-forwarded-for", "203.0.113.7"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "shop.example:8443"),
                ("x-forwarded-port", "8443"),
            ],
            &[],
        );
        assert_eq!(forwarded.secure, Some(true));
        assert_eq!(forwarded.host.as_deref(), Some("shop.example:8443"));
        assert_eq!(forwarded.port, Some(8443));
    }

    #[test]
    fn a_forwarded_host_with_an_impossible_port_is_refused() {
        for host in ["a.example:99999", "a.example:80:80", "[::1"] {
            let quoted = format!("host=\"{host}\"");
            for (pair, believed) in [
                (("x-forwarded-host", host), "x-forwarded-host"),
                (("forwarded", &quoted), "forwarded"),
            ] {
                assert_eq!(taken(&[pair], &[believed]).0, Err(Contradiction::Port), "{host}");
                assert_eq!(taken(&[pair], DEFAULT).0, Ok(ForwardedInfo::default()), "{host}");
            }
        }
    }

    #[test]
    fn an_obfuscated_client_ends_the_walk_without_an_address() {
        assert_eq!(forwarded(&[("forwarded", "for=_hidden")], &[]).client, None);
        assert_eq!(forwarded(&[("forwarded", "for=unknown;proto=https")], &[]).secure, Some(true));
        let forwarded = forwarded(&[("forwarded", "for=\"192.0.2.1:_x\"")], &[]);
        assert_eq!(forwarded.client, Some("192.0.2.1:0".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn any_forwarded_header_is_handled(value in "[ -~]{0,200}", x in "[ -~]{0,100}") {
            let headers = [("forwarded", value.as_str())];
            let all = networks(&["0.0.0.0/0", "::/0"]);
            let _told = take(&mut fields(&headers), believing(&["forwarded"]), &all);
            let _told = forwarded(&[("x-forwarded-for", x.as_str()), ("x-forwarded-proto", value.as_str())], &["0.0.0.0/0"]);
        }

        #[test]
        fn an_untrusted_peer_is_the_client(claim in "[0-9., :a-f\\[\\]]{0,60}") {
            let value = format!("{claim}, 203.0.113.7");
            let forwarded = forwarded(&[("x-forwarded-for", value.as_str())], &["10.0.0.0/8"]);
            prop_assert_eq!(forwarded.client, Some("203.0.113.7:0".parse().unwrap()));
        }
    }
}
