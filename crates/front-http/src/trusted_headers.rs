//! The header fields that are used from trusted proxies: one family, `X-Forwarded-*` or `Forwarded`.
//!
//! Invariants
//! - A field that is not configured is neither used nor passed on to PHP from a trusted proxy, because the proxy may
//!   have passed it on from its client unchecked.

use std::fmt;
use std::str::FromStr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

/// A header field in which a proxy describes its client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedHeader {
    /// `Forwarded` (RFC 7239): address, scheme and host.
    Forwarded,
    /// `X-Forwarded-For`: the address.
    XForwardedFor,
    /// `X-Forwarded-Proto`: the scheme.
    XForwardedProto,
    /// `X-Forwarded-Host`: the host.
    XForwardedHost,
    /// `X-Forwarded-Port`: the port that the client connected to.
    XForwardedPort,
    /// `X-Request-Id`: the id of the request.
    XRequestId,
}

/// The fields that describe a client, in the order of [`TrustedHeader`]. `X-Request-Id` is not among them and may be
/// passed on.
static FIELDS: [(TrustedHeader, HeaderName); 5] = [
    (TrustedHeader::Forwarded, FORWARDED),
    (TrustedHeader::XForwardedFor, HeaderName::from_static("x-forwarded-for")),
    (TrustedHeader::XForwardedProto, HeaderName::from_static("x-forwarded-proto")),
    (TrustedHeader::XForwardedHost, HeaderName::from_static("x-forwarded-host")),
    (TrustedHeader::XForwardedPort, HeaderName::from_static("x-forwarded-port")),
];

impl TrustedHeader {
    /// Every field that can be trusted.
    pub const ALL: [Self; 6] = [
        Self::Forwarded,
        Self::XForwardedFor,
        Self::XForwardedProto,
        Self::XForwardedHost,
        Self::XForwardedPort,
        Self::XRequestId,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::XForwardedFor => "x-forwarded-for",
            Self::XForwardedProto => "x-forwarded-proto",
            Self::XForwardedHost => "x-forwarded-host",
            Self::XForwardedPort => "x-forwarded-port",
            Self::XRequestId => "x-request-id",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for TrustedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a text that names none of these fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a header field in which a proxy can be trusted")]
pub struct NotTrustable;

impl FromStr for TrustedHeader {
    type Err = NotTrustable;

    fn from_str(text: &str) -> Result<Self, NotTrustable> {
        Self::ALL
            .into_iter()
            .find(|header| text.eq_ignore_ascii_case(header.name()))
            .ok_or(NotTrustable)
    }
}

/// The error if `Forwarded` and a field of the other family are both configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`forwarded` beside `{0}`: a proxy sets one family, and passes the other on from its client"
)]
pub struct TwoFamilies(pub TrustedHeader);

/// The set of header fields that are used from trusted proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedHeaders(u8);

impl Default for TrustedHeaders {
    /// Returns the fields that proxies set most often: `X-Forwarded-For` and `X-Forwarded-Proto`.
    fn default() -> Self {
        Self(TrustedHeader::XForwardedFor.bit() | TrustedHeader::XForwardedProto.bit())
    }
}

impl TrustedHeaders {
    /// The whole family `X-Forwarded-*`.
    pub(crate) const X_FORWARDED: Self = Self(
        TrustedHeader::XForwardedFor.bit()
            | TrustedHeader::XForwardedProto.bit()
            | TrustedHeader::XForwardedHost.bit()
            | TrustedHeader::XForwardedPort.bit(),
    );

    /// Returns the set of these fields; an error if they belong to both families.
    pub fn new(headers: impl IntoIterator<Item = TrustedHeader>) -> Result<Self, TwoFamilies> {
        let all = Self(headers.into_iter().fold(0, |all, header| all | header.bit()));
        let other = Self(all.0 & Self::X_FORWARDED.0);
        let other = TrustedHeader::ALL.into_iter().find(|header| other.has(*header));
        match other {
            Some(other) if all.has(TrustedHeader::Forwarded) => Err(TwoFamilies(other)),
            _ => Ok(all),
        }
    }

    /// Returns whether this field is used.
    pub const fn has(self, header: TrustedHeader) -> bool {
        self.0 & header.bit() != 0
    }

    /// Returns whether proxies may state the requested host.
    pub const fn tell_host(self) -> bool {
        self.has(TrustedHeader::Forwarded) || self.has(TrustedHeader::XForwardedHost)
    }
}

/// Returns whether a request has any field that describes its client.
pub(crate) fn any(headers: &HeaderMap) -> bool {
    FIELDS.iter().any(|(_, name)| headers.contains_key(name))
}

/// Removes the fields that describe a client and are not used.
pub(crate) fn drop_others(headers: &mut HeaderMap, believed: TrustedHeaders) {
    for (_, name) in FIELDS.iter().filter(|(header, _)| !believed.has(*header)) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_one_family_are_taken_and_of_two_refused() {
        let set =
            |names: &[&str]| TrustedHeaders::new(names.iter().map(|name| name.parse().unwrap()));
        assert_eq!(set(&["X-Forwarded-For", "x-forwarded-proto"]), Ok(TrustedHeaders::default()));
        assert!(set(&["forwarded", "x-request-id"]).is_ok());
        assert!(set(&["x-forwarded-host", "x-request-id"]).unwrap().tell_host());
        assert_eq!(
            set(&["x-forwarded-port", "forwarded"]),
            Err(TwoFamilies(TrustedHeader::XForwardedPort))
        );
        assert!("x-real-ip".parse::<TrustedHeader>().is_err());
        let none = set(&[]).unwrap();
        assert!(TrustedHeader::ALL.iter().all(|header| !none.has(*header)));
    }

    #[test]
    fn every_field_has_the_name_that_it_is_looked_up_by() {
        for (header, name) in &FIELDS {
            assert_eq!(header.name(), name.as_str());
        }
    }
}
