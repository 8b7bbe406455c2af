//! Encodes and parses packets, the greeting and its response.

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::Login;

/// Capability flags: `include/mysql_com.h`.
pub(crate) mod capability {
    pub(crate) const LONG_PASSWORD: u32 = 1;
    pub(crate) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(crate) const COMPRESS: u32 = 1 << 5;
    pub(crate) const IGNORE_SPACE: u32 = 1 << 8;
    pub(crate) const PROTOCOL_41: u32 = 1 << 9;
    pub(crate) const INTERACTIVE: u32 = 1 << 10;
    pub(crate) const SSL: u32 = 1 << 11;
    pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(crate) const MULTI_STATEMENTS: u32 = 1 << 16;
    pub(crate) const PLUGIN_AUTH: u32 = 1 << 19;
    pub(crate) const CONNECT_ATTRS: u32 = 1 << 20;
    pub(crate) const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    pub(crate) const DEPRECATE_EOF: u32 = 1 << 24;
    pub(crate) const OPTIONAL_METADATA: u32 = 1 << 25;
    pub(crate) const ZSTD: u32 = 1 << 26;
    pub(crate) const QUERY_ATTRIBUTES: u32 = 1 << 27;
    pub(crate) const MULTI_FACTOR: u32 = 1 << 28;
    pub(crate) const VERIFY_CERTIFICATE: u32 = 1 << 30;
    pub(crate) const REMEMBER_OPTIONS: u32 = 1 << 31;
}
use capability as can;

/// Capabilities of packet format and login, which are separate for each connection; all others are between client and
/// server.
const OURS: u32 = can::COMPRESS
    | can::OPTIONAL_METADATA
    | can::QUERY_ATTRIBUTES
    | can::SSL
    | can::ZSTD
    | can::CONNECT_ATTRS
    | can::CONNECT_WITH_DB
    | can::LONG_PASSWORD
    | can::PROTOCOL_41
    | can::SECURE_CONNECTION
    | can::PLUGIN_AUTH
    | can::PLUGIN_AUTH_LENENC
    | can::MULTI_FACTOR
    | can::VERIFY_CERTIFICATE
    | can::REMEMBER_OPTIONS;

/// Capabilities offered to clients.
const TO_CLIENTS: u32 = can::LONG_PASSWORD
    | can::CONNECT_WITH_DB
    | can::PROTOCOL_41
    | can::SECURE_CONNECTION
    | can::PLUGIN_AUTH
    | can::CONNECT_ATTRS
    | can::PLUGIN_AUTH_LENENC;

/// Maximum size of a login packet.
const LIMIT: usize = 64 * 1024;

/// Returns a packet with its sequence number.
pub(super) fn packet(number: u8, content: &[u8]) -> Vec<u8> {
    let [a, b, c, ..] = u32::try_from(content.len()).expect("what we say is short").to_le_bytes();
    [&[a, b, c, number][..], content].concat()
}

/// Reads a packet; `None` if it is longer than any login packet.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<Option<(u8, Vec<u8>)>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await?;
    let [a, b, c, number] = header;
    let length = u32::from_le_bytes([a, b, c, 0]) as usize;
    if length > LIMIT {
        return Ok(None);
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await?;
    Ok(Some((number, content)))
}

/// Iterates over complete packets.
#[derive(Debug)]
pub(super) struct Packets<'a>(&'a [u8]);

impl<'a> Packets<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the incomplete rest.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([a, b, c, number], rest) = self.0.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let content = rest.get(..length)?;
        self.0 = &rest[length..];
        Some((*number, content))
    }
}

/// Reads from the front of a slice.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Reads up to a NUL.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    /// Reads a column of a row: a length-encoded string, which is empty for NULL.
    pub(super) fn column(&mut self) -> Option<&'a [u8]> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Some(b"");
        }
        self.counted()
    }

    /// Reads a length-encoded string.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = match self.u8()? {
            0xfc => usize::from(self.u16()?),
            0xfd | 0xfe | 0xff | 0xfb => return None,
            short => usize::from(short),
        };
        self.take(length)
    }
}

/// The server's greeting, as far as clients need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Server version, such as `5.5.5-10.11.6-MariaDB`.
    pub version: Vec<u8>,
    pub capabilities: u32,
    pub charset: u8,
    pub status: u16,
    /// Salt of the password hash.
    pub salt: Vec<u8>,
    /// Authentication plugin.
    pub plugin: Vec<u8>,
}

impl Greeting {
    /// Parses a greeting of protocol 10; `None` if it is invalid.
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let mut reader = Reader(content);
        if reader.u8()? != 10 {
            return None;
        }
        let version = reader.text()?.to_vec();
        reader.u32()?;
        let mut salt = reader.take(8)?.to_vec();
        reader.u8()?;
        let low = reader.u16()?;
        let charset = reader.u8()?;
        let status = reader.u16()?;
        let capabilities = u32::from(low) | u32::from(reader.u16()?) << 16;
        reader.u8()?;
        reader.take(10)?;
        salt.extend(reader.take(12)?);
        reader.u8()?;
        let plugin = reader.text().unwrap_or(b"mysql_native_password").to_vec();
        Some(Self { version, capabilities, charset, status, salt, plugin })
    }

    /// Returns the greeting for a client, with our own nonce.
    pub(super) fn for_clients(&self, nonce: &str) -> Vec<u8> {
        let can = (self.capabilities & !OURS) | TO_CLIENTS;
        let [a, b, c, d] = can.to_le_bytes();
        let salt = nonce.as_bytes();
        let mut content = vec![10];
        content.extend(&self.version);
        content.extend([0; 5]);
        content.extend(&salt[..8]);
        content.extend([0, a, b, self.charset]);
        content.extend(self.status.to_le_bytes());
        content.extend([c, d, 21]);
        content.extend([0; 10]);
        content.extend(&salt[8..20]);
        content.push(0);
        content.extend(b"mysql_native_password\0");
        packet(0, &content)
    }
}

/// A client's login packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub capabilities: u32,
    pub packet_limit: u32,
    pub charset: u8,
    pub database: Option<Vec<u8>>,
}

impl Hello {
    /// Returns a login packet similar to PHP's, for a session that only queries the server.
    pub(crate) fn for_probe(login: &Login) -> Self {
        let database = login.database.as_deref().map(|name| name.as_bytes().to_vec());
        Self { capabilities: can::DEPRECATE_EOF, packet_limit: 1 << 30, charset: 45, database }
    }

    /// Parses `HandshakeResponse41`; `None` if it is invalid.
    pub(super) fn parse(content: &[u8], login: &Login) -> Option<Self> {
        let mut reader = Reader(content);
        let said = reader.u32()?;
        let packet_limit = reader.u32()?;
        let charset = reader.u8()?;
        reader.take(23)?;
        if said & can::PROTOCOL_41 == 0 || said & (can::SSL | can::COMPRESS) != 0 {
            return None;
        }
        reader.text()?;
        if said & can::PLUGIN_AUTH_LENENC != 0 {
            reader.counted()?;
        } else if said & can::SECURE_CONNECTION != 0 {
            let length = reader.u8()?;
            reader.take(usize::from(length))?;
        } else {
            reader.text()?;
        }
        let database = if said & can::CONNECT_WITH_DB == 0 { None } else { reader.text() };
        let own = || login.database.as_deref().map(str::as_bytes);
        let database = database.filter(|name| !name.is_empty()).or_else(own).map(<[u8]>::to_vec);
        Some(Self { capabilities: said & !OURS, packet_limit, charset, database })
    }

    /// Returns the key of the session: clients with the same key may share sessions.
    pub(crate) fn key(&self) -> Vec<u8> {
        let mut key = self.capabilities.to_le_bytes().to_vec();
        key.extend(self.packet_limit.to_le_bytes());
        key.push(self.charset);
        if let Some(database) = &self.database {
            key.push(1);
            key.extend(database);
        }
        key
    }

    /// Returns the packet for the server before TLS, which is repeated with the login.
    pub(super) fn for_server(&self, server: u32, tls: bool) -> Vec<u8> {
        let mut can = (self.capabilities & server)
            | (can::LONG_PASSWORD & server)
            | can::PROTOCOL_41
            | can::SECURE_CONNECTION
            | (can::PLUGIN_AUTH & server);
        if tls {
            can |= can::SSL;
        }
        if self.database.is_some() {
            can |= can::CONNECT_WITH_DB;
        }
        let mut content = can.to_le_bytes().to_vec();
        content.extend(self.packet_limit.to_le_bytes());
        content.push(self.charset);
        content.extend([0; 23]);
        content
    }
}

/// Returns code and text of an error packet.
pub(super) fn message_of(error: &[u8]) -> String {
    let text = error.get(3..).unwrap_or_default();
    let text = if text.first() == Some(&b'#') { text.get(6..).unwrap_or_default() } else { text };
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Password;

    fn login() -> Login {
        Login { user: "visitor".into(), password: Password::None, database: Some("shop".into()) }
    }

    #[test]
    fn clients_get_a_greeting_without_tls() {
        let facts = Greeting {
            version: b"8.0.1".to_vec(),
            capabilities: u32::MAX,
            charset: 45,
            status: 2,
            salt: Vec::new(),
            plugin: Vec::new(),
        };
        let said = facts.for_clients("0123456789abcdef0123456789abcdef");
        let heard = Greeting::parse(&said[4..]).unwrap();
        assert_eq!(heard.version, facts.version);
        assert_eq!(heard.capabilities & (can::SSL | can::COMPRESS | can::ZSTD), 0);
        assert_ne!(heard.capabilities & can::MULTI_STATEMENTS, 0);
        assert_eq!(heard.salt, b"0123456789abcdef0123");
        assert_eq!(heard.plugin, b"mysql_native_password");
    }

    #[test]
    fn a_clients_handshake_is_parsed() {
        let can = can::PROTOCOL_41
            | can::SECURE_CONNECTION
            | can::CONNECT_WITH_DB
            | can::MULTI_STATEMENTS;
        let mut said = can.to_le_bytes().to_vec();
        said.extend([0, 0, 0, 1, 45]);
        said.extend([0; 23]);
        said.extend(b"guest1\0\x02ab");
        let with = [&said[..], b"other\0"].concat();
        let hello = Hello::parse(&with, &login()).unwrap();
        assert_eq!(hello.capabilities, can::MULTI_STATEMENTS);
        assert_eq!((hello.charset, hello.database.as_deref()), (45, Some(&b"other"[..])));
        let without = [&said[..], b"\0"].concat();
        assert_eq!(
            Hello::parse(&without, &login()).unwrap().database.as_deref(),
            Some(&b"shop"[..])
        );
        for at in 0..said.len() {
            assert_eq!(Hello::parse(&said[..at], &login()), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300), version in any::<bool>()) {
            let bytes = if version { [&[10][..], &bytes].concat() } else { bytes };
            if let Some(greeting) = Greeting::parse(&bytes) {
                prop_assert_eq!(greeting.salt.len(), 20);
            }
            let _read = Hello::parse(&bytes, &login()).is_some();
            let mut packets = Packets::new(&bytes);
            let whole: usize = packets.by_ref().map(|(_, content)| content.len() + 4).sum();
            prop_assert_eq!(whole + packets.rest().len(), bytes.len());
            drop(message_of(&bytes));
        }
    }

    #[test]
    fn another_database_is_another_key() {
        let one = Hello::for_probe(&login());
        let key = one.key();
        let other = Hello { database: None, ..one };
        assert_ne!(key, other.key());
    }
}
