//! Redis and Valkey: `RESET` (6.2 and newer) makes a session new, and forgets the login with all else: it is said again.
//!
//! A client's own `RESET` forgets the connector's login, too: see [`relogin`]. Where the connector has no password its clients say `AUTH` themselves, as without it. Their sessions cannot be lent on where the server asks for
//! one: after `RESET` it answers nothing any more. <https://redis.io/docs/latest/commands/reset/>

mod relogin;

use std::fmt::Write as _;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::proof::{self, Verdict};
use crate::server::{Server, Stream};
use crate::{Login, Refused, capacity};

pub(crate) use self::relogin::{LoginLost, Relogin};

/// More than that is no answer to a login.
const LIMIT: usize = 1024;

/// A session, logged in if there is somebody to log in.
pub(crate) async fn open(server: &Server, login: Option<&Login>) -> Result<Stream, Refused> {
    let mut stream = server.encrypt(server.connect().await?).await?;
    // That the server does not like our certificate is only heard of when it answers something.
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
        // Clients log in.
        (None, refusal) if refusal.starts_with(b"-NOAUTH") => Ok(stream),
        (_, refusal) if refusal.starts_with(b"-") => {
            let text = String::from_utf8_lossy(&refusal[1..]);
            Err(Refused::Login { message: text.trim_end().to_owned(), answer })
        }
        _ => Err(server.strange("its answer to the first command is none")),
    }
}

/// Whether a session is as new again.
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
    proof::proves(stream, &commands, limit, |answer| judge(answer, &expected)).await
}

/// The command that logs in.
pub(crate) fn auth(login: &Login) -> Result<Vec<u8>, Refused> {
    let password = login.password.read().map_err(Refused::Password)?;
    Ok(match login.user.as_str() {
        "" => command(&["AUTH", password.expose()]),
        user => command(&["AUTH", user, password.expose()]),
    })
}

/// A command's bytes.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        write!(bytes, "${}\r\n{word}\r\n", word.len()).expect("writing to a String cannot fail");
    }
    bytes.into_bytes()
}

/// The second of two strings.
pub(crate) fn second_value(answer: &[u8]) -> capacity::Judged<'_> {
    let mut lines =
        answer.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    match lines.next() {
        Some(b"*2\r\n") => {}
        Some(_) => return capacity::DOUBT,
        None => return capacity::MORE,
    }
    lines.nth(3).map_or(capacity::MORE, |line| (Verdict::Clean, line.strip_suffix(b"\r\n")))
}

fn judge(answer: &[u8], expected: &[u8]) -> Verdict {
    if answer == expected {
        Verdict::Clean
    } else if expected.starts_with(answer) {
        Verdict::More
    } else {
        Verdict::Doubt
    }
}

/// An error that answers a command. Not `-ERR`: phpredis takes that for the command's own failure and goes on.
pub(crate) fn error(refused: &Refused) -> Vec<u8> {
    if let Refused::Login { answer, .. } = refused {
        return answer.clone();
    }
    let text = refused.to_string().replace(['\r', '\n'], " ");
    format!("-UNAVAILABLE connector: {text}\r\n").into_bytes()
}

/// Answers what a client says with an error, for so long at most. One that found its connection closed would only connect again.
pub(crate) async fn refuse(client: &mut UnixStream, error: &[u8], limit: Duration) {
    let conversation = async {
        let mut said = [0; 4096];
        while let Ok(1..) = client.read(&mut said).await {
            if client.write_all(error).await.is_err() {
                return;
            }
        }
    };
    // The client has had its answer, or has asked nothing.
    drop(timeout(limit, conversation).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_answer_and_nothing_before_it_is_a_proof() {
        let expected = b"+RESET\r\n$2\r\nab\r\n";
        assert_eq!(judge(b"", expected), Verdict::More);
        assert_eq!(judge(b"+RESET\r\n$2", expected), Verdict::More);
        assert_eq!(judge(expected, expected), Verdict::Clean);
        for wrong in [
            &b"+OK\r\n+RESET\r\n$2\r\nab\r\n"[..],
            b"-ERR unknown",
            b"+RESET\r\n$2\r\nab\r\n+OK\r\n",
        ] {
            assert_eq!(judge(wrong, expected), Verdict::Doubt);
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
