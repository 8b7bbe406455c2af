//! Decoded messages that own their bytes.

use bytes::Bytes;
use channels::websocket::{CloseCode, Message};

use crate::websocket::events::Event;

/// A message of the client that owns its bytes.
pub(super) enum Incoming {
    Message(Event, usize),
    Ping(Vec<u8>),
    Pong,
    Close(Option<CloseCode>, String),
}

impl Incoming {
    pub(super) fn of(message: Message<'_>) -> Self {
        let (binary, payload) = match message {
            Message::Text(text) => (false, Bytes::from(text.into_owned().into_bytes())),
            Message::Binary(bytes) => (true, Bytes::from(bytes.into_owned())),
            Message::Ping(payload) => return Self::Ping(payload.into_owned()),
            Message::Pong(_) => return Self::Pong,
            Message::Close { code, reason } => return Self::Close(code, reason.into_owned()),
        };
        let size = payload.len();
        Self::Message(Event::Message { binary, payload }, size)
    }
}
