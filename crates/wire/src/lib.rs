//! Frames between the server and its PHP processes: encoding, decoding, limits. The specification is
//! docs/internals/frames.md.
//!
//! Invariants
//! - Pure bytes: no I/O, no clock, no runtime, no allocation when decoding.
//! - Input is data: every malformed input is a [`Malformed`], never a panic.
//! - Output keeps the limits: an encoder returns [`TooLarge`] and leaves its buffer unchanged.

mod call;
mod decode;
mod encode;
mod head;
mod kind;
mod limits;
mod reader;

pub use call::{AnswerHead, CallBody, FromBroker, FromCaller, NoAnswer, OPENING};
pub use decode::{
    Channels, Files, FromServer, FromWorker, Header, Malformed, Output, Publication, ToZygote, peek,
};
pub use encode::{TooLarge, body_header};
pub use head::{RequestHead, ResponseHead};
pub use kind::{Kind, Sender};
pub use limits::{
    HEADER_LEN, MAX_BODY, MAX_CALL, MAX_PAIRS, MAX_PAYLOAD, MAX_TOKEN, NO_LENGTH, VERSION,
};
pub use reader::{Pairs, Text};

/// Encoders, by sender.
pub mod send {
    pub use crate::call::{
        answer_head, call, done, interim, no_answer_at_all, open, trailers, want,
    };
    pub use crate::encode::{
        abort, body, end, hello, kill, log, ready, response_body, spawn, trace,
    };
    pub use crate::encode::{exited, failed, files, publish, purge, spawned, stack};
    pub use crate::head::{RequestWriter, ResponseWriter};
}
