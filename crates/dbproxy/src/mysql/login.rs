//! The login, as a client of the server.

use tokio::io::AsyncWriteExt;

use super::scramble;
use super::wire::{self, Greeting, Hello, capability as can};
use crate::server::{Server, Stream};
use crate::sessions::hang_up;
use crate::{Login, Refused, Verify};

/// A session with the server's greeting and the result of the login.
#[derive(Debug)]
pub(crate) struct Opened {
    pub stream: Stream,
    pub greeting: Greeting,
    /// Content of the OK packet.
    pub ok: Vec<u8>,
}

/// Returns the server's greeting. This takes a whole login, because the server counts aborted ones against our
/// address (`max_connect_errors`).
pub(crate) async fn learn(server: &Server, login: &Login) -> Result<Greeting, Refused> {
    let opened = open(server, login, &Hello::for_probe(login)).await?;
    // The connection is not needed any more.
    hang_up(opened.stream, super::GOODBYE).await;
    Ok(opened.greeting)
}

/// Opens a session for a client with these capabilities.
pub(crate) async fn open(server: &Server, login: &Login, hello: &Hello) -> Result<Opened, Refused> {
    let mut clear = server.connect().await?;
    let (_, content) = read_request(server, &mut clear).await?;
    refused(&content)?;
    let greeting = Greeting::parse(&content)
        .ok_or_else(|| server.strange("its greeting is not version 10"))?;
    if greeting.capabilities & can::PROTOCOL_41 == 0 {
        return Err(server.strange("it is older than version 4.1"));
    }
    let tls = server.verify != Verify::Disable;
    let response = hello.for_server(greeting.capabilities, tls);
    let mut number = 1;
    if tls {
        if greeting.capabilities & can::SSL == 0 {
            return Err(server.no_tls());
        }
        clear
            .write_all(&wire::packet(number, &response))
            .await
            .map_err(|error| server.lost(error))?;
        number += 1;
    }
    let mut stream = server.encrypt(clear).await?;
    let password = login.password.read().map_err(Refused::Password)?;
    let password = password.expose().as_bytes();

    let mut plugin = greeting.plugin.clone();
    let mut salt = greeting.salt.clone();
    // For an unknown plugin the server switches to a known one.
    let first = scramble::answer(&plugin, password, &salt, tls).unwrap_or_default();
    let mut content = response;
    content.extend(login.user.as_bytes());
    content.push(0);
    content.push(u8::try_from(first.len()).map_err(|_long| too_long())?);
    content.extend(first);
    if let Some(database) = &hello.database {
        content.extend(database);
        content.push(0);
    }
    if greeting.capabilities & can::PLUGIN_AUTH != 0 {
        content.extend(&plugin);
        content.push(0);
    }
    send(server, &mut stream, number, &content).await?;

    loop {
        let (number, content) = read_request(server, &mut stream).await?;
        refused(&content)?;
        let answer = match content.split_first() {
            Some((0x00, _)) => return Ok(Opened { stream, greeting, ok: content }),
            // AuthSwitchRequest
            Some((0xfe, rest)) => {
                let (name, data) = match rest.iter().position(|byte| *byte == 0) {
                    Some(end) => (&rest[..end], &rest[end + 1..]),
                    None => (&b"mysql_old_password"[..], rest),
                };
                plugin = name.to_vec();
                salt = data.strip_suffix(&[0]).unwrap_or(data).to_vec();
                scramble::answer(&plugin, password, &salt, tls).ok_or_else(|| {
                    let name = String::from_utf8_lossy(&plugin).into_owned();
                    let hint = if tls { "" } else { " without TLS" };
                    Refused::Unsupported(format!("the server asks for a login by {name}, which the connector does not know{hint}"))
                })?
            }
            // AuthMoreData of caching_sha2_password: the server has cached the password (3), or not (4)
            Some((0x01, [3])) => continue,
            Some((0x01, [4])) if tls => [password, b"\0"].concat(),
            Some((0x01, [4])) => {
                return Err(Refused::Unsupported(
                    "the server requests the password itself, which is sent over TLS only"
                        .to_owned(),
                ));
            }
            _ => return Err(server.strange("its answer to a login is none")),
        };
        send(server, &mut stream, number.wrapping_add(1), &answer).await?;
    }
}

fn too_long() -> Refused {
    Refused::Unsupported("the password is longer than a login can say".to_owned())
}

/// Returns the error if the packet is one.
fn refused(content: &[u8]) -> Result<(), Refused> {
    if content.first() == Some(&0xff) {
        return Err(Refused::Login {
            message: wire::message_of(content),
            answer: content.to_vec(),
        });
    }
    Ok(())
}

async fn send(
    server: &Server,
    stream: &mut Stream,
    number: u8,
    content: &[u8],
) -> Result<(), Refused> {
    let said = async {
        stream.write_all(&wire::packet(number, content)).await?;
        stream.flush().await
    };
    said.await.map_err(|error| server.lost(error))
}

async fn read_request(
    server: &Server,
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
) -> Result<(u8, Vec<u8>), Refused> {
    match wire::read(stream).await {
        Ok(Some(packet)) => Ok(packet),
        Ok(None) => Err(server.strange("a packet of an impossible length")),
        Err(error) => Err(server.lost(error)),
    }
}
