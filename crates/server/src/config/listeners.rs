//! Addresses of which the settings leave room for one only.

use super::{Address, Settings};

impl Address {
    /// Returns whether a listener at this address leaves no room for the other one. All interfaces of IPv6 include those of IPv4.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix(one), Self::Unix(other)) => one == other,
            (Self::Tcp(one), Self::Tcp(other)) => {
                let covers = |all: &std::net::SocketAddr, one: &std::net::SocketAddr| {
                    all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
                };
                one.port() != 0
                    && one.port() == other.port()
                    && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
            }
            _ => false,
        }
    }
}

impl Settings {
    /// Returns the hint for an address that another of these settings has. `address` is the address as it is shown.
    pub(crate) fn named_twice(&self, address: &str) -> Option<String> {
        let http = self.http.listen.iter().map(|listen| ("http.listen", listen.address.clone()));
        let admin = self.admin.listen.map(|address| ("admin.listen", Address::Tcp(address)));
        let all: Vec<_> = http.chain(admin).collect();
        let (_, wanted) = all.iter().find(|(_, one)| one.to_string() == address)?;
        let named = all.iter().filter(|(_, one)| one.excludes(wanted));
        let named: Vec<String> = named.map(|(key, one)| format!("`{key}` {one}")).collect();
        (named.len() > 1).then(|| {
            format!(
                "only one of these can listen: {}; choose another address, or leave one out",
                named.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::{Raw, Value as _};
    use super::*;

    #[test]
    fn an_address_conflicts_with_itself_and_its_wildcard() {
        let address = |text: &str| Address::parse(&Raw::Text(text.into()), "/".as_ref()).unwrap();
        for (one, other, excludes) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("127.0.0.1:80", ":80", true),
            ("0.0.0.0:80", ":80", true),
            ("[::1]:80", ":80", true),
            ("[::1]:80", "0.0.0.0:80", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("unix:/a", "unix:/a", true),
            ("unix:/a", "unix:/b", false),
        ] {
            let (one, other) = (address(one), address(other));
            assert_eq!(one.excludes(&other), excludes, "{one} {other}");
            assert_eq!(other.excludes(&one), excludes, "{other} {one}");
        }
    }
}
