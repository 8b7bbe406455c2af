//! Close codes that are allowed in a close frame (RFC 6455, 7.4).

/// A code that is allowed in a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

/// A number that is not allowed in a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not allowed in a close frame")]
pub struct InvalidCloseCode(pub u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// This side goes away: the server stops, or the connection was idle for too long.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer violated RFC 6455.
    pub const PROTOCOL: Self = Self(1002);
    /// A text message is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// The peer violated a rule of this side that has no other code.
    pub const POLICY: Self = Self(1008);
    /// A message exceeds the size limit.
    pub const TOO_LARGE: Self = Self(1009);
    /// An unexpected error occurred on this side.
    pub const INTERNAL: Self = Self(1011);

    /// This side has too much to do: the peer may try again later.
    pub const TRY_AGAIN: Self = Self(1013);

    /// Accepts the codes defined by RFC 6455 for the wire, those registered later with IANA (1012 to 1014), and those
    /// for libraries and applications (3000 to 4999).
    pub const fn new(code: u16) -> Result<Self, InvalidCloseCode> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Ok(Self(code)),
            _ => Err(InvalidCloseCode(code)),
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0
    }
}
