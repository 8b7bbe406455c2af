//! The opening handshake (RFC 6455, 4.2), from parsed header fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::deflate;

/// A valid request for a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgrade {
    accept: [u8; 28],
    deflate: bool,
}

/// Reasons why a request for a WebSocket is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUpgrade {
    /// The request is malformed: status 400.
    #[error("{0}")]
    Malformed(&'static str),
    /// The version is unsupported: status 426 with `Sec-WebSocket-Version: 13`.
    #[error("only version 13 of the WebSocket protocol is supported")]
    Version,
}

/// The value hashed after the key (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

impl Upgrade {
    /// Parses the header fields of a `GET` request; `None` if it is not for a WebSocket. `deflate` allows to
    /// negotiate compression.
    pub fn read<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        deflate: bool,
    ) -> Result<Option<Self>, BadUpgrade> {
        let (mut upgrade, mut connection, mut deflates) = (false, false, false);
        let (mut key, mut keys, mut version) = (None, 0, None);
        for (name, value) in fields {
            let Some(field) = Field::of(name) else { continue };
            let Ok(value) = str::from_utf8(value) else { continue };
            match field {
                Field::Upgrade => upgrade |= has_token(value, "websocket"),
                Field::Connection => connection |= has_token(value, "upgrade"),
                Field::Extensions => deflates |= deflate::is_offered(value),
                Field::Version => version = Some(value),
                Field::Key => (key, keys) = (Some(value), keys + 1),
            }
        }
        if !upgrade {
            return Ok(None);
        }
        if !connection {
            return Err(BadUpgrade::Malformed("Connection does not say Upgrade"));
        }
        if version != Some("13") {
            return Err(BadUpgrade::Version);
        }
        let nonce = key
            .filter(|key| keys == 1 && STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16));
        let Some(nonce) = nonce else {
            return Err(BadUpgrade::Malformed("Sec-WebSocket-Key is not 16 bytes in base64"));
        };
        let mut hash = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
        hash.update(nonce.as_bytes());
        hash.update(GUID);
        let mut accept = [0; 28];
        let length = STANDARD.encode_slice(hash.finish(), &mut accept);
        debug_assert_eq!(length, Ok(28), "20 bytes are 28 in base64");
        Ok(Some(Self { accept, deflate: deflate && deflates }))
    }

    /// Returns the value of `Sec-WebSocket-Accept`.
    pub fn accept(&self) -> &str {
        str::from_utf8(&self.accept).expect("base64 is ASCII")
    }

    /// Returns the value of `Sec-WebSocket-Extensions`, if one was negotiated.
    pub fn extensions(&self) -> Option<&'static str> {
        self.deflate.then_some(deflate::ACCEPTED)
    }

    /// Returns whether permessage-deflate was negotiated.
    pub fn deflate(&self) -> bool {
        self.deflate
    }

    /// Returns the whole response with status 101.
    pub fn answer(&self) -> Box<[u8]> {
        let mut answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n",
            self.accept()
        );
        if let Some(extensions) = self.extensions() {
            answer.push_str("Sec-WebSocket-Extensions: ");
            answer.push_str(extensions);
            answer.push_str("\r\n");
        }
        answer.push_str("\r\n");
        answer.into_bytes().into_boxed_slice()
    }
}

enum Field {
    Upgrade,
    Connection,
    Extensions,
    Version,
    Key,
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        let names = [
            ("upgrade", Self::Upgrade),
            ("connection", Self::Connection),
            ("sec-websocket-extensions", Self::Extensions),
            ("sec-websocket-version", Self::Version),
            ("sec-websocket-key", Self::Key),
        ];
        names
            .into_iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known))
            .map(|(_, field)| field)
    }
}

/// Returns whether `token` is in a list such as `keep-alive, Upgrade`.
fn has_token(list: &str, token: &str) -> bool {
    list.split(',').any(|item| item.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: [(&str, &[u8]); 4] = [
        ("Upgrade", b"websocket"),
        ("Connection", b"keep-alive, Upgrade"),
        ("Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", b"13"),
    ];

    #[test]
    fn the_handshake_example_of_rfc_6455_gets_the_documented_response() {
        let upgrade = Upgrade::read(SAMPLE, true).unwrap().unwrap();
        assert_eq!(upgrade.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(
            str::from_utf8(&upgrade.answer()).unwrap(),
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        );
    }

    #[test]
    fn compression_is_negotiated_only_if_both_sides_want_it() {
        let offer: (&str, &[u8]) =
            ("sec-websocket-extensions", b"permessage-deflate; client_max_window_bits");
        let read = |fields: Vec<(&'static str, &'static [u8])>, deflate| {
            Upgrade::read(fields, deflate).unwrap().unwrap().extensions()
        };
        let mut fields = SAMPLE.to_vec();
        assert_eq!(read(fields.clone(), true), None);
        fields.push(offer);
        assert_eq!(read(fields.clone(), false), None);
        assert_eq!(read(fields, true), Some(deflate::ACCEPTED));
    }

    #[test]
    fn requests_without_upgrade_are_ignored_and_invalid_upgrades_rejected() {
        assert_eq!(Upgrade::read([], true), Ok(None));
        assert_eq!(Upgrade::read([("upgrade", &b"h2c"[..])], true), Ok(None));

        for missing in 1..4 {
            let mut fields = SAMPLE.to_vec();
            let (name, _) = fields.remove(missing);
            assert!(Upgrade::read(fields, true).is_err(), "without {name}");
        }
        for (at, value) in [(3, &b"8"[..]), (2, b"c2hvcnQ="), (2, b"dGhlIHNhbXBsZSBub25jZQ")] {
            let mut fields = SAMPLE.to_vec();
            fields[at].1 = value;
            assert!(Upgrade::read(fields, true).is_err(), "{value:?}");
        }
        let mut twice = SAMPLE.to_vec();
        twice.push(SAMPLE[2]);
        assert!(Upgrade::read(twice, true).is_err());
    }
}
