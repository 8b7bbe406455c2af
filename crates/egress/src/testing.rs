//! Helpers for the tests of several modules.

use crate::{Key, Scheme};

/// The key of `http://host:port` or `https://…`.
pub(crate) fn key(origin: &str) -> Key {
    let (scheme, rest) = origin.split_once("://").expect("a scheme");
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let default = if scheme == Scheme::Https { "443" } else { "80" };
    let (host, port) = rest.split_once(':').unwrap_or((rest, default));
    Key::plain(0, scheme, host, port.parse().expect("a port"))
}
