//! Redis and Valkey: `RESET` (6.2 and newer) resets a session including its login, which is then repeated.
//!
//! A client's own `RESET` drops the connector's login too: see [`relogin`]. Without a configured password clients
//! send `AUTH` themselves. Their sessions cannot be reused if the server requires a login, because after `RESET` it
//! answers nothing else. <https://redis.io/docs/latest/commands/reset/>

mod relogin;

use std::fmt::Write as _;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::proof::{self, Verdict};
use crate::server::{Server, Stream};
use crate::{Login, Refused};

pub(crate) use self::relogin::{LoginLost, Relogin};

/// Maximum size of a login response.
const LIMIT: usize = 1024;

/// Opens a session, logged in if a login is configured.
pub(crate) async fn open(server: &Server, login: Option<&Login>) -> Result<Stream, Refused> {
    let mut stream = server.encrypt(server.connect().await?).await?;
    // A server that rejects our certificate reports that only with its first response.
    let said = match login {
        Some(login) => auth(login)?,
        None => command(&["PING"]),
    };
    let answer = async {
        stream.write_all(&said).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") && answer.len() < LIMIT {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(answer)
    };
    let answer = answer.await.map_err(|error| server.lost(error))?;
    match (login, answer.as_slice()) {
        (Some(_), b"+OK\r\n") | (None, b"+PONG\r\n") => Ok(stream),
        // Clients log in themselves.
        (None, refusal) if refusal.starts_with(b"-NOAUTH") => Ok(stream),
        (_, refusal) if refusal.starts_with(b"-") => {
            let text = String::from_utf8_lossy(&refusal[1..]);
            Err(Refused::Login { message: text.trim_end().to_owned(), answer })
        }
        _ => Err(server.strange("its answer to the first command is none")),
    }
}

/// Resets a session; returns whether that is proved.
pub(crate) async fn reset(stream: &mut Stream, login: Option<&Login>, limit: Duration) -> bool {
    let nonce = proof::nonce();
    let mut commands = command(&["RESET"]);
    let mut expected = b"+RESET\r\n".to_vec();
    if let Some(login) = login {
        let Ok(auth) = auth(login) else { return false };
        commands.extend(auth);
        expected.extend(b"+OK\r\n");
    }
    commands.extend(command(&["ECHO", &nonce]));
    expected.extend(format!("${}\r\n{nonce}\r\n", nonce.len()).bytes());
    proof::proves(stream, &commands, limit, |answer| check(answer, &expected)).await
}

/// Returns the login command.
pub(crate) fn auth(login: &Login) -> Result<Vec<u8>, Refused> {
    let password = login.password.read().map_err(Refused::Password)?;
    Ok(match login.user.as_str() {
        "" => command(&["AUTH", password.expose()]),
        user => command(&["AUTH", user, password.expose()]),
    })
}

/// Returns a command's bytes.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        write!(bytes, "${}\r\n{word}\r\n", word.len()).expect("writing to a String cannot fail");
    }
    bytes.into_bytes()
}

/// Returns the second of two strings.
pub(crate) fn second_value(answer: &[u8]) -> proof::Checked<'_> {
    let mut lines =
        answer.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    match lines.next() {
        Some(b"*2\r\n") => {}
        Some(_) => return proof::DOUBT,
        None => return proof::MORE,
    }
    lines.nth(3).map_or(proof::MORE, |line| (Verdict::Clean, line.strip_suffix(b"\r\n")))
}

fn check(answer: &[u8], expected: &[u8]) -> Verdict {
    if answer == expected {
        Verdict::Clean
    } else if expected.starts_with(answer) {
        Verdict::More
    } else {
        Verdict::Doubt
    }
}

/// Returns an error response. It is not `-ERR`, which phpredis treats as the command's own failure and continues.
pub(crate) fn error(refused: &Refused) -> Vec<u8> {
    if let Refused::Login { answer, .. } = refused {
        return answer.clone();
    }
    let text = refused.to_string().replace(['\r', '\n'], " ");
    format!("-UNAVAILABLE connector: {text}\r\n").into_bytes()
}

/// Answers a client's commands with an error, for a limited time. A client whose connection is closed would only
/// reconnect.
pub(crate) async fn refuse(client: &mut UnixStream, error: &[u8], limit: Duration) {
    let conversation = async {
        let mut said = [0; 4096];
        while let Ok(1..) = client.read(&mut said).await {
            if client.write_all(error).await.is_err() {
                return;
            }
        }
    };
    // The client has received its response, or sent no command.
    drop(timeout(limit, conversation).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_sole_reply_proves_a_reset() {
        let expected = b"+RESET\r\n$2\r\nab\r\n";
        assert_eq!(check(b"", expected), Verdict::More);
        assert_eq!(check(b"+RESET\r\n$2", expected), Verdict::More);
        assert_eq!(check(expected, expected), Verdict::Clean);
        for wrong in [
            &b"+OK\r\n+RESET\r\n$2\r\nab\r\n"[..],
            b"-ERR unknown",
            b"+RESET\r\n$2\r\nab\r\n+OK\r\n",
        ] {
            assert_eq!(check(wrong, expected), Verdict::Doubt);
        }
    }

    #[test]
    fn commands_are_counted_words() {
        assert_eq!(command(&["AUTH", "a b"]), b"*2\r\n$4\r\nAUTH\r\n$3\r\na b\r\n");
    }

    #[test]
    fn an_error_is_one_line() {
        let refused = Refused::Unsupported("two\r\nlines".to_owned());
        assert_eq!(error(&refused), b"-UNAVAILABLE connector: two  lines\r\n");
    }
}
