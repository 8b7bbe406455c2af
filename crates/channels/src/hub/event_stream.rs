//! Messages as Server-Sent Events (WHATWG HTML, "Server-sent events").

use bytes::Bytes;

/// A message's text, which is one line of JSON, as an event.
pub(super) fn write(text: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(text.len() + 16);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(text);
    event.extend_from_slice(b"\n\n");
    event.into()
}
