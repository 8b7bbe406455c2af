//! The report of each failure: fate, reason, libcurl's number and libcurl's words (lib/*.c of curl 7.88).

use std::io;
use std::time::Duration;

use crate::{CallError, Fate, Reason};

/// CURLE_* of curl/curl.h.
pub(crate) mod code {
    pub(crate) const UNSUPPORTED_PROTOCOL: u8 = 1;
    pub(crate) const RESOLVE_PROXY: u8 = 5;
    pub(crate) const RESOLVE_HOST: u8 = 6;
    pub(crate) const CONNECT: u8 = 7;
    pub(crate) const WEIRD_SERVER_REPLY: u8 = 8;
    pub(crate) const PARTIAL_FILE: u8 = 18;
    pub(crate) const TIMED_OUT: u8 = 28;
    pub(crate) const SSL_CONNECT: u8 = 35;
    pub(crate) const INTERFACE: u8 = 45;
    pub(crate) const GOT_NOTHING: u8 = 52;
    pub(crate) const SEND: u8 = 55;
    pub(crate) const RECEIVE: u8 = 56;
    pub(crate) const SSL_CERTIFICATE: u8 = 58;
    pub(crate) const PEER_VERIFICATION: u8 = 60;
    pub(crate) const CA_FILE: u8 = 77;
    pub(crate) const PINNED_KEY: u8 = 90;
    pub(crate) const HTTP2_STREAM: u8 = 92;
    pub(crate) const PROXY: u8 = 97;
}

impl CallError {
    /// The error of a call of which nothing was sent.
    pub(crate) fn declined(reason: Reason, curl: u8, message: impl Into<String>) -> Self {
        Self::new(Fate::Declined, reason, curl, message.into())
    }

    /// The error of a call of which something was sent.
    pub(crate) fn failed(reason: Reason, curl: u8, message: impl Into<String>) -> Self {
        Self::new(Fate::Failed, reason, curl, message.into())
    }

    fn new(fate: Fate, reason: Reason, curl: u8, message: String) -> Self {
        Self { fate, reason, curl, message, address: None, exhausted: false, kept: false }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::declined(Reason::Unsupported, 0, message)
    }

    pub(crate) fn unresolved(host: &str, of_proxy: bool) -> Self {
        if of_proxy {
            let message = format!("Could not resolve proxy: {host}");
            Self::declined(Reason::Resolve, code::RESOLVE_PROXY, message)
        } else {
            let message = format!("Could not resolve host: {host}");
            Self::declined(Reason::Resolve, code::RESOLVE_HOST, message)
        }
    }

    pub(crate) fn no_lookup(host: &str) -> Self {
        let message = format!("Too many names are being looked up to look up {host}");
        Self::declined(Reason::Resolve, 0, message)
    }

    pub(crate) fn unconnected(host: &str, port: u16, after: Duration, of_proxy: bool) -> Self {
        let reason = if of_proxy { Reason::Proxy } else { Reason::Connect };
        let after = after.as_millis();
        let message = format!(
            "Failed to connect to {host} port {port} after {after} ms: Couldn't connect to server"
        );
        Self::declined(reason, code::CONNECT, message)
    }

    pub(crate) fn denied(host: &str) -> Self {
        let message = format!("Connecting to {host} is not allowed here");
        Self::declined(Reason::Denied, code::CONNECT, message)
    }

    pub(crate) fn late(after: Duration, resolving: bool) -> Self {
        let what = if resolving { "Resolving" } else { "Connection" };
        let reason = if resolving { Reason::Resolve } else { Reason::Connect };
        let message = format!("{what} timed out after {} milliseconds", after.as_millis());
        Self::declined(reason, code::TIMED_OUT, message)
    }

    pub(crate) fn queued(after: Duration) -> Self {
        let message =
            format!("No connection became free within {} milliseconds", after.as_millis());
        Self::declined(Reason::Queue, code::TIMED_OUT, message)
    }

    pub(crate) fn queue_full() -> Self {
        Self::declined(Reason::Queue, code::TIMED_OUT, "Too many calls wait for this origin")
    }

    pub(crate) fn closing() -> Self {
        Self::declined(Reason::Queue, 0, "The broker is closing")
    }

    /// The connection broke while reading or writing.
    pub(crate) fn broken(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                Self::failed(Reason::Reset, code::SEND, "Send failure: Broken pipe")
            }
            io::ErrorKind::ConnectionReset => {
                Self::failed(Reason::Reset, code::RECEIVE, "Recv failure: Connection reset by peer")
            }
            _ => Self::failed(Reason::Reset, code::RECEIVE, format!("Recv failure: {error}")),
        }
    }

    pub(crate) fn empty() -> Self {
        Self::failed(Reason::Empty, code::GOT_NOTHING, "Empty reply from server")
    }

    /// The body ended early; with a length, the number of missing bytes is known.
    pub(crate) fn partial(missing: Option<u64>) -> Self {
        let message = match missing {
            Some(bytes) => format!("transfer closed with {bytes} bytes remaining to read"),
            None => "transfer closed with outstanding read data remaining".to_owned(),
        };
        Self::failed(Reason::Reset, code::PARTIAL_FILE, message)
    }

    /// The response does not begin like HTTP.
    pub(crate) fn no_http() -> Self {
        let message = "Received HTTP/0.9 when not allowed";
        Self::failed(Reason::Rubbish, code::UNSUPPORTED_PROTOCOL, message)
    }

    /// The response began like HTTP and is malformed.
    pub(crate) fn weird(message: impl Into<String>) -> Self {
        Self::failed(Reason::Rubbish, code::WEIRD_SERVER_REPLY, message)
    }

    pub(crate) fn stream(id: u32, reason: h2::Reason) -> Self {
        let message = format!(
            "HTTP/2 stream {id} was not closed cleanly: {} (err {})",
            name(reason),
            u32::from(reason)
        );
        Self::failed(Reason::Stream, code::HTTP2_STREAM, message)
    }

    /// The sender of the body aborted it and no longer waits.
    pub(crate) fn abandoned() -> Self {
        Self::failed(Reason::Body, 0, "The body was broken off")
    }

    /// Makes the error final if something was sent before it.
    pub(crate) fn final_if(mut self, sent: bool) -> Self {
        if sent {
            self.fate = Fate::Failed;
        }
        self
    }
}

/// Returns the name of an HTTP/2 error code as in RFC 9113, section 7.
fn name(reason: h2::Reason) -> &'static str {
    match reason {
        h2::Reason::NO_ERROR => "NO_ERROR",
        h2::Reason::PROTOCOL_ERROR => "PROTOCOL_ERROR",
        h2::Reason::INTERNAL_ERROR => "INTERNAL_ERROR",
        h2::Reason::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
        h2::Reason::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
        h2::Reason::STREAM_CLOSED => "STREAM_CLOSED",
        h2::Reason::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
        h2::Reason::REFUSED_STREAM => "REFUSED_STREAM",
        h2::Reason::CANCEL => "CANCEL",
        h2::Reason::COMPRESSION_ERROR => "COMPRESSION_ERROR",
        h2::Reason::CONNECT_ERROR => "CONNECT_ERROR",
        h2::Reason::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
        h2::Reason::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
        h2::Reason::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
        _ => "unknown",
    }
}
