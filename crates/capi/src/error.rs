//! Errors: of a refused call of the library, and of a request without a response.

use egress::{CallError, Reason};

/// The result of a call of the library: `hearth_status`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i32)]
pub(crate) enum Status {
    Ok = 0,
    Invalid = 1,
    State = 2,
    System = 3,
    Late = 4,
    Unsupported = 5,
    Panic = 6,
}

/// A refused call of the library, with the reason.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refused {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Refused {
    fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Status::Invalid, message)
    }

    pub(crate) fn state(message: impl Into<String>) -> Self {
        Self::new(Status::State, message)
    }

    pub(crate) fn system(message: impl Into<String>) -> Self {
        Self::new(Status::System, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Status::Unsupported, message)
    }
}

/// Why a request has no response: `hearth_error`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i32)]
pub(crate) enum Kind {
    Aborted = 1,
    Stopped = 2,
    Timeout = 3,
    ConnectTimeout = 4,
    IdleTimeout = 5,
    Url = 6,
    Protocol = 7,
    Resolve = 8,
    Connect = 9,
    Denied = 10,
    Proxy = 11,
    Tls = 12,
    Certificate = 13,
    Reset = 14,
    Empty = 15,
    Rubbish = 16,
    Stream = 17,
    TooManyRedirects = 18,
    TooLarge = 19,
    Decoding = 20,
    Source = 21,
    System = 22,
    Unsupported = 23,
    Internal = 24,
    Refused = 25,
    Later = 26,
    Login = 27,
    Unknown = 28,
}

/// `CURLE_TIMED_OUT`.
const TIMED_OUT: u8 = 28;

/// Why a request has no response: a kind, libcurl's number, and a message.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    /// Creates one with the number of the libcurl error that fits best (curl/curl.h).
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let code = match kind {
            Kind::Aborted | Kind::Stopped => 42,
            Kind::Timeout | Kind::ConnectTimeout | Kind::IdleTimeout => TIMED_OUT,
            Kind::Url => 3,
            Kind::Protocol | Kind::Unsupported => 1,
            Kind::Resolve => 6,
            Kind::Connect | Kind::Denied | Kind::System => 7,
            Kind::Proxy => 97,
            Kind::Tls => 35,
            Kind::Certificate => 60,
            Kind::Reset => 56,
            Kind::Empty => 52,
            Kind::Rubbish => 8,
            Kind::Stream => 92,
            Kind::TooManyRedirects => 47,
            Kind::TooLarge => 63,
            Kind::Decoding => 61,
            Kind::Source => 26,
            Kind::Internal | Kind::Unknown => 0,
            Kind::Refused | Kind::Later => 55,
            Kind::Login => 67,
        };
        Self { kind, code, message: message.into() }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let kind = match error.reason {
            Reason::Connect | Reason::Resolve | Reason::Tls | Reason::Proxy
                if error.curl == TIMED_OUT =>
            {
                Kind::ConnectTimeout
            }
            Reason::Queue => Kind::ConnectTimeout,
            Reason::Resolve => Kind::Resolve,
            Reason::Connect if error.exhausted => Kind::System,
            Reason::Connect => Kind::Connect,
            Reason::Tls => Kind::Tls,
            Reason::Certificate => Kind::Certificate,
            Reason::Proxy => Kind::Proxy,
            Reason::Denied => Kind::Denied,
            Reason::Unsupported => Kind::Unsupported,
            Reason::Reset => Kind::Reset,
            Reason::Empty => Kind::Empty,
            Reason::Rubbish => Kind::Rubbish,
            Reason::Stream => Kind::Stream,
            Reason::Body => Kind::Source,
        };
        Self { kind, code: error.curl, message: error.message }
    }
}
