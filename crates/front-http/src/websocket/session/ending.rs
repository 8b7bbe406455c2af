//! How a connection ends: who closes it, with which code, and what is still read and written meanwhile. Decides only.
//!
//! Invariants
//! - The first reason counts; of a server that leaves only once its close frame is queued.
//! - A close that the client or the server asks for waits until the messages before it are answered.
//! - The time for the client's close frame begins when ours has been written, however long that takes.

use std::time::Duration;

use channels::websocket::CloseCode;
use tokio::time::Instant;

/// Why a connection ended, for its close event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) code: u16,
    pub(super) text: String,
}

impl Reason {
    /// The connection broke off.
    pub(super) const LOST: u16 = 1006;
    /// The client's close frame has no code.
    const NO_CODE: u16 = 1005;

    fn new(code: u16, text: &str) -> Self {
        Self { code, text: text.to_owned() }
    }
}

/// The end of one connection.
#[derive(Debug, Default)]
pub(super) struct Ending {
    stage: Stage,
    reason: Option<Reason>,
    /// Further bytes are read and dropped: after a violation nothing can be decoded.
    discards: bool,
    until: Option<Instant>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// A close frame is sent once the messages that came are answered.
    Waiting { code: Option<CloseCode>, by_client: bool },
    /// Our close frame is queued, and the client's has not come.
    Sent,
    /// Both close frames were exchanged.
    Both,
    /// Our side of the stream is closed.
    Shut,
    /// The stream has ended.
    Over,
}

impl Ending {
    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The server may begin to leave.
    pub(super) fn may_start(&self) -> bool {
        self.is_open()
    }

    /// Messages of the client are decoded: for its close frame at least.
    pub(super) fn listens(&self) -> bool {
        let left = matches!(self.stage, Stage::Waiting { by_client: false, .. });
        !self.discards && (left || matches!(self.stage, Stage::Open | Stage::Sent))
    }

    /// Messages of the client are handled: our close frame is not queued.
    pub(super) fn handles(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Waiting { .. })
    }

    /// The stream is read.
    pub(super) fn reads(&self) -> bool {
        !matches!(self.stage, Stage::Waiting { .. } | Stage::Both | Stage::Over)
    }

    pub(super) fn discards(&self) -> bool {
        self.discards || self.stage == Stage::Shut
    }

    /// The client has violated the protocol: the messages before are still answered, and nothing after it is decoded.
    pub(super) fn violated(&mut self, code: CloseCode, text: &str) {
        self.discards = true;
        if self.is_open() {
            self.reason.get_or_insert_with(|| Reason::new(code.get(), text));
            self.stage = Stage::Waiting { code: Some(code), by_client: false };
        }
    }

    /// Our close frame is the next to be queued. Returns false if the connection is ending already.
    pub(super) fn starts(&mut self, code: CloseCode, text: &str) -> bool {
        if !matches!(self.stage, Stage::Open | Stage::Waiting { .. }) {
            return false;
        }
        let by_client = matches!(self.stage, Stage::Waiting { by_client: true, .. });
        self.stage = if by_client { Stage::Both } else { Stage::Sent };
        self.reason.get_or_insert_with(|| Reason::new(code.get(), text));
        true
    }

    /// The connection is cut at this time, whatever is still to be written.
    pub(super) fn cut_at(&mut self, until: Instant) {
        self.until.get_or_insert(until);
    }

    /// All that was queued has been written. If that includes our close frame, the client's patience begins.
    pub(super) fn has_written(&mut self, patience: Duration) {
        if matches!(self.stage, Stage::Sent | Stage::Both) && self.until.is_none() {
            self.until = Some(Instant::now() + patience);
        }
    }

    /// The client has sent a close frame.
    pub(super) fn client_closes(&mut self, code: Option<CloseCode>, text: String) {
        match self.stage {
            // The server wanted to leave, but its close frame is not queued: the client closes first.
            Stage::Open | Stage::Waiting { by_client: false, .. } => {
                let number = code.map_or(Reason::NO_CODE, CloseCode::get);
                self.reason = Some(Reason { code: number, text });
                self.stage = Stage::Waiting { code, by_client: true };
            }
            Stage::Sent => self.stage = Stage::Both,
            _ => {}
        }
    }

    /// The server stops.
    pub(super) fn server_leaves(&mut self) {
        if self.is_open() {
            let code = CloseCode::GOING_AWAY;
            self.reason.get_or_insert_with(|| Reason::new(code.get(), "the server goes away"));
            self.stage = Stage::Waiting { code: Some(code), by_client: false };
        }
    }

    /// Returns the close frame that is due now that nothing waits for an answer.
    pub(super) fn due(&mut self) -> Option<(Option<CloseCode>, String)> {
        let Stage::Waiting { code, by_client } = self.stage else { return None };
        self.stage = if by_client { Stage::Both } else { Stage::Sent };
        let text = self.reason.as_ref().filter(|_| !by_client).map(|reason| reason.text.clone());
        Some((code, text.unwrap_or_default()))
    }

    /// Our side of the stream is to be closed once all is written.
    pub(super) fn closes_writing(&self) -> bool {
        self.stage == Stage::Both || (self.stage == Stage::Sent && self.discards)
    }

    pub(super) fn has_closed_writing(&mut self) {
        self.stage = Stage::Shut;
    }

    /// The client's stream has ended. Returns false if nothing more can be done.
    pub(super) fn end_of_stream(&mut self) -> bool {
        if matches!(self.stage, Stage::Open | Stage::Waiting { .. }) {
            self.lost("");
        }
        self.stage = Stage::Over;
        false
    }

    /// The connection broke off.
    pub(super) fn lost(&mut self, text: &str) {
        self.reason.get_or_insert_with(|| Reason::new(Reason::LOST, text));
    }

    /// Nothing more is to be done; `written`: nothing waits to be written.
    pub(super) fn is_over(&self, written: bool) -> bool {
        self.stage == Stage::Over && written
    }

    /// When the client's patience ends.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn reason(&mut self) -> Reason {
        self.reason.take().unwrap_or_else(|| Reason::new(Reason::LOST, ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_closes_gets_its_code_back_after_the_answers() {
        let mut ending = Ending::default();
        assert!(ending.listens() && ending.reads());
        ending.client_closes(CloseCode::new(3000).ok(), "bye".into());
        assert!(!ending.listens() && !ending.closes_writing());
        let (code, text) = ending.due().unwrap();
        assert_eq!((code.unwrap().get(), &*text), (3000, ""));
        assert!(ending.closes_writing() && ending.until().is_none());
        ending.has_written(Duration::from_secs(1));
        assert!(ending.until().is_some());
        ending.has_closed_writing();
        assert!(ending.reads() && ending.discards());
        ending.end_of_stream();
        assert!(ending.is_over(true));
        assert_eq!(ending.reason(), Reason::new(3000, "bye"));
    }

    #[test]
    fn the_first_reason_counts() {
        let mut ending = Ending::default();
        assert!(ending.starts(CloseCode::INTERNAL, "failed"));
        assert!(!ending.starts(CloseCode::POLICY, "late"));
        ending.server_leaves();
        ending.client_closes(None, String::new());
        assert!(ending.closes_writing());
        assert_eq!(ending.reason().code, 1011);
    }

    #[test]
    fn a_client_that_closes_before_a_leaving_server_does_is_the_one_that_closed() {
        let mut ending = Ending::default();
        ending.server_leaves();
        assert!(ending.listens() && ending.handles() && !ending.reads());
        ending.client_closes(CloseCode::new(3000).ok(), "bye".into());
        assert!(!ending.listens() && ending.handles());
        assert_eq!(ending.due().unwrap().0.unwrap().get(), 3000);
        assert_eq!(ending.reason(), Reason::new(3000, "bye"));
    }

    #[test]
    fn a_stream_that_ends_without_a_close_is_lost() {
        let mut ending = Ending::default();
        assert!(!ending.end_of_stream());
        assert_eq!(ending.reason().code, Reason::LOST);
    }
}
