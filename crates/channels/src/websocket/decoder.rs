//! Decodes bytes into messages.
//!
//! A message that is complete in the input is unmasked and returned in place. A message split into fragments, or by
//! the network, is collected in its own buffer, and is unmasked and validated as it arrives.

use std::borrow::Cow;

use super::close::CloseCode;
use super::deflate::Inflater;
use super::frame::{Head, MAX_HEAD, Opcode};
use super::mask;

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A complete text message.
    Text(Cow<'a, str>),
    /// A complete binary message.
    Binary(Cow<'a, [u8]>),
    /// A ping, to be answered by a pong with the same payload.
    Ping(Cow<'a, [u8]>),
    /// An answer to a ping, or an unsolicited sign of life.
    Pong(Cow<'a, [u8]>),
    /// A close frame. Bytes after it are ignored.
    Close {
        /// Close code, if the client sent one.
        code: Option<CloseCode>,
        /// Reason as text.
        reason: Cow<'a, str>,
    },
}

/// Limits for the client's messages.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Maximum size of one message in bytes, both compressed and decompressed.
    pub message: usize,
    /// permessage-deflate has been negotiated.
    pub deflate: bool,
}

/// The result of one call of [`Decoder::next`].
#[derive(Debug)]
pub struct Step<'a> {
    /// Number of input bytes consumed.
    pub consumed: usize,
    /// The next message; without one, the whole input is consumed.
    pub message: Option<Message<'a>>,
}

/// Reasons why the server closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The client violated RFC 6455 or RFC 7692: code 1002.
    #[error("{0}")]
    Protocol(&'static str),
    /// A text is not UTF-8, or compressed data are invalid: code 1007.
    #[error("{0}")]
    Data(&'static str),
    /// The message exceeds the limit: code 1009.
    #[error("the message has more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
}

impl Violation {
    /// Returns the close code (RFC 6455, 7.4.1).
    pub fn code(self) -> CloseCode {
        match self {
            Self::Protocol(_) => CloseCode::PROTOCOL,
            Self::Data(_) => CloseCode::INVALID_DATA,
            Self::TooLarge { .. } => CloseCode::TOO_LARGE,
        }
    }
}

const NOT_UTF8: Violation = Violation::Data("a text is not UTF-8");

/// The decoder of one socket. It holds memory only while a message is incomplete.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Option<Box<Pending>>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Pending {
    /// An incomplete frame head.
    head: [u8; MAX_HEAD],
    head_length: usize,
    /// A frame with an incomplete payload, and how many bytes of it have arrived.
    frame: Option<(Head, usize)>,
    /// The received part of a control frame.
    control: Vec<u8>,
    /// A message of which at least one byte or one frame has arrived.
    message: Option<Assembly>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.head_length == 0 && self.frame.is_none() && self.message.is_none()
    }
}

/// A message that arrives in pieces.
#[derive(Debug)]
struct Assembly {
    text: bool,
    compressed: bool,
    bytes: Vec<u8>,
    /// Length of the prefix known to be UTF-8; up to three bytes after it may be the start of a character.
    valid: usize,
}

impl Assembly {
    fn append(&mut self, payload: &[u8]) -> Result<(), Violation> {
        self.bytes.extend_from_slice(payload);
        if self.text && !self.compressed {
            let (_, unknown) = self.bytes.split_at(self.valid);
            match str::from_utf8(unknown) {
                Ok(text) => self.valid += text.len(),
                Err(error) if error.error_len().is_none() => self.valid += error.valid_up_to(),
                Err(_) => return Err(NOT_UTF8),
            }
        }
        Ok(())
    }

    fn finish(self, rules: Rules, inflater: &mut Inflater) -> Result<Message<'static>, Violation> {
        let bytes = if self.compressed {
            inflater.inflate(&self.bytes, rules.message)?
        } else {
            self.bytes
        };
        if !self.text {
            return Ok(Message::Binary(Cow::Owned(bytes)));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Message::Text(Cow::Owned(text))),
            Err(_) => Err(NOT_UTF8),
        }
    }
}

impl Decoder {
    /// Creates a decoder for a socket that has just been upgraded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of bytes of memory held for incomplete input.
    pub fn held(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| {
            let message = pending.message.as_ref().map_or(0, |message| message.bytes.capacity());
            size_of::<Pending>() + pending.control.capacity() + message
        })
    }

    /// Returns the next message at the start of `input`. Call it with the rest until no message is left; after an
    /// error never again.
    pub fn next<'a>(
        &mut self,
        input: &'a mut [u8],
        rules: Rules,
        inflater: &mut Inflater,
    ) -> Result<Step<'a>, Violation> {
        let total = input.len();
        let (message, left) = self.advance(input, rules, inflater)?;
        if self.pending.as_ref().is_some_and(|pending| pending.is_empty()) {
            self.pending = None;
        }
        Ok(Step { consumed: total - left, message })
    }

    /// Returns the next message, and how many bytes of `input` follow it.
    fn advance<'a>(
        &mut self,
        mut input: &'a mut [u8],
        rules: Rules,
        inflater: &mut Inflater,
    ) -> Result<(Option<Message<'a>>, usize), Violation> {
        if self.closed {
            return Ok((None, 0));
        }
        loop {
            let unfinished = self.pending.as_mut().and_then(|pending| pending.frame.take());
            let (frame, done) = if let Some(frame) = unfinished {
                frame
            } else {
                let (head, length) = self.head(input)?;
                input = input.split_at_mut(length).1;
                let Some(head) = head else { return Ok((None, input.len())) };
                self.allow(head, rules)?;
                (head, 0)
            };
            // The limits bound a data frame's length, RFC 6455 a control frame's: both fit.
            let missing = usize::try_from(frame.length).expect("bounded by the rules") - done;
            let here = missing.min(input.len());
            let (payload, rest) = input.split_at_mut(here);
            input = rest;
            mask::apply(payload, frame.mask, done);
            let whole = here == missing;

            // A control frame always has FIN and never continues a message. A frame that was started earlier is
            // collected, even if only its head had arrived.
            let alone = frame.fin && frame.opcode != Opcode::Continuation;
            let message = if whole && unfinished.is_none() && alone {
                Some(self.at_once(frame, payload, rules, inflater)?)
            } else {
                self.gather(frame, done + here, payload, rules, inflater)?
            };
            if message.is_some() || !whole {
                return Ok((message, input.len()));
            }
        }
    }

    /// Returns the head of the next frame if it is complete, and its number of input bytes.
    fn head(&mut self, input: &[u8]) -> Result<(Option<Head>, usize), Violation> {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.head_length > 0) else {
            if let Some((head, length)) = Head::read(input)? {
                return Ok((Some(head), length));
            }
            if !input.is_empty() {
                let pending = self.pending.get_or_insert_default();
                pending.head[..input.len()].copy_from_slice(input);
                pending.head_length = input.len();
            }
            return Ok((None, input.len()));
        };
        let started = pending.head_length;
        let more = input.len().min(MAX_HEAD - started);
        pending.head[started..started + more].copy_from_slice(&input[..more]);
        if let Some((head, length)) = Head::read(&pending.head[..started + more])? {
            pending.head_length = 0;
            return Ok((Some(head), length - started));
        }
        pending.head_length = started + more;
        Ok((None, more))
    }

    /// Checks whether this frame is allowed now.
    fn allow(&self, head: Head, rules: Rules) -> Result<(), Violation> {
        if head.opcode.is_control() {
            return Ok(());
        }
        let open = self.pending.as_ref().and_then(|pending| pending.message.as_ref());
        match (head.opcode, open) {
            (Opcode::Continuation, None) => {
                return Err(Violation::Protocol("nothing is there to continue"));
            }
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Violation::Protocol("a message begins inside another"));
            }
            _ => {}
        }
        if head.compressed && !rules.deflate {
            return Err(Violation::Protocol("a reserved bit is set"));
        }
        let room = rules.message.saturating_sub(open.map_or(0, |message| message.bytes.len()));
        if head.length > room as u64 {
            return Err(Violation::TooLarge { limit: rules.message });
        }
        Ok(())
    }

    /// Returns a message whose only frame is complete in the input.
    fn at_once<'a>(
        &mut self,
        frame: Head,
        payload: &'a [u8],
        rules: Rules,
        inflater: &mut Inflater,
    ) -> Result<Message<'a>, Violation> {
        if frame.opcode.is_control() {
            return self.control(frame.opcode, Cow::Borrowed(payload));
        }
        let text = frame.opcode == Opcode::Text;
        if frame.compressed {
            let bytes = inflater.inflate(payload, rules.message)?;
            return Assembly { text, compressed: false, bytes, valid: 0 }.finish(rules, inflater);
        }
        if !text {
            return Ok(Message::Binary(Cow::Borrowed(payload)));
        }
        match str::from_utf8(payload) {
            Ok(text) => Ok(Message::Text(Cow::Borrowed(text))),
            Err(_) => Err(NOT_UTF8),
        }
    }

    /// Collects a piece of a frame, or a frame that is a fragment of a message.
    fn gather<'a>(
        &mut self,
        frame: Head,
        done: usize,
        payload: &[u8],
        rules: Rules,
        inflater: &mut Inflater,
    ) -> Result<Option<Message<'a>>, Violation> {
        let whole = done as u64 == frame.length;
        let pending = self.pending.get_or_insert_default();
        if !whole {
            pending.frame = Some((frame, done));
        }
        if frame.opcode.is_control() {
            pending.control.extend_from_slice(payload);
            if !whole {
                return Ok(None);
            }
            let payload = std::mem::take(&mut pending.control);
            return self.control(frame.opcode, Cow::Owned(payload)).map(Some);
        }
        let message = pending.message.get_or_insert_with(|| Assembly {
            text: frame.opcode == Opcode::Text,
            compressed: frame.compressed,
            bytes: Vec::new(),
            valid: 0,
        });
        message.append(payload)?;
        if !(whole && frame.fin) {
            return Ok(None);
        }
        pending.message.take().map(|message| message.finish(rules, inflater)).transpose()
    }

    fn control<'a>(
        &mut self,
        opcode: Opcode,
        payload: Cow<'a, [u8]>,
    ) -> Result<Message<'a>, Violation> {
        match opcode {
            Opcode::Ping => Ok(Message::Ping(payload)),
            Opcode::Pong => Ok(Message::Pong(payload)),
            _ => {
                self.closed = true;
                close(&payload)
            }
        }
    }
}

/// Parses the payload of a close frame (RFC 6455, 5.5.1).
fn close(payload: &[u8]) -> Result<Message<'static>, Violation> {
    if payload.is_empty() {
        return Ok(Message::Close { code: None, reason: Cow::Borrowed("") });
    }
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return Err(Violation::Protocol("a close frame has half a code"));
    };
    let Ok(code) = CloseCode::new(u16::from_be_bytes(*code)) else {
        return Err(Violation::Protocol("a close frame has a code that none may have"));
    };
    let Ok(reason) = str::from_utf8(reason) else {
        return Err(Violation::Data("the reason of a close is not UTF-8"));
    };
    Ok(Message::Close { code: Some(code), reason: Cow::Owned(reason.to_owned()) })
}
