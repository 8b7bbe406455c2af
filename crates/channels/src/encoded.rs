//! Messages to sockets, encoded once: every queue holds a reference.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::websocket;

/// A text message as one WebSocket frame of a server (RFC 6455, 5.2: final, text, unmasked).
#[derive(Clone, Debug)]
pub struct Encoded(Arc<Forms>);

#[derive(Debug)]
struct Forms {
    frame: Bytes,
    /// Length of the frame header in bytes.
    header: usize,
    deflated: OnceLock<Bytes>,
    event_stream: OnceLock<Bytes>,
}

/// First byte of a final text frame.
const TEXT: u8 = 0x81;

impl Encoded {
    /// Encodes `text`, the JSON that clients receive.
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

    /// Returns the whole frame.
    pub fn frame(&self) -> &Bytes {
        &self.0.frame
    }

    /// Returns the text without the frame header.
    pub fn text(&self) -> Bytes {
        self.0.frame.slice(self.0.header..)
    }

    /// Returns the frame with its text compressed. `compress` makes it on first use; afterwards it is shared.
    pub fn deflated(&self, compress: impl FnOnce(&[u8]) -> Bytes) -> &Bytes {
        self.0.deflated.get_or_init(|| compress(&self.0.frame[self.0.header..]))
    }

    /// Returns the message as a server-sent event. `write` makes it on first use; afterwards it is shared.
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
