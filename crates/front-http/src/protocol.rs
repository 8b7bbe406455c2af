//! The versions of HTTP, by what they differ in.

use http::Version;

/// Number of versions.
pub(crate) const PROTOCOLS: usize = 4;

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    /// HTTP/1.0, and what calls itself older.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Protocol {
    /// Returns the protocol of a message.
    pub(crate) fn of(version: Version) -> Self {
        match version {
            Version::HTTP_3 => Self::Http3,
            Version::HTTP_2 => Self::Http2,
            Version::HTTP_11 => Self::Http11,
            _ => Self::Http10,
        }
    }

    /// Returns whether several requests share a connection at the same time, so that no field may describe the connection
    /// (RFC 9113, section 8.2.2; RFC 9114, section 4.2).
    pub(crate) fn multiplexed(self) -> bool {
        matches!(self, Self::Http2 | Self::Http3)
    }

    /// Returns whether pseudo-header fields take the place of the request line and the status line, so that there is no reason phrase
    /// and `:authority` may replace Host (RFC 9113, section 8.3; RFC 9114, section 4.3).
    pub(crate) fn has_pseudo_headers(self) -> bool {
        self.multiplexed()
    }

    /// Returns whether every request has to name its host (RFC 9112, section 3.2).
    pub(crate) fn demands_host(self) -> bool {
        self != Self::Http10
    }

    /// Returns the version number as logs and spans have it.
    pub(crate) fn number(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2",
            Self::Http3 => "3",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_versions_have_their_names() {
        let all = [
            Version::HTTP_09,
            Version::HTTP_10,
            Version::HTTP_11,
            Version::HTTP_2,
            Version::HTTP_3,
        ];
        let numbers = all.map(|version| Protocol::of(version).number());
        assert_eq!(numbers, ["1.0", "1.0", "1.1", "2", "3"]);
        assert_eq!(all.map(|v| Protocol::of(v).demands_host()), [false, false, true, true, true]);
        assert_eq!(all.map(|v| Protocol::of(v).multiplexed()), [false, false, false, true, true]);
    }
}
