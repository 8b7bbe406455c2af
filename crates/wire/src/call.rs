//! Frames between a caller and the egress broker's frame listener (docs/internals/egress.md, "The frame listener").

use crate::encode::{begin, finish, header};
use crate::reader::{NOT_ZERO, Reader};
use crate::{Header, Kind, MAX_BODY, Malformed, TooLarge};

/// First bytes of a caller's connection: no HTTP request begins with NUL. The last byte is the version.
pub const OPENING: [u8; 8] = *b"\0hearth\x01";

/// A frame from a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromCaller<'a> {
    /// The first frame.
    Open {
        /// The content of `egress.token`.
        token: &'a [u8],
    },
    /// Starts a call.
    Call {
        /// Options of the call, a dictionary of RFC 8941; may be empty.
        control: &'a [u8],
        /// A head of HTTP/1.1.
        head: &'a [u8],
        /// How its body is sent.
        body: CallBody,
    },
    /// A piece of the body.
    Body {
        /// The piece.
        data: &'a [u8],
        /// No more follows.
        last: bool,
    },
    /// Cancels the call.
    Abort,
}

/// How the body of a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBody {
    /// There is no body.
    None,
    /// In one BODY frame, at once.
    Whole,
    /// In BODY frames, after WANT.
    Asked,
}

impl CallBody {
    /// Returns the flags of its CALL.
    pub const fn flags(self) -> u8 {
        match self {
            Self::None => Kind::LAST,
            Self::Whole => Kind::WHOLE,
            Self::Asked => 0,
        }
    }
}

impl<'a> FromCaller<'a> {
    /// Decodes one payload; `header` came from [`crate::peek`] with [`crate::Sender::Caller`].
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Self, Malformed> {
        match header.kind {
            Kind::Open => Ok(Self::Open { token: payload }),
            Kind::Call => {
                let mut read = Reader { rest: payload };
                let control = usize::from(read.u16()?);
                if read.u16()? != 0 {
                    return Err(NOT_ZERO);
                }
                let control = read.bytes(control)?;
                let body = match header.flags {
                    Kind::LAST => CallBody::None,
                    Kind::WHOLE => CallBody::Whole,
                    _ => CallBody::Asked,
                };
                Ok(Self::Call { control, head: read.rest, body })
            }
            Kind::Body => Ok(Self::Body { data: payload, last: header.flags & Kind::LAST != 0 }),
            Kind::Abort => Reader { rest: payload }.end().map(|()| Self::Abort),
            other => Err(Malformed::Type(other as u8)),
        }
    }
}

/// A frame from the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromBroker<'a> {
    /// Requests the body.
    Want,
    /// The head of an interim response.
    Interim(&'a [u8]),
    /// The head of the response.
    Answer(AnswerHead<'a>),
    /// A piece of the response body.
    Body(&'a [u8]),
    /// Field lines after the body.
    Trailers(&'a [u8]),
    /// The response is complete.
    End,
    /// The call was declined; nothing was sent.
    Declined(NoAnswer<'a>),
    /// The call was lost.
    Failed(NoAnswer<'a>),
}

/// A response's head and the timing of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerHead<'a> {
    /// Microseconds from the call's begin until the name was resolved; 0 if it was already.
    pub resolved: u32,
    /// Microseconds until the connection was established.
    pub connected: u32,
    /// Microseconds until TLS was established.
    pub secured: u32,
    /// Microseconds until the head arrived.
    pub first_byte: u32,
    /// HTTP version times ten.
    pub protocol: u8,
    /// The connection had carried a call before.
    pub reused: bool,
    /// Port of the origin.
    pub port: u16,
    /// Address of the origin as text, or empty.
    pub address: &'a [u8],
    /// Status line, field lines, empty line.
    pub head: &'a [u8],
}

/// The reason why there is no response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoAnswer<'a> {
    /// Number of curl's error; 0 if none fits.
    pub errno: u8,
    /// Port that was tried, or 0.
    pub port: u16,
    /// Reason word of docs/internals/egress.md.
    pub reason: &'a [u8],
    /// Address that was tried as text, or empty.
    pub address: &'a [u8],
    /// Message for people.
    pub message: &'a [u8],
}

impl<'a> FromBroker<'a> {
    /// Decodes one payload; `header` came from [`crate::peek`] with [`crate::Sender::Broker`].
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Self, Malformed> {
        let read = Reader { rest: payload };
        match header.kind {
            Kind::Want => read.end().map(|()| Self::Want),
            Kind::Interim => Ok(Self::Interim(payload)),
            Kind::Answer => answer(read).map(Self::Answer),
            Kind::ResponseBody if payload.is_empty() => Err(Malformed::Payload("empty body frame")),
            Kind::ResponseBody => Ok(Self::Body(payload)),
            Kind::Trailers => Ok(Self::Trailers(payload)),
            Kind::Done => read.end().map(|()| Self::End),
            Kind::Declined => no_answer(read).map(Self::Declined),
            Kind::Lost => no_answer(read).map(Self::Failed),
            other => Err(Malformed::Type(other as u8)),
        }
    }
}

fn answer(mut read: Reader<'_>) -> Result<AnswerHead<'_>, Malformed> {
    let (resolved, connected, secured, first_byte) =
        (read.u32()?, read.u32()?, read.u32()?, read.u32()?);
    let (protocol, reused, port) = (read.u8()?, read.u8()?, read.u16()?);
    let address = usize::from(read.u16()?);
    if read.u16()? != 0 {
        return Err(NOT_ZERO);
    }
    if reused > 1 || ![10, 11, 20].contains(&protocol) {
        return Err(Malformed::Payload("unknown protocol or flag of an answer"));
    }
    let address = read.bytes(address)?;
    let head = read.rest;
    let reused = reused == 1;
    Ok(AnswerHead {
        resolved,
        connected,
        secured,
        first_byte,
        protocol,
        reused,
        port,
        address,
        head,
    })
}

fn no_answer(mut read: Reader<'_>) -> Result<NoAnswer<'_>, Malformed> {
    let errno = read.u8()?;
    if read.u8()? != 0 {
        return Err(NOT_ZERO);
    }
    let (reason, port, address) = (usize::from(read.u16()?), read.u16()?, usize::from(read.u16()?));
    let (reason, address) = (read.bytes(reason)?, read.bytes(address)?);
    Ok(NoAnswer { errno, port, reason, address, message: read.rest })
}

/// Writes the token.
pub fn open(buffer: &mut Vec<u8>, token: &[u8]) {
    let start = begin(buffer);
    buffer.extend_from_slice(token);
    finish(buffer, start, Kind::Open, 0);
}

/// Writes a call's head.
pub fn call(
    buffer: &mut Vec<u8>,
    control: &[u8],
    head: &[u8],
    body: CallBody,
) -> Result<(), TooLarge> {
    let bytes = 4 + control.len() + head.len();
    let too_large = TooLarge { bytes, pairs: 0 };
    let length = u16::try_from(control.len()).map_err(|_more| too_large)?;
    if bytes > Kind::Call.max_payload() {
        return Err(too_large);
    }
    let start = begin(buffer);
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.extend_from_slice(&[0, 0]);
    buffer.extend_from_slice(control);
    buffer.extend_from_slice(head);
    finish(buffer, start, Kind::Call, body.flags());
    Ok(())
}

/// Writes the request for a body.
pub fn want(buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&header(0, Kind::Want, 0));
}

/// Writes a head of an interim response. One that does not fit is dropped, because it is optional.
pub fn interim(buffer: &mut Vec<u8>, head: &[u8]) {
    text(buffer, Kind::Interim, head);
}

/// Writes field lines. Lines that do not fit are dropped.
pub fn trailers(buffer: &mut Vec<u8>, fields: &[u8]) {
    text(buffer, Kind::Trailers, fields);
}

fn text(buffer: &mut Vec<u8>, kind: Kind, text: &[u8]) {
    if text.len() <= kind.max_payload() {
        buffer.extend_from_slice(&header(text.len(), kind, 0));
        buffer.extend_from_slice(text);
    }
}

/// Writes the head of the response.
pub fn answer_head(buffer: &mut Vec<u8>, answer: &AnswerHead<'_>) -> Result<(), TooLarge> {
    let bytes = 24 + answer.address.len() + answer.head.len();
    let too_large = TooLarge { bytes, pairs: 0 };
    let address = u16::try_from(answer.address.len()).map_err(|_more| too_large)?;
    if bytes > Kind::Answer.max_payload() {
        return Err(too_large);
    }
    let start = begin(buffer);
    for micros in [answer.resolved, answer.connected, answer.secured, answer.first_byte] {
        buffer.extend_from_slice(&micros.to_le_bytes());
    }
    buffer.extend_from_slice(&[answer.protocol, u8::from(answer.reused)]);
    for number in [answer.port, address, 0] {
        buffer.extend_from_slice(&number.to_le_bytes());
    }
    buffer.extend_from_slice(answer.address);
    buffer.extend_from_slice(answer.head);
    finish(buffer, start, Kind::Answer, 0);
    Ok(())
}

/// Writes the end of the response.
pub fn done(buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&header(0, Kind::Done, 0));
}

/// Writes DECLINED, or FAILED if `lost`. Texts are truncated to fit.
pub fn no_answer_at_all(buffer: &mut Vec<u8>, lost: bool, why: &NoAnswer<'_>) {
    let cut = |text: &'_ [u8]| u16::try_from(text.len().min(MAX_BODY / 4)).unwrap_or(0);
    let (reason, address) = (cut(why.reason), cut(why.address));
    let start = begin(buffer);
    buffer.extend_from_slice(&[why.errno, 0]);
    for number in [reason, why.port, address] {
        buffer.extend_from_slice(&number.to_le_bytes());
    }
    for (text, length) in
        [(why.reason, reason), (why.address, address), (why.message, cut(why.message))]
    {
        buffer.extend_from_slice(text.get(..usize::from(length)).unwrap_or_default());
    }
    finish(buffer, start, if lost { Kind::Lost } else { Kind::Declined }, 0);
}
