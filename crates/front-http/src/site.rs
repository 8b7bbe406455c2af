//! The address by which clients are counted.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Site(IpAddr);

impl Site {
    /// Returns the site of a client's address.
    pub(crate) fn of(address: IpAddr) -> Self {
        const PREFIX: u128 = !0 << 64;
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & PREFIX).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }

    /// Returns the address; of an IPv6 client that of its network.
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(address: &str) -> Site {
        Site::of(address.parse().unwrap())
    }

    #[test]
    fn an_ipv6_client_is_its_first_64_bits() {
        assert_eq!(site("2001:db8::1"), site("2001:db8::ffff:1:2:3"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:0:1::1"));
        assert_eq!(site("::ffff:192.0.2.1"), site("192.0.2.1"));
        assert_ne!(site("192.0.2.2"), site("192.0.2.1"));
    }
}
