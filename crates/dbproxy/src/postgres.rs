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
use crate::{Login, Refused, capacity};

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
    /// It requests a session; the startup message for the server.
    Session(Vec<u8>),
    /// It cancels a query of another session; the message for the server.
    Cancel(Vec<u8>),
    /// It disconnected or violated the protocol.
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
pub(crate) fn only_value(answer: &[u8]) -> capacity::Checked<'_> {
    let mut value = None;
    for (letter, content) in &mut Messages::new(answer) {
        match letter {
            b'E' => return capacity::DOUBT,
            // The number of columns, and the length of the first.
            b'D' => value = content.get(6..),
            b'Z' => return (Verdict::Clean, value),
            _ => {}
        }
    }
    capacity::MORE
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

/// Resets a session; returns whether that is proved. `tail` is the end of the server's data.
pub(crate) async fn reset(stream: &mut Stream, tail: [u8; 6], limit: Duration) -> bool {
    let Some(rollback) = ends_transaction(tail) else { return false };
    let nonce = proof::nonce();
    let mut said = Vec::new();
    if rollback {
        wire::query(&mut said, "ROLLBACK");
    }
    wire::query(&mut said, "DISCARD ALL");
    // DISCARD ALL keeps the state of random() set by setseed(), so it is seeded with a random value.
    let seed: String = nonce.bytes().take(16).map(|c| char::from(b'0' + c % 10)).collect();
    wire::query(&mut said, &format!("SELECT pg_catalog.setseed('0.{seed}'), '{nonce}'"));
    proof::proves(stream, &said, limit, |answer| check(answer, rollback, nonce.as_bytes())).await
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

fn check(answer: &[u8], rollback: bool, nonce: &[u8]) -> Verdict {
    let mut done: Vec<&[u8]> = Vec::new();
    let mut ready = 0;
    let mut row = false;
    let expected: &[&[u8]] = &[b"ROLLBACK\0", b"DISCARD ALL\0", b"SELECT 1\0"];
    let expected = if rollback { expected } else { &expected[1..] };
    let mut messages = Messages::new(answer);
    for (letter, content) in &mut messages {
        if ready == expected.len() {
            return Verdict::Doubt;
        }
        match letter {
            b'C' => done.push(content),
            b'D' if content.ends_with(nonce) && done.len() + 1 == expected.len() => row = true,
            b'Z' if content == b"I" && done.len() == ready + 1 => ready += 1,
            // Notices, unchanged settings, earlier notifications, the row description.
            b'N' | b'S' | b'A' | b'T' => {}
            _ => return Verdict::Doubt,
        }
        if done.len() > expected.len() || done != expected[..done.len()] {
            return Verdict::Doubt;
        }
    }
    match (ready == expected.len(), messages.rest().is_empty()) {
        (true, true) if row => Verdict::Clean,
        (true, _) => Verdict::Doubt,
        (false, _) => Verdict::More,
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

    fn say(parts: &[(u8, &[u8])]) -> Vec<u8> {
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
        (b'T', b"\0\x01"),
        (b'D', b"\0\x01\0\0\0\x04abcd"),
        (b'C', b"SELECT 1\0"),
        (b'Z', b"I"),
    ];

    #[test]
    fn a_reset_reply_must_be_complete_and_alone() {
        let clean = say(CLEAN);
        for at in 0..clean.len() {
            assert_eq!(check(&clean[..at], false, b"abcd"), Verdict::More, "{at}");
        }
        assert_eq!(check(&clean, false, b"abcd"), Verdict::Clean);
        let before = say(&[(b'C', b"UPDATE 1\0"), (b'Z', b"I")]);
        assert_eq!(check(&[&before[..], &clean].concat(), false, b"abcd"), Verdict::Doubt);
        assert_eq!(check(&[&clean[..], &before].concat(), false, b"abcd"), Verdict::Doubt);
        assert_eq!(check(&[&clean[..], b"Z"].concat(), false, b"abcd"), Verdict::Doubt);
        assert_eq!(check(&clean, false, b"dcba"), Verdict::Doubt);
        assert_eq!(check(&clean, true, b"abcd"), Verdict::Doubt, "no ROLLBACK in it");
        let rolled = say(&[(b'C', b"ROLLBACK\0"), (b'Z', b"I")]);
        assert_eq!(check(&[&rolled[..], &clean].concat(), true, b"abcd"), Verdict::Clean);
        let failed = say(&[(b'E', b"SERROR\0\0"), (b'Z', b"I")]);
        assert_eq!(check(&failed, false, b"abcd"), Verdict::Doubt);
    }

    #[test]
    fn a_busy_session_is_not_checked() {
        assert_eq!(ends_transaction(*b"Z\0\0\0\x05I"), Some(false));
        assert_eq!(ends_transaction(*b"Z\0\0\0\x05T"), Some(true));
        assert_eq!(ends_transaction(*b"Z\0\0\0\x05E"), Some(true));
        assert_eq!(ends_transaction(*b"G\0\0\0\x05I"), None);
    }
}
