//! Destinations that are denied: networks, and sockets of this machine, checked after look-up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

/// Addresses with a common prefix, as in `169.254.0.0/16`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// Why a text is not a network.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is no network: write it as 10.0.0.0/8, fd00::/8 or as one address")]
pub struct NotANetwork(String);

impl Network {
    /// `169.254.0.0/16` and `fe80::/10`: link-local networks, where clouds keep their metadata services.
    pub fn link_local() -> Vec<Self> {
        let v4 = Self { first: IpAddr::from([169, 254, 0, 0]), prefix: 16 };
        let v6 = Self { first: IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 0]), prefix: 10 };
        vec![v4, v6]
    }

    /// Returns whether the network contains the address. An IPv4 address written as IPv6 counts as the IPv4 address
    /// that it reaches.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first.to_canonical(), reached(address)) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                // The prefix of a mapped network counts from the start of the IPv6 address.
                let prefix = if self.first.is_ipv6() { self.prefix - 96 } else { self.prefix };
                let mask = u32::MAX.checked_shl(u32::from(32 - prefix)).unwrap_or(0);
                first.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(u32::from(128 - self.prefix)).unwrap_or(0);
                first.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// Returns whether one of the networks contains the address, or that which a connection to it reaches.
pub(crate) fn denied(networks: &[Network], address: IpAddr) -> bool {
    let reached = connected(address);
    networks.iter().any(|network| network.contains(address) || network.contains(reached))
}

/// Returns whether a connection to this address and port reaches one of the sockets.
pub(crate) fn arrives_at(sockets: &[SocketAddr], address: IpAddr, port: u16) -> bool {
    let address = connected(address);
    let mut of_port = sockets.iter().filter(|socket| socket.port() == port);
    of_port.any(|socket| match reached(socket.ip()) {
        ip if ip.is_unspecified() => is_of_this_machine(address),
        ip => ip == address,
    })
}

/// The address that connect(2) connects to: loopback for an unspecified one (ip(7)).
fn connected(address: IpAddr) -> IpAddr {
    match reached(address) {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// Returns whether the address is the machine's own: only such an address can be bound. Nothing is sent.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Returns whether the address is public (the IANA special-purpose registries, RFC 6890).
pub(crate) fn public(address: IpAddr) -> bool {
    match reached(address) {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let special = match a {
                0 | 10 | 127 | 224..=255 => true,
                100 => (64..128).contains(&b),
                169 => b == 254,
                172 => (16..32).contains(&b),
                192 => b == 168 || (b == 0 && (c == 0 || c == 2)) || (b == 88 && c == 99),
                198 => b == 18 || b == 19 || (b == 51 && c == 100),
                203 => b == 0 && c == 113,
                _ => false,
            };
            !special
        }
        IpAddr::V6(v6) => match v6.segments() {
            // 6to4 (RFC 3056) reaches the IPv4 address in it.
            [0x2002, a, b, ..] => {
                let [[a, b], [c, d]] = [a.to_be_bytes(), b.to_be_bytes()];
                public(IpAddr::from([a, b, c, d]))
            }
            // Teredo, ORCHID, benchmarking; documentation.
            [0x2001, 0..0x200 | 0xdb8, ..] => false,
            // Only 2000::/3 is handed out.
            [first, ..] => first & 0xe000 == 0x2000,
        },
    }
}

/// The address that packets reach: the IPv4 address for one written as IPv6 (RFC 4291, 2.5.5; NAT64, RFC 6052).
fn reached(address: IpAddr) -> IpAddr {
    const NAT64: u128 = 0x0064_ff9b_u128 << 96;

    match address.to_canonical() {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == NAT64 >> 32 => embedded(v6),
        // ::a.b.c.d, deprecated; :: and ::1 are addresses of their own.
        IpAddr::V6(v6) if v6.to_bits() >> 32 == 0 && v6.to_bits() > 1 => embedded(v6),
        other => other,
    }
}

fn embedded(v6: Ipv6Addr) -> IpAddr {
    let [.., a, b, c, d] = v6.octets();
    IpAddr::from([a, b, c, d])
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let wrong = || NotANetwork(text.to_owned());
        let (first, prefix) = match text.split_once('/') {
            Some((first, prefix)) => (first, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = first.trim().parse().ok().ok_or_else(wrong)?;
        let longest = if first.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.trim().parse().ok().ok_or_else(wrong)?,
            None => longest,
        };
        // Of a mapped network less than 96 bits would be all of IPv4 and more, which is never meant.
        let least = if first.to_canonical().is_ipv4() && first.is_ipv6() { 96 } else { 0 };
        if (least..=longest).contains(&prefix) { Ok(Self { first, prefix }) } else { Err(wrong()) }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn a_network_holds_its_addresses_and_no_others() {
        for (net, address, inside) in [
            ("169.254.0.0/16", "169.254.169.254", true),
            ("169.254.0.0/16", "169.253.255.255", false),
            ("169.254.0.0/16", "::ffff:169.254.169.254", true),
            ("169.254.0.0/16", "64:ff9b::a9fe:a9fe", true),
            ("169.254.0.0/16", "::a9fe:a9fe", true),
            ("fe80::/10", "fe80::1", true),
            ("fe80::/10", "febf::1", true),
            ("fe80::/10", "fec0::1", false),
            ("fe80::/10", "169.254.1.1", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("::1", "::1", true),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(network(net).contains(address), inside, "{address} in {net}");
        }
    }

    #[test]
    fn an_unspecified_address_is_denied_with_loopback() {
        for (net, address, is_denied) in [
            ("127.0.0.0/8", "0.0.0.0", true),
            ("127.0.0.0/8", "::ffff:0.0.0.0", true),
            ("::1", "::", true),
            ("0.0.0.0", "0.0.0.0", true),
            ("10.0.0.0/8", "0.0.0.0", false),
            ("::1", "0.0.0.0", false),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(denied(&[network(net)], address), is_denied, "{address} by {net}");
        }
    }

    #[test]
    fn only_what_the_internet_routes_is_public() {
        for (address, is_public) in [
            ("8.8.8.8", true),
            ("127.0.0.1", false),
            ("10.1.2.3", false),
            ("172.31.0.1", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("100.64.0.1", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("::1", false),
            ("::", false),
            ("::ffff:10.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("fd00::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("2002:7f00:1::", false),
            ("2002:808:808::", true),
            ("2001:db8::1", false),
            ("2001:0:1::", false),
            ("2606:4700::1", true),
        ] {
            assert_eq!(public(address.parse().expect("an address")), is_public, "{address}");
        }
    }

    #[test]
    fn a_local_listener_is_recognised_by_every_address() {
        let arrives = |socket: &str, address: &str, port| {
            let sockets = ["127.0.0.9:1".parse().unwrap(), socket.parse().unwrap()];
            arrives_at(&sockets, address.parse().unwrap(), port)
        };
        for (socket, address, port, expected) in [
            ("127.0.0.1:9180", "127.0.0.1", 9180, true),
            ("127.0.0.1:9180", "::ffff:127.0.0.1", 9180, true),
            ("127.0.0.1:9180", "0.0.0.0", 9180, true),
            ("127.0.0.1:9180", "127.0.0.1", 9181, false),
            ("127.0.0.1:9180", "127.0.0.2", 9180, false),
            ("127.0.0.1:9180", "192.0.2.1", 9180, false),
            ("[::1]:9180", "::1", 9180, true),
            ("[::1]:9180", "::", 9180, true),
            ("[::1]:9180", "127.0.0.1", 9180, false),
            ("[::ffff:127.0.0.1]:9180", "127.0.0.1", 9180, true),
            ("0.0.0.0:9180", "127.0.0.1", 9180, true),
            ("0.0.0.0:9180", "127.1.2.3", 9180, true),
            ("[::]:9180", "::1", 9180, true),
            ("[::]:9180", "127.0.0.1", 9180, true),
            ("[::]:9180", "0.0.0.0", 9180, true),
            ("[::]:9180", "127.0.0.1", 80, false),
            ("127.0.0.2:9180", "127.0.0.9", 1, true),
        ] {
            assert_eq!(arrives(socket, address, port), expected, "{address}:{port} to {socket}");
        }
        assert!(!arrives_at(&[], IpAddr::from([127, 0, 0, 1]), 9180));
    }

    #[test]
    fn invalid_networks_are_rejected_with_their_text() {
        for text in
            ["", "10.0.0.0/33", "fe80::/129", "10.0.0/8", "x/8", "10.0.0.0/-1", "::ffff:1.2.3.4/8"]
        {
            let why = text.parse::<Network>().expect_err(text);
            assert!(why.to_string().starts_with(&format!("{text:?} is no network")), "{why}");
        }
    }

    #[test]
    fn networks_are_written_as_they_are_read() {
        for text in ["10.0.0.0/8", "fe80::/10"] {
            assert_eq!(network(text).to_string(), text);
        }
    }
}
