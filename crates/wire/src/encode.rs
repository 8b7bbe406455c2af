//! Encodes frames, appended to a buffer that the caller owns and reuses.

use crate::{HEADER_LEN, Kind, MAX_BODY};

/// The error for content that does not fit a frame; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes in {pairs} pairs do not fit a frame")]
pub struct TooLarge {
    /// Length of the payload in bytes.
    pub bytes: usize,
    /// Number of pairs.
    pub pairs: usize,
}

/// Returns the header of a request BODY frame, for a vectored write with data of `len` bytes, at most [`MAX_BODY`].
pub fn body_header(len: usize, last: bool) -> [u8; HEADER_LEN] {
    debug_assert!(len <= MAX_BODY, "the caller cuts a body into pieces of at most MAX_BODY");
    header(len, Kind::Body, if last { Kind::LAST } else { 0 })
}

/// Writes a piece of a request's body, split into as many frames as it needs.
pub fn body(buffer: &mut Vec<u8>, data: &[u8], last: bool) {
    if data.is_empty() {
        buffer.extend_from_slice(&body_header(0, last));
    }
    let pieces = data.len().div_ceil(MAX_BODY);
    for (at, piece) in data.chunks(MAX_BODY).enumerate() {
        buffer.extend_from_slice(&body_header(piece.len(), last && at + 1 == pieces));
        buffer.extend_from_slice(piece);
    }
}

/// Writes ABORT: the client is gone.
pub fn abort(buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&header(0, Kind::Abort, 0));
}

/// Writes SPAWN. The four descriptors are sent with it.
pub fn spawn(buffer: &mut Vec<u8>, slot: u32) {
    let start = begin(buffer);
    buffer.extend_from_slice(&slot.to_le_bytes());
    finish(buffer, start, Kind::Spawn, 0);
}

/// Writes KILL: signals a worker.
pub fn kill(buffer: &mut Vec<u8>, pid: u32, signal: u32) {
    two(buffer, Kind::Kill, pid, signal);
}

/// Writes TRACE: requests a worker's PHP stack.
pub fn trace(buffer: &mut Vec<u8>, pid: u32) {
    let start = begin(buffer);
    buffer.extend_from_slice(&pid.to_le_bytes());
    finish(buffer, start, Kind::Trace, 0);
}

/// Writes HELLO; `version` is [`crate::VERSION`] except in tests.
pub fn hello(buffer: &mut Vec<u8>, version: u16, pid: u32, php_version: &str) {
    let start = begin(buffer);
    buffer.extend_from_slice(&version.to_le_bytes());
    buffer.extend_from_slice(&[0, 0]);
    buffer.extend_from_slice(&pid.to_le_bytes());
    text(buffer, php_version.as_bytes());
    finish(buffer, start, Kind::Hello, 0);
}

/// Writes READY.
pub fn ready(buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&header(0, Kind::Ready, 0));
}

/// Writes a piece of the response body, split into as many frames as it needs; none if `data` is empty.
pub fn response_body(buffer: &mut Vec<u8>, data: &[u8]) {
    for piece in data.chunks(MAX_BODY) {
        buffer.extend_from_slice(&header(piece.len(), Kind::ResponseBody, 0));
        buffer.extend_from_slice(piece);
    }
}

/// Writes END; `flags` is 0, [`Kind::END_READY`] or [`Kind::END_BUSY`], and [`Kind::END_FAILED`] or not; `took` in
/// nanoseconds.
pub fn end(buffer: &mut Vec<u8>, flags: u8, took: u64) {
    let start = begin(buffer);
    buffer.extend_from_slice(&took.to_le_bytes());
    finish(buffer, start, Kind::End, flags);
}

/// Writes a log line; a message that does not fit is truncated.
pub fn log(buffer: &mut Vec<u8>, level: u8, source: u8, message: &[u8], context: &[u8]) {
    let start = begin(buffer);
    buffer.extend_from_slice(&[level, source, 0, 0]);
    let room = crate::MAX_PAYLOAD - 12 - context.len().min(crate::MAX_PAYLOAD - 12);
    text(buffer, message.get(..room).unwrap_or(message));
    text(buffer, context);
    finish(buffer, start, Kind::Log, 0);
}

/// Writes an event for clients of realtime channels; an error if it does not fit a frame.
pub fn publish<'a>(
    buffer: &mut Vec<u8>,
    event: &[u8],
    except: &[u8],
    data: &[u8],
    channels: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(), TooLarge> {
    let start = begin_publish(buffer, channels.len(), 0);
    for part in [event, except, data] {
        text(buffer, part);
    }
    finish_publish(buffer, start, channels)
}

/// Writes the tags of stored answers to remove; an error if they do not fit a frame.
pub fn purge<'a>(
    buffer: &mut Vec<u8>,
    tags: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(), TooLarge> {
    let start = begin_publish(buffer, tags.len(), 1);
    finish_publish(buffer, start, tags)
}

/// Starts a PUBLISH frame: `what` is 0 for an event, 1 for a purge.
fn begin_publish(buffer: &mut Vec<u8>, names: usize, what: u16) -> usize {
    let start = begin(buffer);
    buffer.extend_from_slice(&u16::try_from(names).unwrap_or(u16::MAX).to_le_bytes());
    buffer.extend_from_slice(&what.to_le_bytes());
    start
}

/// Ends a PUBLISH frame with its list of names; removes it if it is too large.
fn finish_publish<'a>(
    buffer: &mut Vec<u8>,
    start: usize,
    names: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(), TooLarge> {
    let count = names.len();
    names.for_each(|name| text(buffer, name));
    let bytes = buffer.len() - start - HEADER_LEN;
    if bytes > crate::MAX_PAYLOAD || count > crate::MAX_PAIRS {
        buffer.truncate(start);
        return Err(TooLarge { bytes, pairs: count });
    }
    finish(buffer, start, Kind::Publish, 0);
    Ok(())
}

/// Writes the files that a boot has included; one more that does not fit the frame ends the list.
pub fn files<'a>(buffer: &mut Vec<u8>, files: impl IntoIterator<Item = &'a [u8]>) {
    let start = begin(buffer);
    for file in files {
        if buffer.len() - start - HEADER_LEN + 4 + file.len() > crate::MAX_PAYLOAD {
            break;
        }
        text(buffer, file);
    }
    finish(buffer, start, Kind::Files, 0);
}

/// Writes SPAWNED.
pub fn spawned(buffer: &mut Vec<u8>, slot: u32, pid: u32) {
    two(buffer, Kind::Spawned, slot, pid);
}

/// Writes EXITED; `processor_time` in microseconds.
pub fn exited(buffer: &mut Vec<u8>, pid: u32, status: u32, processor_time: u64) {
    let start = begin(buffer);
    buffer.extend_from_slice(&pid.to_le_bytes());
    buffer.extend_from_slice(&status.to_le_bytes());
    buffer.extend_from_slice(&processor_time.to_le_bytes());
    finish(buffer, start, Kind::Exited, 0);
}

/// Writes FAILED.
pub fn failed(buffer: &mut Vec<u8>, slot: u32, errno: u32) {
    two(buffer, Kind::Failed, slot, errno);
}

/// Writes a worker's PHP stack, or why it is missing; both are far below a frame's limit.
pub fn stack(buffer: &mut Vec<u8>, pid: u32, stack: &[u8], why: &[u8]) {
    let start = begin(buffer);
    buffer.extend_from_slice(&pid.to_le_bytes());
    text(buffer, stack);
    text(buffer, why);
    finish(buffer, start, Kind::Stack, 0);
}

fn two(buffer: &mut Vec<u8>, kind: Kind, first: u32, second: u32) {
    let start = begin(buffer);
    buffer.extend_from_slice(&first.to_le_bytes());
    buffer.extend_from_slice(&second.to_le_bytes());
    finish(buffer, start, kind, 0);
}

fn text(buffer: &mut Vec<u8>, text: &[u8]) {
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    buffer.extend_from_slice(&len.to_le_bytes());
    buffer.extend_from_slice(text);
}

pub(crate) fn header(len: usize, kind: Kind, flags: u8) -> [u8; HEADER_LEN] {
    let [l0, l1, l2, l3] = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    [l0, l1, l2, l3, kind as u8, flags, 0, 0]
}

/// Reserves room for a header; returns its offset.
pub(crate) fn begin(buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; HEADER_LEN]);
    start
}

/// Fills in the header that [`begin`] reserved.
pub(crate) fn finish(buffer: &mut [u8], start: usize, kind: Kind, flags: u8) {
    let payload = buffer.len() - start - HEADER_LEN;
    if let Some(place) = buffer.get_mut(start..start + HEADER_LEN) {
        place.copy_from_slice(&header(payload, kind, flags));
    }
}
