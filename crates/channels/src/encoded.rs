//! A message to sockets, encoded once: every queue it stands in holds a reference.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::websocket;

/// One whole text message as a WebSocket frame of a server (RFC 6455, 5.2: final, text, unmasked).
#[derive(Clone, Debug)]
pub struct Encoded(Arc<Forms>);

#[derive(Debug)]
struct Forms {
    frame: Bytes,
    /// Bytes before the payload.
    header: usize,
    deflated: OnceLock<Bytes>,
    event_stream: OnceLock<Bytes>,
}

/// Final frame, text.
const TEXT: u8 = 0x81;

impl Encoded {
    /// `text` as it goes to clients: JSON.
    pub fn new(text: &str) -> Self {
        let frame = websocket::data(TEXT, text.as_bytes());
        let header = frame.len() - text.len();
        Self(Arc::new(Forms {
            frame,
            header,
            deflated: OnceLock::new(),
            event_stream: OnceLock::new(),
        }))
    }

    /// The whole frame.
    pub fn frame(&self) -> &Bytes {
        &self.0.frame
    }

    /// The text alone.
    pub fn text(&self) -> Bytes {
        self.0.frame.slice(self.0.header..)
    }

    /// The frame with its text compressed: made by `compress` when it is first wanted, and then shared like the frame.
    pub fn deflated(&self, compress: impl FnOnce(&[u8]) -> Bytes) -> &Bytes {
        self.0.deflated.get_or_init(|| compress(&self.0.frame[self.0.header..]))
    }

    /// The same for the form that Server-Sent Events have.
    pub fn event_stream(&self, write: impl FnOnce(&[u8]) -> Bytes) -> &Bytes {
        self.0.event_stream.get_or_init(|| write(&self.0.frame[self.0.header..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_in_the_shortest_form() {
        let headers: &[(usize, &[u8])] = &[
            (0, &[0x81, 0]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (65_535, &[0x81, 126, 0xff, 0xff]),
            (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ];
        for (length, header) in headers {
            let text = "a".repeat(*length);
            let encoded = Encoded::new(&text);
            assert_eq!(&encoded.frame()[..header.len()], *header);
            assert_eq!(encoded.text(), text.as_bytes());
        }
    }
}
