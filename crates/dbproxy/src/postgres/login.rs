//! The login, as a client of the server.

use md5::{Digest, Md5};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::scram::Scram;
use super::wire;
use crate::proof::hex;
use crate::server::{Server, Stream};
use crate::{Login, Refused, Verify};

/// Maximum size of a login message.
const MESSAGE_LIMIT: usize = 64 * 1024;
/// `SSLRequest`, 80877103.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Opens a connection on which nothing has been sent.
pub(super) async fn encrypted(server: &Server) -> Result<Stream, Refused> {
    let mut stream = server.connect().await?;
    if server.verify != Verify::Disable {
        stream.write_all(&SSL_REQUEST).await.map_err(|error| server.lost(error))?;
        match stream.read_u8().await.map_err(|error| server.lost(error))? {
            b'S' => {}
            b'N' => return Err(server.no_tls()),
            _ => return Err(server.strange("its answer to the TLS request is invalid")),
        }
    }
    server.encrypt(stream).await
}

/// Opens a session; returns it with the messages for the client, from the end of the login to the first
/// `ReadyForQuery`.
pub(crate) async fn open(
    server: &Server,
    login: &Login,
    startup: &[u8],
) -> Result<(Stream, Vec<u8>), Refused> {
    let mut stream = encrypted(server).await?;
    send(server, &mut stream, startup).await?;
    let mut welcome = Vec::new();
    let mut scram = None;
    loop {
        let (letter, content) = read_request(server, &mut stream).await?;
        match letter {
            b'R' => {
                let (kind, rest) = content
                    .split_first_chunk::<4>()
                    .ok_or_else(|| server.strange("a login without a kind"))?;
                let answer = match u32::from_be_bytes(*kind) {
                    0 => {
                        if scram.as_ref().is_some_and(|scram: &Scram| !scram.is_verified()) {
                            return Err(
                                server.strange("it has not proved that it knows the password")
                            );
                        }
                        wire::message(&mut welcome, b'R', &content);
                        continue;
                    }
                    3 => terminated(password(login)?.as_bytes()),
                    5 => terminated(md5(&login.user, &password(login)?, rest).as_bytes()),
                    10 => {
                        let offered =
                            rest.split(|byte| *byte == 0).any(|name| name == b"SCRAM-SHA-256");
                        if !offered {
                            return Err(unknown("SASL without SCRAM-SHA-256"));
                        }
                        let (begun, first) = Scram::begin(&password(login)?);
                        scram = Some(begun);
                        let length = u32::try_from(first.len()).expect("it is short");
                        [b"SCRAM-SHA-256\0", &length.to_be_bytes()[..], first.as_bytes()].concat()
                    }
                    11 => scram
                        .as_mut()
                        .and_then(|scram| scram.answer(rest))
                        .ok_or_else(|| server.strange("its challenge is none"))?
                        .into_bytes(),
                    12 => {
                        let verified = scram.as_mut().is_some_and(|scram| scram.verify(rest));
                        if !verified {
                            return Err(server.strange("it does not know the password either"));
                        }
                        continue;
                    }
                    kind => return Err(unknown(&format!("a login of kind {kind}"))),
                };
                let mut message = Vec::new();
                wire::message(&mut message, b'p', &answer);
                send(server, &mut stream, &message).await?;
            }
            b'E' => {
                let mut answer = Vec::new();
                wire::message(&mut answer, b'E', &content);
                return Err(Refused::Login { message: wire::message_of(&content), answer });
            }
            b'S' | b'K' | b'v' => wire::message(&mut welcome, letter, &content),
            b'N' => {}
            b'Z' => {
                wire::message(&mut welcome, letter, &content);
                return Ok((stream, welcome));
            }
            _ => return Err(server.strange("its answer to a login is none")),
        }
    }
}

fn unknown(what: &str) -> Refused {
    Refused::Unsupported(format!("the server asks for {what}, which the connector does not know"))
}

fn password(login: &Login) -> Result<String, Refused> {
    login.password.read().map(|secret| secret.expose().to_owned()).map_err(Refused::Password)
}

fn terminated(text: &[u8]) -> Vec<u8> {
    [text, b"\0"].concat()
}

/// Returns `md5` and the digest of the digest of password and user, and the salt.
fn md5(user: &str, password: &str, salt: &[u8]) -> String {
    let inner = hex(&Md5::digest(format!("{password}{user}")));
    format!("md5{}", hex(&Md5::digest([inner.as_bytes(), salt].concat())))
}

async fn send(server: &Server, stream: &mut Stream, bytes: &[u8]) -> Result<(), Refused> {
    let said = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    said.await.map_err(|error| server.lost(error))
}

async fn read_request(server: &Server, stream: &mut Stream) -> Result<(u8, Vec<u8>), Refused> {
    let heard = async {
        let letter = stream.read_u8().await?;
        let length = stream.read_u32().await? as usize;
        if !(4..MESSAGE_LIMIT).contains(&length) {
            return Ok(None);
        }
        let mut content = vec![0; length - 4];
        stream.read_exact(&mut content).await?;
        Ok(Some((letter, content)))
    };
    match heard.await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(server.strange("a message of an impossible length")),
        Err(error) => Err(server.lost(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn md5_matches_the_servers_salted_hash() {
        // select 'md5' || md5('md5pass' ...): computed with PostgreSQL's md5()
        let digest = md5("visitor", "a password", &[1, 2, 3, 4]);
        assert!(digest.starts_with("md5") && digest.len() == 35);
        assert_ne!(digest, md5("visitor", "a password", &[1, 2, 3, 5]));
    }
}
