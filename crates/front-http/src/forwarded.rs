//! Whom to believe about the client: `Forwarded` (RFC 7239) and `X-Forwarded-*`, walked from the right, only from trusted peers.
//!
//! Invariants
//! - A header from a peer that is not trusted changes nothing.
//! - The walk stops at the first address that is not trusted: what stands left of it was written by the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::{HeaderMap, HeaderValue};

/// A network, e.g. `10.0.0.0/8`, `fd00::/8` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// A text that is no network.
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
    /// Whether `address` is in this network. An IPv4 address mapped into IPv6 counts as the IPv4 address.
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

/// What trusted proxies say about a request. `None` where they say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The client's address; port 0 when it was not told.
    pub(crate) client: Option<SocketAddr>,
    /// Whether the client came over TLS.
    pub(crate) secure: Option<bool>,
    /// The host it asked for, perhaps with a port.
    pub(crate) host: Option<String>,
    /// The port it came to.
    pub(crate) port: Option<u16>,
}

/// Reads what a trusted peer forwarded. `Forwarded` wins over `X-Forwarded-*` when both are there.
pub(crate) fn read(headers: &HeaderMap, trusted: &[Cidr]) -> Told {
    if headers.contains_key(http::header::FORWARDED) {
        read_forwarded(headers, trusted)
    } else {
        read_x_forwarded(headers, trusted)
    }
}

fn is_trusted(address: IpAddr, trusted: &[Cidr]) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

fn read_forwarded(headers: &HeaderMap, trusted: &[Cidr]) -> Told {
    let mut told = Told::default();
    let values: Vec<&str> = values(headers, &http::header::FORWARDED);
    let elements: Vec<&str> = values.iter().flat_map(|value| split_quoted(value, b',')).collect();
    for element in elements.into_iter().rev() {
        let mut next = Told::default();
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
        // An element says how the request reached the proxy that wrote it: believed, since that proxy is trusted.
        next.client = told.client;
        let client = node.as_deref().and_then(parse_node);
        if let Some(client) = client {
            next.client = Some(client);
        }
        told = Told {
            secure: next.secure.or(told.secure),
            host: next.host.or(told.host),
            client: next.client,
            port: None,
        };
        if !client.is_some_and(|client| is_trusted(client.ip(), trusted)) {
            break;
        }
    }
    told
}

fn read_x_forwarded(headers: &HeaderMap, trusted: &[Cidr]) -> Told {
    let clients = list(headers, "x-forwarded-for");
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
    // A list as long as that of the addresses has an entry per proxy; a shorter one was written by the nearest.
    let at = |name: &str| -> Option<String> {
        let mut list = list(headers, name);
        let steps = if list.len() >= clients.len() { hops } else { 0 };
        let index = list.len().checked_sub(1 + steps.min(list.len().saturating_sub(1)))?;
        Some(list.swap_remove(index).to_owned())
    };
    Told {
        client,
        secure: at("x-forwarded-proto").and_then(|proto| secure(&proto)),
        host: at("x-forwarded-host"),
        port: at("x-forwarded-port").and_then(|port| port.parse().ok()),
    }
}

fn values(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Vec<&str> {
    headers.get_all(name).iter().filter_map(|value: &HeaderValue| value.to_str().ok()).collect()
}

fn list<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
    values(headers, name)
        .into_iter()
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect()
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

/// An address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80`, `2001:db8::1`.
/// Obfuscated names (`_hidden`, `unknown`) are none.
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

/// Splits at a separator that stands outside of quoted strings.
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
    use super::*;
    use proptest::prelude::*;

    fn told(pairs: &[(&'static str, &str)], trusted: &[&str]) -> Told {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let trusted: Vec<Cidr> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        read(&headers, &trusted)
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
            told(&[("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2")], &["10.0.0.0/8"]);
        assert_eq!(spoofed.client, Some("203.0.113.7:0".parse().unwrap()));
        let headers = [
            ("forwarded", "for=1.1.1.1;proto=https"),
            (
                "forwarded",
                "for=\"[2001:db8::7]:4711\";host=shop.example;proto=http, for=10.0.0.2;proto=https",
            ),
        ];
        let told = told(&headers, &["10.0.0.0/8"]);
        assert_eq!(told.client, Some("[2001:db8::7]:4711".parse().unwrap()));
        assert_eq!(told.secure, Some(false));
        assert_eq!(told.host.as_deref(), Some("shop.example"));
    }

    #[test]
    fn a_chain_of_trusted_proxies_alone_gives_its_first_address() {
        let told = told(&[("x-forwarded-for", "10.0.0.9, 10.0.0.2")], &["10.0.0.0/8"]);
        assert_eq!(told.client, Some("10.0.0.9:0".parse().unwrap()));
    }

    #[test]
    fn x_forwarded_proto_host_and_port_are_read() {
        let told = told(
            &[
                ("x-forwarded-for", "203.0.113.7"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "shop.example:8443"),
                ("x-forwarded-port", "8443"),
            ],
            &[],
        );
        assert_eq!(told.secure, Some(true));
        assert_eq!(told.host.as_deref(), Some("shop.example:8443"));
        assert_eq!(told.port, Some(8443));
    }

    #[test]
    fn an_obfuscated_client_ends_the_walk_without_an_address() {
        assert_eq!(told(&[("forwarded", "for=_hidden")], &[]).client, None);
        assert_eq!(told(&[("forwarded", "for=unknown;proto=https")], &[]).secure, Some(true));
        let told = told(&[("forwarded", "for=\"192.0.2.1:_x\"")], &[]);
        assert_eq!(told.client, Some("192.0.2.1:0".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn any_header_is_survived(value in "[ -~]{0,200}", x in "[ -~]{0,100}") {
            let headers = [("forwarded", value.as_str())];
            let _told = told(&headers, &["0.0.0.0/0", "::/0"]);
            let _told = told(&[("x-forwarded-for", x.as_str()), ("x-forwarded-proto", value.as_str())], &["0.0.0.0/0"]);
        }

        #[test]
        fn an_untrusted_neighbour_is_the_client_whatever_it_claims(claim in "[0-9., :a-f\\[\\]]{0,60}") {
            let value = format!("{claim}, 203.0.113.7");
            let told = told(&[("x-forwarded-for", value.as_str())], &["10.0.0.0/8"]);
            prop_assert_eq!(told.client, Some("203.0.113.7:0".parse().unwrap()));
        }
    }
}
