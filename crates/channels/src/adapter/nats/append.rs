//! Appends packets to the log, each one once.
//!
//! NATS rejects a packet whose id it knows, but forgets the ids after a while (`duplicate_window`, at most the age of
//! entries). So a packet that may have been stored is repeated without further questions for half of that time only.
//! Later this node first reads the log up to its end: an entry names its node and number.
//!
//! Invariants
//! - A packet is not handed to a client that is not connected, because the client would send it any time later.
//! - A packet that may have been stored in entries that this node could not read any more is not repeated.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::connection::State as Connection;
use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tracing::{debug, error};

use super::log::{ANSWER, PAUSES, SILENCE};
use super::stream::{Stream, number_at};
use crate::adapter::log::{LogEvent, wait_for_broker};
use crate::json::Raw;

/// The part of the log that this node has read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) epoch: u64,
    /// Sequence of the last entry.
    pub(super) sequence: u64,
    /// Number of the last packet of this node in this epoch.
    pub(super) own: u64,
    /// How many times entries were removed before this node read them.
    pub(super) gaps: u64,
    /// How long NATS remembers the id of a packet.
    pub(super) window: Duration,
}

/// Appends the packets of one node.
#[derive(Debug)]
pub(super) struct Appender {
    pub(super) client: Client,
    pub(super) stream: Stream,
    /// The node in the ids of packets.
    pub(super) sender: String,
    pub(super) progress: watch::Receiver<Progress>,
}

/// The first of the attempts that may have stored a packet.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    at: Instant,
    gaps: u64,
}

/// The result of a search in the log for a packet that may have been stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    Stored,
    NotStored,
    /// NATS still knows its id.
    Recent,
    /// Entries have been removed that this node has not read.
    Removed,
    /// The log cannot be read now.
    Unknown,
}

impl Appender {
    /// Appends packets until the sender is closed.
    pub(super) async fn run(
        mut self,
        mut packets: mpsc::Receiver<(u64, Bytes)>,
        events: mpsc::Sender<LogEvent>,
    ) {
        while let Some((number, packet)) = packets.recv().await {
            if !self.append(number, &packet, &events).await
                || events.send(LogEvent::Stored(number)).await.is_err()
            {
                return;
            }
        }
    }

    /// Repeats a packet until it is stored, or never will be. Returns `false` if nothing receives the events any more.
    async fn append(
        &mut self,
        number: u64,
        packet: &Bytes,
        events: &mpsc::Sender<LogEvent>,
    ) -> bool {
        let mut pause = PAUSES.0;
        let mut unanswered: Option<Attempt> = None;
        loop {
            if self.client.connection_state() != Connection::Connected {
                if !wait_for_broker(events, &mut { PAUSES.0 }, PAUSES.0).await {
                    return false;
                }
                continue;
            }
            let trace = match unanswered {
                Some(first) => self.trace(number, first).await,
                None => Trace::NotStored,
            };
            match trace {
                Trace::Stored => return true,
                Trace::Removed => {
                    error!(
                        bytes = packet.len(),
                        "events may be lost: NATS was away for longer than it keeps them, so they are not sent again"
                    );
                    return true;
                }
                Trace::NotStored => unanswered = None,
                Trace::Recent | Trace::Unknown => {}
            }
            if trace != Trace::Unknown {
                let attempt = Attempt { at: Instant::now(), gaps: self.progress.borrow().gaps };
                match self.attempt(number, packet).await {
                    Outcome::Stored => return true,
                    Outcome::TooLarge => {
                        // `fits` keeps them out; the limit of the server has been lowered, or the stream has one.
                        error!(
                            bytes = packet.len(),
                            "events are lost: NATS takes no packet of this size"
                        );
                        return true;
                    }
                    Outcome::Refused => {}
                    Outcome::Unanswered => unanswered = unanswered.or(Some(attempt)),
                }
            }
            if !wait_for_broker(events, &mut pause, PAUSES.1).await {
                return false;
            }
        }
    }

    async fn attempt(&self, number: u64, packet: &Bytes) -> Outcome {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{}-{number}", self.sender).as_str());
        let request = Request::new().headers(headers).payload(packet.clone()).timeout(Some(ANSWER));
        let answer = self.client.send_request(self.stream.subject.clone(), request).await;
        let outcome = match &answer {
            Ok(answer) => Outcome::of(&answer.payload),
            Err(error) => match error.kind() {
                RequestErrorKind::MaxPayloadExceeded => Outcome::TooLarge,
                RequestErrorKind::NoResponders => Outcome::Refused,
                _ => Outcome::Unanswered,
            },
        };
        if outcome != Outcome::Stored {
            debug!(number, ?answer, "an entry of the log was not stored");
        }
        outcome
    }

    /// Returns whether a packet is in the log that may have been stored since an attempt.
    async fn trace(&mut self, number: u64, first: Attempt) -> Trace {
        let seen = *self.progress.borrow();
        if seen.own >= number {
            return Trace::Stored;
        }
        if first.at.elapsed() < seen.window / 2 {
            return Trace::Recent;
        }
        let Ok(end) = self.stream.info().await else { return Trace::Unknown };
        let is_read = |seen: &Progress| {
            seen.own >= number || (seen.epoch == end.epoch && seen.sequence >= end.last)
        };
        let read = timeout(2 * SILENCE, self.progress.wait_for(is_read)).await;
        let Ok(Ok(seen)) = read.map(|seen| seen.map(|seen| *seen)) else { return Trace::Unknown };
        if seen.own >= number {
            Trace::Stored
        } else if seen.gaps != first.gaps {
            Trace::Removed
        } else {
            Trace::NotStored
        }
    }
}

/// Result of an attempt to append a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Stored,
    /// The stream never takes a packet of this size.
    TooLarge,
    /// The packet is not stored.
    Refused,
    /// The packet is not known to be stored.
    Unanswered,
}

/// `JetStream`'s error code for a message that is larger than the stream allows.
const MESSAGE_TOO_LARGE: u64 = 10054;

impl Outcome {
    /// Reads an acknowledgement. It names the number of the message, of a repeated one too; a negative one has an error,
    /// and 0 as the number.
    fn of(acknowledgement: &[u8]) -> Self {
        let Ok(answer) = Raw::from_bytes(acknowledgement) else { return Self::Unanswered };
        if answer.get("error").is_some() {
            let code = number_at(answer, &["error", "err_code"]);
            return if code == Some(MESSAGE_TOO_LARGE) { Self::TooLarge } else { Self::Refused };
        }
        match number_at(answer, &["seq"]) {
            Some(1..) => Self::Stored,
            _ => Self::Unanswered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn only_an_acknowledgement_with_a_number_and_without_an_error_means_stored() {
        for (text, outcome) in [
            (r#"{"stream":"A","seq":1}"#, Outcome::Stored),
            (r#"{"stream":"A","seq":7,"duplicate":true}"#, Outcome::Stored),
            (r#"{"stream":"A","seq":0}"#, Outcome::Unanswered),
            (
                r#"{"error":{"code":503,"err_code":10023,"description":"insufficient resources"},"stream":"A","seq":0}"#,
                Outcome::Refused,
            ),
            (
                r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"A","seq":0}"#,
                Outcome::TooLarge,
            ),
            (r#"{"error":{"code":500},"seq":3}"#, Outcome::Refused),
            ("", Outcome::Unanswered),
        ] {
            assert_eq!(Outcome::of(text.as_bytes()), outcome, "{text}");
        }
    }
}
