//! Why a connection ends, in the protocol's codes (Pusher Channels, "WebSocket protocol": "Error codes").

/// With what a connection is closed. Up to 4099 clients do not come back; up to 4199 they do after a while, up to 4299 at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// The close frame's status.
    pub code: u16,
    /// In words, for people.
    pub reason: &'static str,
}

impl Close {
    /// The application wants TLS.
    pub const TLS_ONLY: Self = Self::new(4000, "application only accepts TLS connections");
    /// No application has the key.
    pub const NO_SUCH_APP: Self = Self::new(4001, "application does not exist");
    /// The application is off.
    pub const APP_DISABLED: Self = Self::new(4003, "application disabled");
    /// The application has as many sockets as it may.
    pub const OVER_QUOTA: Self = Self::new(4004, "application is over connection quota");
    /// Not `/app/KEY`.
    pub const NO_SUCH_PATH: Self = Self::new(4005, "path not found");
    /// `protocol` is no number.
    pub const VERSION_FORMAT: Self = Self::new(4006, "invalid version string format");
    /// `protocol` is a number that is not spoken here.
    pub const UNSUPPORTED_VERSION: Self = Self::new(4007, "unsupported protocol version");
    /// There is no `protocol`.
    pub const NO_VERSION: Self = Self::new(4008, "no protocol version supplied");
    /// A sign-in whose signature is wrong.
    pub const UNAUTHORIZED: Self = Self::new(4009, "connection is unauthorized");
    /// The page's origin is not one of the application's.
    pub const OTHER_ORIGIN: Self = Self::new(4009, "origin not allowed");
    /// The application asked for this user's connections to be ended.
    pub const TERMINATED: Self = Self::new(4009, "terminated by the application");
    /// An event stream's id that was not given for it, or is too old.
    pub const OTHER_ID: Self =
        Self::new(4009, "socket_id is not one that was given for an event stream a moment ago");
    /// No room for more sockets on this node.
    pub const OVER_CAPACITY: Self = Self::new(4100, "over capacity");
    /// Nobody can say whether there is such an application. Not of those up to 4299: all clients would come back at once, and again.
    pub const LOOK_UP_FAILED: Self =
        Self::new(4100, "the application cannot be looked up at the moment");
    /// It did not read what was sent: its queue is full.
    pub const TOO_SLOW: Self =
        Self::new(4100, "too slow: messages waiting for this connection exceed the limit");
    /// This node ends, or must let go: come back at once.
    pub const RECONNECT: Self = Self::new(4200, "reconnect immediately");
    /// Asked whether it was still there, it did not answer.
    pub const PONG_TIMEOUT: Self = Self::new(4201, "pong reply not received in time");
    /// Silent for long, and not able to answer a ping: only clients of protocols before 5, which are not spoken here.
    pub const INACTIVE: Self = Self::new(4202, "closed after inactivity");

    const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

/// A client event is refused. The connection stays.
pub(crate) const CLIENT_EVENT_REFUSED: u16 = 4301;
/// More than may be: users to watch. The connection stays.
pub(crate) const LIMIT_EXCEEDED: u16 = 4302;
/// What a client said makes no sense. The connection stays.
pub(crate) const NOT_UNDERSTOOD: u16 = 4200;
