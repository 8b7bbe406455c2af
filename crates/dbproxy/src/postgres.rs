//! `PostgreSQL`: the client's startup message is forwarded to the server with the connector's user; `DISCARD ALL`
//! resets the session.
//!
//! The message is part of a session's key: its parameters (`client_encoding`, `options`) are the defaults that
//! `DISCARD ALL` restores. Protocol: <https://www.postgresql.org/docs/current/protocol-message-formats.html>.

mod login;
mod scram;
mod wire;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use self::wire::Messages;
use crate::proof::{self, Verdict};
use crate::server::{Server, Stream};
use crate::sessions::Session;
use crate::{Login, Refused};

pub(crate) use self::login::open;

/// The end of the server's data when it waits for a command outside a transaction.
pub(crate) const AT_REST: [u8; 6] = *b"Z\0\0\0\x05I";
/// `Terminate`.
pub(crate) const GOODBYE: &[u8] = b"X\0\0\0\x04";

/// Maximum size of a startup packet, as in the server: `MAX_STARTUP_PACKET_LENGTH`, src/include/libpq/pqcomm.h.
const STARTUP_LIMIT: usize = 10_000;
/// 3.0
const VERSION: u32 = 3 << 16;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The first request of a client.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// The client requests a session; the startup message for the server.
    Session(Vec<u8>),
    /// The client cancels a query of another session; the message for the server.
    Cancel(Vec<u8>),
    /// The client disconnected or violated the protocol.
    Nothing,
}

/// Reads the client's first request. Encryption is declined, because a unix socket needs none.
pub(crate) async fn read_request(
    client: &mut UnixStream,
    login: &Login,
) -> std::io::Result<Beginning> {
    loop {
        let length = client.read_u32().await? as usize;
        if !(8..=STARTUP_LIMIT).contains(&length) {
            return Ok(Beginning::Nothing);
        }
        let mut rest = vec![0; length - 4];
        client.read_exact(&mut rest).await?;
        let code = rest.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
        match code {
            SSL_REQUEST | GSS_REQUEST => client.write_all(b"N").await?,
            CANCEL_REQUEST => {
                let length = u32::try_from(length).expect("it came as one");
                return Ok(Beginning::Cancel([&length.to_be_bytes()[..], &rest].concat()));
            }
            _ if code >> 16 == 3 => {
                let startup = wire::startup(code, &rest[4..], login);
                return Ok(startup.map_or(Beginning::Nothing, Beginning::Session));
            }
            _ => return Ok(Beginning::Nothing),
        }
    }
}

/// Returns a query.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    let mut said = Vec::new();
    wire::query(&mut said, sql);
    said
}

/// Returns the value of a response with one row of one column.
pub(crate) fn only_value(answer: &[u8]) -> proof::Checked<'_> {
    let mut value = None;
    for (letter, content) in &mut Messages::new(answer) {
        match letter {
            b'E' => return proof::DOUBT,
            // The number of columns, and the length of the first.
            b'D' => value = content.get(6..),
            b'Z' => return (Verdict::Clean, value),
            _ => {}
        }
    }
    proof::MORE
}

/// Returns a startup message without special parameters.
pub(crate) fn probe_startup(login: &Login) -> Vec<u8> {
    wire::startup(VERSION, b"", login).expect("nothing that is said is wrong")
}

/// Asks the server to cancel another session's query.
pub(crate) async fn cancel(server: &Server, request: &[u8]) -> Result<(), Refused> {
    let mut stream = login::encrypted(server).await?;
    let said = async {
        stream.write_all(request).await?;
        stream.shutdown().await?;
        // The server closes the connection when it has done so.
        stream.read(&mut [0]).await
    };
    said.await.map(drop).map_err(|error| server.lost(error))
}

/// Settings that a server reports to clients (`ParameterStatus`) and that may change in a session:
/// `src/backend/utils/misc/guc_tables.c`, `GUC_REPORT`.
const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "IntervalStyle",
    "is_superuser",
    "scram_iterations",
    "search_path",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// First version with login event triggers, which a server runs at each login, and not after `DISCARD ALL`.
const LOGIN_TRIGGERS: u32 = 17;

/// The column that says whether the database has an enabled one.
const BEGINS: &str = ", EXISTS(SELECT FROM pg_catalog.pg_event_trigger WHERE evtevent = 'login' AND evtenabled <> 'D')";

/// Identity of a new session.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The row that a reset session must return, without the nonce: the settings that `welcome` reports to clients.
    pub row: Vec<u8>,
    /// The database has a login event trigger, which no reset runs.
    pub begins: bool,
}

/// Queries the identity of a session whose server has reported the settings in `welcome`; `None` if the server did
/// not return it.
pub(crate) async fn identity(
    stream: &mut Stream,
    welcome: &[u8],
    limit: Duration,
) -> Option<Identity> {
    let nonce = proof::nonce();
    let may_begin = version(welcome).is_some_and(|version| version >= LOGIN_TRIGGERS);
    let more = if may_begin { BEGINS } else { "" };
    let mut said = Vec::new();
    wire::query(&mut said, &format!("{}{more}", identify(&nonce, welcome)));
    let mut row = Vec::new();
    let proved = proof::proves(stream, &said, limit, |answer| {
        let (verdict, found) = check(answer, &[SELECTED], &nonce);
        row = found;
        verdict
    });
    if !proved.await {
        return None;
    }
    let mut begins = false;
    if may_begin {
        begins = row.ends_with(b"t");
        // A length and a letter.
        row.truncate(row.len().saturating_sub(5));
    }
    Some(Identity { row, begins })
}

/// Returns the query for the nonce and the settings in `welcome`. A server may change them without a client: by a reload
/// of its configuration, or as a promoted standby. A pooler in front of it makes parameters of the startup message by
/// `SET`, which `DISCARD ALL` undoes. `DISCARD ALL` keeps the state of `random()` set by `setseed()`, so it is seeded
/// with a random value.
fn identify(nonce: &str, welcome: &[u8]) -> String {
    let seed: String = nonce.bytes().take(16).map(|c| char::from(b'0' + c % 10)).collect();
    let mut sql = format!("SELECT '{nonce}', pg_catalog.setseed('0.{seed}')");
    for name in REPORTED.iter().filter(|name| wire::setting(welcome, name).is_some()) {
        sql.push_str(", pg_catalog.current_setting('");
        sql.push_str(name);
        sql.push_str("')");
    }
    sql
}

/// Returns the major version of the server.
fn version(welcome: &[u8]) -> Option<u32> {
    let text = wire::setting(welcome, "server_version")?;
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

/// Resets a session; returns whether that is proved. `tail` is the end of the server's data.
pub(crate) async fn reset(session: &mut Session, tail: [u8; 6], limit: Duration) -> bool {
    let Session { stream, identity, welcome, .. } = session;
    let Some(rollback) = ends_transaction(tail) else { return false };
    let nonce = proof::nonce();
    let mut said = Vec::new();
    if rollback {
        wire::query(&mut said, "ROLLBACK");
    }
    wire::query(&mut said, "DISCARD ALL");
    wire::query(&mut said, &identify(&nonce, welcome));
    let expected: &[&[u8]] = &[b"ROLLBACK\0", b"DISCARD ALL\0", SELECTED];
    let expected = if rollback { expected } else { &expected[1..] };
    let check = |answer: &[u8]| match check(answer, expected, &nonce) {
        (Verdict::Clean, row) if row != *identity => Verdict::Doubt,
        (verdict, _) => verdict,
    };
    proof::proves(stream, &said, limit, check).await
}

/// Returns whether there is a transaction to end; `None` if the server is not waiting for a command. Outside a
/// transaction
/// `ROLLBACK` would log a warning at the server.
fn ends_transaction(tail: [u8; 6]) -> Option<bool> {
    match tail {
        AT_REST => Some(false),
        [b'Z', 0, 0, 0, 5, b'T' | b'E'] => Some(true),
        _ => None,
    }
}

/// The end of the query that [`identify`] returns.
const SELECTED: &[u8] = b"SELECT 1\0";

/// Checks that the `expected` commands are answered without an error, the last one with a row that begins with the
/// nonce; returns the rest of the row.
fn check(answer: &[u8], expected: &[&[u8]], nonce: &str) -> (Verdict, Vec<u8>) {
    const DOUBT: (Verdict, Vec<u8>) = (Verdict::Doubt, Vec::new());
    let mut done: Vec<&[u8]> = Vec::new();
    let mut ready = 0;
    let mut row = None;
    let mut messages = Messages::new(answer);
    for (letter, content) in &mut messages {
        if ready == expected.len() {
            return DOUBT;
        }
        match letter {
            b'C' => done.push(content),
            b'D' if row.is_none() && done.len() + 1 == expected.len() => {
                // The number of columns, and the length of the first.
                let Some(rest) =
                    content.get(6..).and_then(|row| row.strip_prefix(nonce.as_bytes()))
                else {
                    return DOUBT;
                };
                row = Some(rest.to_vec());
            }
            b'Z' if content == b"I" && done.len() == ready + 1 => ready += 1,
            // Notices, changed settings, earlier notifications, the row description.
            b'N' | b'S' | b'A' | b'T' => {}
            _ => return DOUBT,
        }
        if done.len() > expected.len() || done != expected[..done.len()] {
            return DOUBT;
        }
    }
    match (ready == expected.len(), messages.rest().is_empty(), row) {
        (true, true, Some(row)) => (Verdict::Clean, row),
        (true, ..) => DOUBT,
        (false, ..) => (Verdict::More, Vec::new()),
    }
}

/// Returns the last message for a client.
pub(crate) fn error(refused: &Refused) -> Vec<u8> {
    let state = match refused {
        Refused::Login { answer, .. } => return answer.clone(),
        // "too many connections", "unable to establish", "protocol violation", "not supported", "password"
        Refused::Busy { .. } => "53300",
        Refused::Unreachable { .. } | Refused::Tls { .. } => "08001",
        Refused::Protocol { .. } => "08P01",
        Refused::Unsupported(_) => "0A000",
        Refused::Password(_) => "28P01",
    };
    let text = format!("SFATAL\0VFATAL\0C{state}\0Mconnector: {refused}\0\0");
    let mut message = Vec::new();
    wire::message(&mut message, b'E', text.as_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(parts: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (letter, content) in parts {
            wire::message(&mut bytes, *letter, content);
        }
        bytes
    }

    const CLEAN: &[(u8, &[u8])] = &[
        (b'C', b"DISCARD ALL\0"),
        (b'S', b"TimeZone\0UTC\0"),
        (b'Z', b"I"),
        (b'T', b"\0\x02"),
        (b'D', b"\0\x02\0\0\0\x04abcd\0\0\0\x03UTC"),
        (b'C', b"SELECT 1\0"),
        (b'Z', b"I"),
    ];

    #[test]
    fn a_reset_reply_must_be_complete_and_alone() {
        let all: &[&[u8]] = &[b"ROLLBACK\0", b"DISCARD ALL\0", SELECTED];
        let verdict = |answer: &[u8], expected, nonce| check(answer, expected, nonce).0;
        let clean = packets(CLEAN);
        for at in 0..clean.len() {
            assert_eq!(verdict(&clean[..at], &all[1..], "abcd"), Verdict::More, "{at}");
        }
        let expected = (Verdict::Clean, b"\0\0\0\x03UTC".to_vec());
        assert_eq!(check(&clean, &all[1..], "abcd"), expected);
        let before = packets(&[(b'C', b"UPDATE 1\0"), (b'Z', b"I")]);
        for wrong in [
            [&before[..], &clean].concat(),
            [&clean[..], &before].concat(),
            [&clean[..], b"Z"].concat(),
        ] {
            assert_eq!(verdict(&wrong, &all[1..], "abcd"), Verdict::Doubt);
        }
        assert_eq!(verdict(&clean, &all[1..], "dcba"), Verdict::Doubt);
        assert_eq!(verdict(&clean, all, "abcd"), Verdict::Doubt, "no ROLLBACK in it");
        let rolled = packets(&[(b'C', b"ROLLBACK\0"), (b'Z', b"I")]);
        assert_eq!(verdict(&[&rolled[..], &clean].concat(), all, "abcd"), Verdict::Clean);
        let failed = packets(&[(b'E', b"SERROR\0\0"), (b'Z', b"I")]);
        assert_eq!(verdict(&failed, &all[1..], "abcd"), Verdict::Doubt);
    }

    #[test]
    fn a_session_is_asked_for_the_settings_that_were_reported() {
        let of = |said: &str| packets(&[(b'S', b"TimeZone\0UTC\0"), (b'S', said.as_bytes())]);
        let welcome = of("server_version\x0017.6 (Debian 17.6-0+deb13u1)\0");
        assert_eq!(
            identify("0123456789abcdef", &welcome),
            "SELECT '0123456789abcdef', pg_catalog.setseed('0.8901234567789012'), pg_catalog.current_setting('TimeZone')"
        );
        assert_eq!(version(&welcome), Some(17));
        assert_eq!(version(&of("server_version\x0018beta1\0")), Some(18));
        assert_eq!(version(&of("server_version\0\0")), None);
        assert_eq!(version(&of("server_encoding\0UTF8\0")), None);
    }

    #[test]
    fn a_busy_session_is_not_checked() {
        assert_eq!(ends_transaction(*b"Z\0\0\0\x05I"), Some(false));
        assert_eq!(ends_transaction(*b"Z\0\0\0\x05T"), Some(true));
        assert_eq!(ends_transaction(*b"Z\0\0\0\x05E"), Some(true));
        assert_eq!(ends_transaction(*b"G\0\0\0\x05I"), None);
    }
}
