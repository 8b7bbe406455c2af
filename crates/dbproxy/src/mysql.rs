//! `MySQL` and `MariaDB`. Clients get the server's greeting and log in without a password, because only trusted users
//! may connect. The connector logs in at the server with the client's capabilities, and `COM_RESET_CONNECTION` resets
//! the session.
//!
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html>,
//! <https://mariadb.com/kb/en/clientserver-protocol/>

mod login;
mod scramble;
mod wire;

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use self::wire::{Greeting, Packets, Reader, capability};
use crate::proof::{self, Verdict};
use crate::server::Stream;
use crate::sessions::Session;
use crate::{Login, Refused};

pub(crate) use self::login::{Opened, learn, open};
pub(crate) use self::wire::{Greeting as Facts, Hello};

/// `COM_QUIT`.
pub(crate) const GOODBYE: &[u8] = &[1, 0, 0, 0, 1];

/// Sequence number of the response to a login.
const AFTER_LOGIN: u8 = 2;

/// Greets a client and reads its capabilities; `None` if it disconnected or violated the protocol.
pub(crate) async fn read_request(
    client: &mut UnixStream,
    facts: &Greeting,
    login: &Login,
) -> std::io::Result<Option<Hello>> {
    client.write_all(&facts.for_clients(&proof::nonce())).await?;
    let Some((_, content)) = wire::read(client).await? else { return Ok(None) };
    Ok(Hello::parse(&content, login))
}

/// Returns the client's response when it has a session.
pub(crate) fn welcome(ok: &[u8]) -> Vec<u8> {
    wire::packet(AFTER_LOGIN, ok)
}

/// Returns a query.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    wire::packet(0, &[b"\x03", sql.as_bytes()].concat())
}

/// Returns the value of a response with one row of one column, for a session with short result ends
/// ([`Hello::for_probe`]).
pub(crate) fn only_value(answer: &[u8]) -> proof::Checked<'_> {
    let packets: Vec<_> = Packets::new(answer).map(|(_, content)| content).collect();
    match packets.as_slice() {
        [[1], _definition, [_length, value @ ..], _end] => (Verdict::Clean, Some(value)),
        [[0xff, ..], ..] | [_, _, _, _, ..] => proof::DOUBT,
        _ => proof::MORE,
    }
}

/// Number of columns in the response to [`identify`].
const COLUMNS: u8 = 6;

/// Query part that detects an `init_connect` statement, which servers run at each login without SUPER and
/// `COM_RESET_CONNECTION` does not run again. Whether a reset restores character sets is compared with everything
/// else.
const BEGINS: &str = ", @@init_connect NOT REGEXP _utf8mb4'^ *(set +names +.?[[:alnum:]_]+.?( +collate +.?[[:alnum:]_]+.?)?)? *;? *$'";

/// Query part for the account's limit in seconds (`CREATE USER … WITH MAX_STATEMENT_TIME`) if it differs from the
/// server's own. It is NULL for servers without such limits, by the version comment.
const LIMIT: &str = ", COALESCE(/*M!100101 CAST(NULLIF(@@max_statement_time, @@global.max_statement_time) AS DECIMAL(20,6)),*/NULL)";

/// Returns the query that identifies a session, for a new one with the columns `more`. `COM_RESET_CONNECTION` keeps
/// the role set by `SET ROLE`, and forgets what the login has set (observed on `MariaDB` 10.11 and 11.8). The version
/// comments select the servers that have roles and limits; for all others they are comments.
fn identify(nonce: &str, more: &str) -> Vec<u8> {
    let sql = format!(
        "\x03SELECT '{nonce}', @@character_set_client, @@character_set_results, @@collation_connection, database(), \
         HEX(CONCAT_WS(' ', CURRENT_USER()/*!80000 , CURRENT_ROLE()*//*M!100005 , CURRENT_ROLE()*/, \
         @@sql_mode, @@wait_timeout/*M!100101 , @@max_statement_time*/)){more}"
    );
    wire::packet(0, sql.as_bytes())
}

/// Identity of a new session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The row that a reset session must return, without the nonce.
    pub row: Vec<u8>,
    /// The server runs an `init_connect` statement that no reset repeats.
    pub begins: bool,
    /// The account's limit in seconds.
    limit: Option<String>,
}

impl Identity {
    /// Parses the row with the results of [`BEGINS`] and [`LIMIT`]; `None` if it is invalid.
    fn of(mut row: Vec<u8>) -> Option<Self> {
        let mut reader = Reader(&row);
        for _ in 1..COLUMNS {
            reader.column()?;
        }
        let rest = reader.0.len();
        let begins = reader.column()? == b"1";
        let limit = reader.column()?;
        // It becomes a part of a statement.
        if !limit.iter().all(|c| c.is_ascii_digit() || *c == b'.') {
            return None;
        }
        let limit = (!limit.is_empty()).then(|| String::from_utf8_lossy(limit).into_owned());
        row.truncate(row.len() - rest);
        Some(Self { row, begins, limit })
    }

    /// Returns the command that makes the settings of the login again, if there are any: of the client's capabilities
    /// and of the account. `MariaDB` sets all variables to the server's own at a reset.
    pub(crate) fn restore(&self, hello: &Hello) -> Vec<u8> {
        let mut settings = Vec::new();
        if hello.capabilities & capability::INTERACTIVE != 0 {
            settings.push("wait_timeout=@@interactive_timeout".to_owned());
        }
        if hello.capabilities & capability::IGNORE_SPACE != 0 {
            settings
                .push("sql_mode=CONCAT_WS(',',NULLIF(@@sql_mode,''),'IGNORE_SPACE')".to_owned());
        }
        settings.extend(self.limit.as_ref().map(|limit| format!("max_statement_time={limit}")));
        if settings.is_empty() {
            return Vec::new();
        }
        query(&format!("SET {}", settings.join(",")))
    }
}

/// Queries the identity of a session; `None` if the server did not return it.
pub(crate) async fn identity(
    stream: &mut Stream,
    hello: &Hello,
    limit: Duration,
) -> Option<Identity> {
    let nonce = proof::nonce();
    let mut identity = None;
    let said = identify(&nonce, &[BEGINS, LIMIT].concat());
    let proved = proof::proves(stream, &said, limit, |answer| {
        let (verdict, row) = check(answer, 0, COLUMNS + 2, hello, &nonce);
        identity = row;
        verdict
    });
    proved.await.then_some(identity).flatten().and_then(Identity::of)
}

/// Resets a session; returns whether that is proved.
pub(crate) async fn reset(session: &mut Session, hello: &Hello, limit: Duration) -> bool {
    let Session { stream, identity, restore, .. } = session;
    let nonce = proof::nonce();
    // COM_RESET_CONNECTION; the others restore what it keeps or forgets.
    let mut said = wire::packet(0, &[0x1f]);
    let several = u8::from(hello.capabilities & capability::MULTI_STATEMENTS == 0);
    said.extend(wire::packet(0, &[0x1b, several, 0]));
    let mut commands = 2;
    if !restore.is_empty() {
        said.extend(&*restore);
        commands += 1;
    }
    if let Some(database) = &hello.database {
        said.extend(wire::packet(0, &[&[0x02][..], database].concat()));
        commands += 1;
    }
    said.extend(identify(&nonce, ""));
    let check = |answer: &[u8]| match check(answer, commands, COLUMNS, hello, &nonce) {
        (Verdict::Clean, row) if row.as_ref() != Some(&*identity) => Verdict::Doubt,
        (verdict, _) => verdict,
    };
    proof::proves(stream, &said, limit, check).await
}

/// Checks that `commands` are answered without an error, followed by a row that begins with the nonce; returns the
/// rest of the row.
fn check(
    answer: &[u8],
    commands: usize,
    columns: u8,
    hello: &Hello,
    nonce: &str,
) -> (Verdict, Option<Vec<u8>>) {
    let has_eof = hello.capabilities & capability::DEPRECATE_EOF == 0;
    let row_at = commands + 1 + usize::from(columns) + usize::from(has_eof);
    let mut row = None;
    let mut packets = Packets::new(answer);
    let mut count = 0;
    for (_, content) in &mut packets {
        let first = content.first().copied();
        let is_good = match count {
            // OK, or the end of COM_SET_OPTION
            at if at < commands => matches!(first, Some(0x00 | 0xfe)),
            at if at == commands => content == [columns],
            at if at == row_at => {
                let rest =
                    content.strip_prefix(&[32]).and_then(|row| row.strip_prefix(nonce.as_bytes()));
                row = rest.map(<[u8]>::to_vec);
                row.is_some()
            }
            at if at == row_at + 1 => first == Some(0xfe) && content.len() < 256,
            at if at > row_at => false,
            _ => first != Some(0xff),
        };
        if !is_good {
            return (Verdict::Doubt, None);
        }
        count += 1;
    }
    match (count == row_at + 2, packets.rest().is_empty()) {
        (true, true) => (Verdict::Clean, row),
        (true, false) => (Verdict::Doubt, None),
        (false, _) => (Verdict::More, None),
    }
}

/// Returns the last packet for a client: in place of the greeting, or at the end of its login.
pub(crate) fn error(refused: &Refused, instead_of_greeting: bool) -> Vec<u8> {
    let number = if instead_of_greeting { 0 } else { AFTER_LOGIN };
    let (code, state): (u16, _) = match refused {
        Refused::Login { answer, .. } => return wire::packet(number, answer),
        // ER_CON_COUNT_ERROR, CR_CONN_HOST_ERROR, CR_SSL_CONNECTION_ERROR, ER_ACCESS_DENIED_ERROR,
        // CR_AUTH_PLUGIN_ERR, ER_HANDSHAKE_ERROR
        Refused::Busy { .. } => (1040, "08004"),
        Refused::Unreachable { .. } => (2003, "HY000"),
        Refused::Tls { .. } => (2026, "HY000"),
        Refused::Password(_) => (1045, "28000"),
        Refused::Unsupported(_) => (2061, "HY000"),
        Refused::Protocol { .. } => (1043, "08S01"),
    };
    let text = format!("#{state}connector: {refused}");
    wire::packet(number, &[&[0xff][..], &code.to_le_bytes(), text.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(capabilities: u32) -> Hello {
        Hello { capabilities, packet_limit: 0, charset: 33, database: Some(b"shop".to_vec()) }
    }

    fn packets(parts: &[&[u8]]) -> Vec<u8> {
        parts
            .iter()
            .enumerate()
            .flat_map(|(at, part)| wire::packet(u8::try_from(at).unwrap(), part))
            .collect()
    }

    #[test]
    fn a_reset_reply_must_be_complete_and_alone() {
        let nonce = "0123456789abcdef0123456789abcdef";
        let row = [&[32][..], nonce.as_bytes(), b"rest"].concat();
        let ok: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
        let eof: &[u8] = &[0xfe, 0, 0, 2, 0];
        let column: &[u8] = b"\x03def";
        let set: Vec<&[u8]> =
            [&[&[COLUMNS][..]][..], &[column; COLUMNS as usize], &[eof, &row, eof]].concat();
        let all: Vec<&[u8]> = [&[ok, eof, ok][..], &set].concat();
        let clean = packets(&all);
        for at in 0..clean.len() {
            assert_eq!(check(&clean[..at], 3, COLUMNS, &hello(0), nonce).0, Verdict::More, "{at}");
        }
        assert_eq!(
            check(&clean, 3, COLUMNS, &hello(0), nonce),
            (Verdict::Clean, Some(b"rest".to_vec()))
        );
        let short: Vec<&[u8]> =
            all.iter().copied().filter(|part| !std::ptr::eq(*part, eof)).collect();
        let short = [&[ok, eof, ok][..], &short[2..], &[eof]].concat();
        let deprecated = hello(capability::DEPRECATE_EOF);
        assert_eq!(check(&packets(&short), 3, COLUMNS, &deprecated, nonce).0, Verdict::Clean);
        assert_eq!(
            check(&[&packets(&[ok])[..], &clean].concat(), 3, COLUMNS, &hello(0), nonce).0,
            Verdict::Doubt
        );
        assert_eq!(
            check(&[&clean[..], &[1]].concat(), 3, COLUMNS, &hello(0), nonce).0,
            Verdict::Doubt
        );
        assert_eq!(
            check(&clean, 3, COLUMNS, &hello(0), &nonce.replace('0', "1")).0,
            Verdict::Doubt
        );
        assert_eq!(
            check(&packets(&[&[0xff, 1, 0]]), 3, COLUMNS, &hello(0), nonce).0,
            Verdict::Doubt
        );
    }

    const SAME: &[u8] = b"\x01a\xfb\x01c\x04shop\x04rest";

    fn identity(more: &[u8]) -> Option<Identity> {
        Identity::of([SAME, more].concat())
    }

    #[test]
    fn server_identity_ignores_per_client_values() {
        for (more, begins, limit) in [
            (&b"\x010\xfb"[..], false, None),
            (b"\x011\xfb", true, None),
            (b"\xfb\xfb", false, None),
            (b"\x010\x087.500000", false, Some("7.500000".to_owned())),
        ] {
            assert_eq!(identity(more), Some(Identity { row: SAME.to_vec(), begins, limit }));
        }
        for wrong in [&b""[..], b"\x010", b"\x010\x097.500000", b"\x010\x047, @"] {
            assert_eq!(identity(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn settings_of_the_login_are_made_again() {
        use capability::{IGNORE_SPACE, INTERACTIVE, MULTI_STATEMENTS};
        let limited = identity(b"\x010\x087.500000").unwrap();
        let other = identity(b"\x010\xfb").unwrap();
        let all = "SET wait_timeout=@@interactive_timeout,\
                   sql_mode=CONCAT_WS(',',NULLIF(@@sql_mode,''),'IGNORE_SPACE'),max_statement_time=7.500000";
        assert_eq!(limited.restore(&hello(INTERACTIVE | IGNORE_SPACE)), query(all));
        assert_eq!(limited.restore(&hello(0)), query("SET max_statement_time=7.500000"));
        assert_eq!(other.restore(&hello(MULTI_STATEMENTS)), b"");
    }
}
