//! Decodes frames without copying: decoded values borrow the payload.

use crate::reader::{NOT_ZERO, Reader, Text};
use crate::{HEADER_LEN, Kind, RequestHead, ResponseHead, Sender};

/// Reasons why bytes are not a valid frame of this sender. The receiver closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The type is unknown, or not allowed for this sender.
    #[error("unexpected frame type {0:#04x}")]
    Type(u8),
    /// The type does not define this flag.
    #[error("unknown flags {flags:#04x} in frame type {kind:?}")]
    Flags {
        /// The type.
        kind: Kind,
        /// The frame's flags.
        flags: u8,
    },
    /// The reserved bytes are not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// The payload exceeds the type's maximum.
    #[error("{length} bytes of payload in frame type {kind:?}")]
    Length {
        /// The type.
        kind: Kind,
        /// Length of the payload in bytes.
        length: usize,
    },
    /// More name/value pairs than [`crate::MAX_PAIRS`].
    #[error("{0} pairs in one head")]
    Pairs(u16),
    /// The payload is truncated, too long, or contains invalid values.
    #[error("{0}")]
    Payload(&'static str),
}

/// The eight bytes before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the payload in bytes.
    pub length: usize,
    /// Type of the frame.
    pub kind: Kind,
    /// Flags of the type.
    pub flags: u8,
}

impl Header {
    /// Returns the length of the whole frame in bytes.
    pub const fn frame_len(&self) -> usize {
        HEADER_LEN + self.length
    }
}

/// Decodes the header at the start of `bytes`; `None` if fewer than [`HEADER_LEN`] bytes are available.
pub fn peek(bytes: &[u8], sender: Sender) -> Result<Option<Header>, Malformed> {
    let Some(&[l0, l1, l2, l3, number, flags, r0, r1]) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let kind = Kind::from_number(number)
        .filter(|kind| kind.may_come_from(sender))
        .ok_or(Malformed::Type(number))?;
    if r0 != 0 || r1 != 0 {
        return Err(Malformed::Reserved);
    }
    if !kind.knows_flags(flags) {
        return Err(Malformed::Flags { kind, flags });
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > kind.max_payload() {
        return Err(Malformed::Length { kind, length });
    }
    Ok(Some(Header { length, kind, flags }))
}

/// A log line of a worker or zygote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// Syslog level, 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Source: 0 for PHP's error log, 1 for `hearth_log()`, 2 for the worker itself.
    pub source: u8,
    /// The message.
    pub message: Text<'a>,
    /// A JSON object, or empty.
    pub context: Text<'a>,
}

/// An event that PHP publishes. The texts are bytes; the receiver validates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// Name of the event, never empty.
    pub event: Text<'a>,
    /// Id of the socket that does not receive it, or empty.
    pub except: Text<'a>,
    /// Data of the event.
    pub data: Text<'a>,
    /// Names of the channels: at least one.
    pub channels: Channels<'a>,
}

/// Channel names, validated when their frame was decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channels<'a> {
    rest: &'a [u8],
    left: u16,
}

impl Channels<'_> {
    /// Iterates over all names once, so that iterating later cannot fail.
    fn check(self) -> Result<Self, Malformed> {
        if usize::from(self.left) > crate::MAX_PAIRS {
            return Err(Malformed::Pairs(self.left));
        }
        let mut read = Reader { rest: self.rest };
        for _ in 0..self.left {
            if read.text()?.is_empty() {
                return Err(Malformed::Payload("a channel without a name"));
            }
        }
        read.end()?;
        Ok(self)
    }
}

impl<'a> Iterator for Channels<'a> {
    type Item = Text<'a>;

    fn next(&mut self) -> Option<Text<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut read = Reader { rest: self.rest };
        let name = read.text().ok();
        self.rest = read.rest;
        name
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

/// Paths, validated when their frame was decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files<'a> {
    rest: &'a [u8],
}

impl Files<'_> {
    /// Iterates over all paths once, so that iterating later cannot fail.
    fn check(self) -> Result<Self, Malformed> {
        let mut read = Reader { rest: self.rest };
        while !read.rest.is_empty() {
            if read.text()?.is_empty() {
                return Err(Malformed::Payload("a file without a path"));
            }
        }
        Ok(self)
    }
}

impl<'a> Iterator for Files<'a> {
    type Item = Text<'a>;

    fn next(&mut self) -> Option<Text<'a>> {
        let mut read = Reader { rest: self.rest };
        let path = read.text().ok();
        self.rest = read.rest;
        path
    }
}

/// A frame from a worker or zygote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromWorker<'a> {
    /// The process has started.
    Hello {
        /// [`crate::VERSION`] of the process.
        version: u16,
        /// The process id.
        pid: u32,
        /// PHP's version, e.g. `8.2.35`.
        php_version: Text<'a>,
    },
    /// The worker waits for a request.
    Ready,
    /// A 1xx response.
    Inform(ResponseHead<'a>),
    /// The head of the response.
    Head(ResponseHead<'a>),
    /// A piece of the response body.
    Body(&'a [u8]),
    /// The response is complete.
    End {
        /// The worker reads the next request at once; otherwise after some clean-up.
        ready: bool,
        /// PHP code is still running.
        busy: bool,
        /// A fatal error has ended the response early.
        failed: bool,
        /// Time from the request's start to this frame, in nanoseconds, without the time in which the worker waited
        /// for the request's body.
        took: u64,
    },
    /// A log line.
    Log(Output<'a>),
    /// An event for clients of realtime channels.
    Publish(Publication<'a>),
    /// The tags of stored answers to remove: a PUBLISH frame of the other kind.
    Purge(Channels<'a>),
    /// The files that the boot has included.
    Files(Files<'a>),
    /// The zygote has forked a worker.
    Spawned {
        /// The slot of SPAWN.
        slot: u32,
        /// Process id of the worker.
        pid: u32,
    },
    /// A worker has ended.
    Exited {
        /// Process id of the worker.
        pid: u32,
        /// Status as returned by `waitpid`.
        status: u32,
        /// Processor time of the process and of the children that it has waited for, in microseconds (`wait4(2)`).
        processor_time: u64,
    },
    /// The zygote could not fork.
    Failed {
        /// The slot of SPAWN.
        slot: u32,
        /// The system's error number.
        errno: u32,
    },
    /// The PHP stack of a worker.
    Stack {
        /// Process id of the worker.
        pid: u32,
        /// One line per function, the innermost first; empty if unknown.
        stack: &'a [u8],
        /// Why the stack is missing or incomplete.
        why: &'a [u8],
    },
}

/// A frame from the server to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromServer<'a> {
    /// A request's head.
    Request {
        /// The head.
        head: RequestHead<'a>,
        /// No body follows.
        last: bool,
    },
    /// A piece of the request's body.
    Body {
        /// The piece.
        data: &'a [u8],
        /// No more follows.
        last: bool,
    },
    /// The client is gone.
    Abort,
}

/// A frame from the server to a zygote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToZygote {
    /// Forks a worker.
    Spawn {
        /// Identifies the worker until SPAWNED reports its process id.
        slot: u32,
    },
    /// Signals a worker.
    Kill {
        /// Process id of the worker.
        pid: u32,
        /// The signal.
        signal: u32,
    },
    /// Requests a worker's PHP stack.
    Trace {
        /// Process id of the worker.
        pid: u32,
    },
}

impl<'a> FromWorker<'a> {
    /// Decodes one payload; `header` came from [`peek`] with a worker or zygote as sender.
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut read = Reader { rest: payload };
        let frame = match header.kind {
            Kind::Hello => {
                let version = read.u16()?;
                if read.u16()? != 0 {
                    return Err(NOT_ZERO);
                }
                Self::Hello { version, pid: read.u32()?, php_version: read.text()? }
            }
            Kind::Ready => Self::Ready,
            Kind::Inform | Kind::Head => {
                let head = ResponseHead::decode(payload)?;
                let informational = head.status < 200;
                return match (header.kind, informational) {
                    (Kind::Inform, true) => Ok(Self::Inform(head)),
                    (Kind::Head, false) => Ok(Self::Head(head)),
                    _ => Err(Malformed::Payload("status does not fit the frame type")),
                };
            }
            Kind::ResponseBody if payload.is_empty() => {
                return Err(Malformed::Payload("empty body frame"));
            }
            Kind::ResponseBody => return Ok(Self::Body(payload)),
            Kind::End => Self::End {
                ready: header.flags & Kind::END_READY != 0,
                busy: header.flags & Kind::END_BUSY != 0,
                failed: header.flags & Kind::END_FAILED != 0,
                took: read.u64()?,
            },
            Kind::Log => {
                let (level, source) = (read.u8()?, read.u8()?);
                if read.u16()? != 0 {
                    return Err(NOT_ZERO);
                }
                if level > 7 || source > 2 {
                    return Err(Malformed::Payload("unknown level or source of a log line"));
                }
                Self::Log(Output { level, source, message: read.text()?, context: read.text()? })
            }
            Kind::Publish => {
                let (left, what) = (read.u16()?, read.u16()?);
                if what == 1 {
                    let tags = Channels { rest: read.rest, left };
                    return Ok(Self::Purge(tags.check()?));
                }
                if what != 0 {
                    return Err(NOT_ZERO);
                }
                let (event, except, data) = (read.text()?, read.text()?, read.text()?);
                if left == 0 || event.is_empty() {
                    return Err(Malformed::Payload("an event without a name or a channel"));
                }
                let channels = Channels { rest: read.rest, left }.check()?;
                return Ok(Self::Publish(Publication { event, except, data, channels }));
            }
            Kind::Files => return Ok(Self::Files(Files { rest: payload }.check()?)),
            Kind::Spawned => Self::Spawned { slot: read.u32()?, pid: read.u32()? },
            Kind::Exited => {
                Self::Exited { pid: read.u32()?, status: read.u32()?, processor_time: read.u64()? }
            }
            Kind::Failed => Self::Failed { slot: read.u32()?, errno: read.u32()? },
            Kind::Stack => Self::Stack { pid: read.u32()?, stack: read.text()?, why: read.text()? },
            _ => return Err(Malformed::Type(header.kind as u8)),
        };
        read.end()?;
        Ok(frame)
    }
}

impl<'a> FromServer<'a> {
    /// Decodes one payload; `header` came from [`peek`] with [`Sender::ServerToWorker`].
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Self, Malformed> {
        let last = header.flags & Kind::LAST != 0;
        match header.kind {
            Kind::Request => {
                let head = RequestHead::decode(payload)?;
                if last && head.content_length != 0 {
                    return Err(Malformed::Payload("a body is announced and none follows"));
                }
                Ok(Self::Request { head, last })
            }
            Kind::Body => Ok(Self::Body { data: payload, last }),
            Kind::Abort => Reader { rest: payload }.end().map(|()| Self::Abort),
            other => Err(Malformed::Type(other as u8)),
        }
    }
}

impl ToZygote {
    /// Decodes one payload; `header` came from [`peek`] with [`Sender::ServerToZygote`].
    pub fn decode(header: Header, payload: &[u8]) -> Result<Self, Malformed> {
        let mut read = Reader { rest: payload };
        let frame = match header.kind {
            Kind::Spawn => Self::Spawn { slot: read.u32()? },
            Kind::Kill => Self::Kill { pid: read.u32()?, signal: read.u32()? },
            Kind::Trace => Self::Trace { pid: read.u32()? },
            other => return Err(Malformed::Type(other as u8)),
        };
        read.end()?;
        Ok(frame)
    }
}
