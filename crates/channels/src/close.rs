//! Close codes of connections (Pusher Channels, "WebSocket protocol": "Error codes").

/// Code and reason with which a connection is closed. With codes up to 4099 clients do not reconnect, up to 4199 they
/// reconnect after a pause, up to 4299 at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// Status code of the close frame.
    pub code: u16,
    /// Reason as text.
    pub reason: &'static str,
}

impl Close {
    /// The application requires TLS.
    pub const TLS_ONLY: Self = Self::new(4000, "application only accepts TLS connections");
    /// No application has the key.
    pub const NO_SUCH_APP: Self = Self::new(4001, "application does not exist");
    /// The application is disabled.
    pub const APP_DISABLED: Self = Self::new(4003, "application disabled");
    /// The application has reached its limit of connections.
    pub const OVER_QUOTA: Self = Self::new(4004, "application is over connection quota");
    /// The path is not `/app/KEY`.
    pub const NO_SUCH_PATH: Self = Self::new(4005, "path not found");
    /// `protocol` is not a number.
    pub const VERSION_FORMAT: Self = Self::new(4006, "invalid version string format");
    /// `protocol` is an unsupported version.
    pub const UNSUPPORTED_VERSION: Self = Self::new(4007, "unsupported protocol version");
    /// `protocol` is missing.
    pub const NO_VERSION: Self = Self::new(4008, "no protocol version supplied");
    /// The signature of a sign-in is invalid.
    pub const UNAUTHORIZED: Self = Self::new(4009, "connection is unauthorized");
    /// The page's origin is not allowed by the application.
    pub const OTHER_ORIGIN: Self = Self::new(4009, "origin not allowed");
    /// The application terminated this user's connections.
    pub const TERMINATED: Self = Self::new(4009, "terminated by the application");
    /// The id of an event stream was not issued for it, or has expired.
    pub const OTHER_ID: Self =
        Self::new(4009, "socket_id is not one that was given for an event stream a moment ago");
    /// This node has reached its limit of connections.
    pub const OVER_CAPACITY: Self = Self::new(4100, "over capacity");
    /// The look-up of the application failed. A code from 4200 on would make all clients reconnect at once, again and
    /// again.
    pub const LOOK_UP_FAILED: Self =
        Self::new(4100, "the application cannot be looked up at the moment");
    /// The client does not read what is sent: its queue is full.
    pub const TOO_SLOW: Self =
        Self::new(4100, "too slow: messages waiting for this connection exceed the limit");
    /// This node stops, or must drop the connection: the client reconnects at once.
    pub const RECONNECT: Self = Self::new(4200, "reconnect immediately");
    /// The client did not answer a ping.
    pub const PONG_TIMEOUT: Self = Self::new(4201, "pong reply not received in time");

    const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

/// A client event is rejected. The connection stays open.
pub(crate) const CLIENT_EVENT_REFUSED: u16 = 4301;
/// A limit is exceeded, for example by the watchlist. The connection stays open.
pub(crate) const LIMIT_EXCEEDED: u16 = 4302;
/// A client's message is invalid. The connection stays open.
pub(crate) const NOT_UNDERSTOOD: u16 = 4200;
