//! Messages that wait to be written to one client, bounded in bytes. Any thread fills it, the session empties it.
//!
//! Invariants
//! - Frames that a client causes by itself are bounded in number: at most [`CONTROLS`] pings and pongs wait.
//! - Nothing is written after a close frame.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use channels::websocket::{CloseCode, close_frame};
use tokio::sync::Notify;

/// Small frames are written together up to this size.
const TOGETHER: usize = 16 << 10;
/// Maximum number of pings and pongs that wait. A further one replaces the oldest: a server may answer only the most
/// recent ping (RFC 6455, section 5.5.3).
const CONTROLS: usize = 16;

/// The queue of one connection.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Notify,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Pings and pongs, which are written before the messages.
    controls: VecDeque<Bytes>,
    frames: VecDeque<Bytes>,
    /// Bytes in `frames`.
    bytes: usize,
    /// No further message is accepted.
    ended: bool,
    ask: Option<Ask>,
}

/// Requests of others to the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The client does not read: more waits than is allowed.
    Overflow,
    /// The application closes the connection; its close frame is queued.
    Close(CloseCode, String),
}

/// Reasons why a message is not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The connection is closing.
    Ended,
    /// The queue is full: the connection is closed for it.
    Full,
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), limit }
    }

    /// Queues a message of the application for the client. A single one may be larger than the limit.
    pub(super) fn push(&self, frame: Bytes) -> Result<(), Refused> {
        let mut state = self.state.lock().expect("no holder panics");
        if state.ended {
            return Err(Refused::Ended);
        }
        if !state.frames.is_empty() && state.bytes + frame.len() > self.limit {
            state.ended = true;
            state.ask = Some(Ask::Overflow);
            drop(state);
            self.changed.notify_one();
            return Err(Refused::Full);
        }
        state.add(frame);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Queues the answer to a message that was handled only while there was room.
    pub(super) fn push_answer(&self, frame: Bytes) {
        let mut state = self.state.lock().expect("no holder panics");
        if !state.ended {
            state.add(frame);
        }
    }

    /// Queues a ping or a pong. If too many wait, the oldest is dropped.
    pub(super) fn push_control(&self, frame: Bytes) {
        let mut state = self.state.lock().expect("no holder panics");
        if state.ended {
            return;
        }
        if state.controls.len() == CONTROLS {
            state.controls.pop_front();
        }
        state.controls.push_back(frame);
    }

    /// Queues a close frame, the last one. Returns false if the connection is closing already.
    pub(super) fn close(&self, code: CloseCode, reason: &str) -> bool {
        let mut state = self.state.lock().expect("no holder panics");
        if state.ended {
            return false;
        }
        state.add(close_frame(Some(code), reason).into());
        state.ended = true;
        state.ask = Some(Ask::Close(code, reason.to_owned()));
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Queues the session's close frame. With `clear` it replaces what waits.
    pub(super) fn finish(&self, code: Option<CloseCode>, reason: &str, clear: bool) {
        let mut state = self.state.lock().expect("no holder panics");
        state.ended = true;
        if clear {
            state.controls.clear();
            state.frames.clear();
            state.bytes = 0;
        }
        state.add(close_frame(code, reason).into());
    }

    /// Accepts nothing more, and drops what waits: nothing more is written.
    pub(super) fn end(&self) {
        let mut state = self.state.lock().expect("no holder panics");
        *state = State { ended: true, ..State::default() };
    }

    /// Returns what others want, once.
    pub(super) fn ask(&self) -> Option<Ask> {
        self.state.lock().expect("no holder panics").ask.take()
    }

    /// Returns whether an answer fits: a client that does not read gets no further messages handled.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().expect("no holder panics").bytes < self.limit
    }

    /// Returns the next bytes to write; empty if none wait.
    pub(super) fn take(&self) -> Bytes {
        let mut state = self.state.lock().expect("no holder panics");
        let Some(first) = state.next(usize::MAX) else { return Bytes::new() };
        let left = |so_far: usize| TOGETHER.saturating_sub(so_far);
        let Some(second) = state.next(left(first.len())) else { return first };
        let mut all = BytesMut::from(&first[..]);
        all.extend_from_slice(&second);
        while let Some(next) = state.next(left(all.len())) {
            all.extend_from_slice(&next);
        }
        all.freeze()
    }

    /// Waits until something was queued or asked since the last call. Cancel safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl State {
    fn add(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    /// Removes the next frame to write, if it has at most `limit` bytes.
    fn next(&mut self, limit: usize) -> Option<Bytes> {
        if let Some(control) = self.controls.front() {
            return if control.len() <= limit { self.controls.pop_front() } else { None };
        }
        let frame = self.frames.pop_front_if(|frame| frame.len() <= limit)?;
        self.bytes -= frame.len();
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> Bytes {
        Bytes::from(vec![0; length])
    }

    #[test]
    fn a_full_queue_ends_the_connection() {
        let outbox = Outbox::new(100);
        outbox.push(frame(500)).unwrap();
        assert!(!outbox.has_room());
        assert_eq!(outbox.push(frame(1)), Err(Refused::Full));
        assert_eq!(outbox.push(frame(1)), Err(Refused::Ended));
        assert_eq!((outbox.ask(), outbox.ask()), (Some(Ask::Overflow), None));
        outbox.finish(Some(CloseCode::TRY_AGAIN), "", true);
        assert_eq!(outbox.take(), &[0x88, 2, 0x03, 0xf5][..]);
        assert!(outbox.take().is_empty());
    }

    #[test]
    fn small_frames_are_written_together_and_nothing_follows_a_close() {
        let outbox = Outbox::new(1 << 20);
        for length in [10, 20, 20_000, 5] {
            outbox.push(frame(length)).unwrap();
        }
        assert!(outbox.close(CloseCode::NORMAL, "bye"));
        assert!(!outbox.close(CloseCode::NORMAL, "again"));
        assert_eq!(outbox.push(frame(1)), Err(Refused::Ended));
        let lengths = std::iter::from_fn(|| Some(outbox.take()).filter(|bytes| !bytes.is_empty()));
        assert_eq!(lengths.map(|bytes| bytes.len()).collect::<Vec<_>>(), [30, 20_000, 12]);
    }

    #[test]
    fn at_most_sixteen_pings_and_pongs_wait_and_the_most_recent_are_kept() {
        let outbox = Outbox::new(100);
        outbox.push(frame(99)).unwrap();
        for number in 0..1000_u16 {
            outbox.push_control(Bytes::copy_from_slice(&number.to_be_bytes()));
        }
        // They take no room from messages, and do not count as messages that the client does not read.
        assert!(outbox.has_room());
        outbox.push(frame(1)).unwrap();
        let recent: Vec<u8> = (984..1000_u16).flat_map(u16::to_be_bytes).collect();
        assert_eq!(outbox.take(), [recent, vec![0; 100]].concat());
        outbox.finish(None, "", false);
        outbox.push_control(frame(2));
        assert_eq!(outbox.take(), &[0x88, 0][..]);
        assert!(outbox.take().is_empty());
    }
}
