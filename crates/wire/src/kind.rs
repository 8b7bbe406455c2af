//! The types of frames, their senders and their flags.

/// Type of a frame, with its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A request's head, to a worker.
    Request = 0x01,
    /// A piece of the request's body, to a worker.
    Body = 0x02,
    /// The client is gone, to a worker.
    Abort = 0x03,
    /// A process has started.
    Hello = 0x10,
    /// The worker waits for a request.
    Ready = 0x11,
    /// A 1xx response.
    Inform = 0x12,
    /// The head of the response.
    Head = 0x13,
    /// A piece of the response body.
    ResponseBody = 0x14,
    /// The response is complete.
    End = 0x15,
    /// A log line.
    Log = 0x16,
    /// An event for clients of realtime channels.
    Publish = 0x17,
    /// The files that the boot has included.
    Files = 0x18,
    /// Fork a worker, to the zygote.
    Spawn = 0x21,
    /// Signal a worker, to the zygote.
    Kill = 0x22,
    /// Request a worker's PHP stack, to the zygote.
    Trace = 0x23,
    /// A worker was forked.
    Spawned = 0x31,
    /// A worker has ended.
    Exited = 0x32,
    /// A worker could not be forked.
    Failed = 0x33,
    /// A worker's PHP stack.
    Stack = 0x34,
    /// A caller's token, to the broker.
    Open = 0x41,
    /// A call, to the broker.
    Call = 0x42,
    /// The broker asks for the body of a call.
    Want = 0x51,
    /// A 1xx response to a call.
    Interim = 0x52,
    /// The head of the response to a call.
    Answer = 0x53,
    /// Trailer fields after its body.
    Trailers = 0x54,
    /// The response is complete (END in docs/internals/egress.md).
    Done = 0x55,
    /// Nothing of the call was sent.
    Declined = 0x56,
    /// The call is lost (FAILED in docs/internals/egress.md).
    Lost = 0x57,
}

/// The sender of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The server, to a worker.
    ServerToWorker,
    /// A worker.
    Worker,
    /// The server, to a zygote.
    ServerToZygote,
    /// A zygote.
    Zygote,
    /// A process that sends calls to the egress broker.
    Caller,
    /// The egress broker, to a caller.
    Broker,
}

impl Kind {
    /// Flag of REQUEST and BODY: no more of the body follows.
    pub const LAST: u8 = 1;
    /// Flag of CALL: one BODY follows at once.
    pub const WHOLE: u8 = 2;
    /// Flag of END: the worker reads the next request at once.
    pub const END_READY: u8 = 1;
    /// Flag of END: PHP code is still running.
    pub const END_BUSY: u8 = 2;
    /// Flag of END, also beside one of the others: a fatal error has ended the response early.
    pub const END_FAILED: u8 = 4;

    /// Returns the type with this number, or `None`.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x01 => Self::Request,
            0x02 => Self::Body,
            0x03 => Self::Abort,
            0x10 => Self::Hello,
            0x11 => Self::Ready,
            0x12 => Self::Inform,
            0x13 => Self::Head,
            0x14 => Self::ResponseBody,
            0x15 => Self::End,
            0x16 => Self::Log,
            0x17 => Self::Publish,
            0x18 => Self::Files,
            0x21 => Self::Spawn,
            0x22 => Self::Kill,
            0x23 => Self::Trace,
            0x31 => Self::Spawned,
            0x32 => Self::Exited,
            0x33 => Self::Failed,
            0x34 => Self::Stack,
            0x41 => Self::Open,
            0x42 => Self::Call,
            0x51 => Self::Want,
            0x52 => Self::Interim,
            0x53 => Self::Answer,
            0x54 => Self::Trailers,
            0x55 => Self::Done,
            0x56 => Self::Declined,
            0x57 => Self::Lost,
            _ => return None,
        })
    }

    /// Returns whether `sender` may send this type at all.
    pub const fn may_come_from(self, sender: Sender) -> bool {
        match sender {
            Sender::ServerToWorker => matches!(self, Self::Request | Self::Body | Self::Abort),
            Sender::Worker => matches!(
                self,
                Self::Hello
                    | Self::Ready
                    | Self::Inform
                    | Self::Head
                    | Self::ResponseBody
                    | Self::End
                    | Self::Log
                    | Self::Publish
                    | Self::Files
            ),
            Sender::ServerToZygote => matches!(self, Self::Spawn | Self::Kill | Self::Trace),
            Sender::Zygote => matches!(
                self,
                Self::Hello
                    | Self::Log
                    | Self::Files
                    | Self::Spawned
                    | Self::Exited
                    | Self::Failed
                    | Self::Stack
            ),
            Sender::Caller => matches!(self, Self::Open | Self::Call | Self::Body | Self::Abort),
            Sender::Broker => matches!(
                self,
                Self::Want
                    | Self::Interim
                    | Self::Answer
                    | Self::ResponseBody
                    | Self::Trailers
                    | Self::Done
                    | Self::Declined
                    | Self::Lost
            ),
        }
    }

    /// Returns whether this combination of flags is defined.
    pub const fn knows_flags(self, flags: u8) -> bool {
        match self {
            Self::Request | Self::Body => flags <= Self::LAST,
            Self::End => {
                flags <= Self::END_FAILED | Self::END_BUSY
                    && flags & !Self::END_FAILED <= Self::END_BUSY
            }
            Self::Call => flags <= Self::WHOLE,
            _ => flags == 0,
        }
    }

    /// Returns the maximum payload of this type in bytes.
    pub const fn max_payload(self) -> usize {
        match self {
            Self::Body | Self::ResponseBody => crate::MAX_BODY,
            Self::Open => crate::MAX_TOKEN,
            Self::Call => crate::MAX_CALL,
            _ => crate::MAX_PAYLOAD,
        }
    }
}
