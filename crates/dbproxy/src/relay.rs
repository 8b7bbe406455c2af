//! Relays bytes between a client and its session in both directions, until one of them is gone.

use std::borrow::Cow;
use std::future::pending;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::packets::{Packets, Tail};
use crate::redis::{LoginLost, Relogin};
use crate::server::Stream;

/// Buffer size of each direction.
const BUFFER: usize = 16 * 1024;

/// Which side ended the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client has sent its closing command, or is gone.
    Client,
    /// The server has closed the connection.
    Server,
}

/// Relays bytes, through `relogin` if there is one. Data that the client has not read when it disconnects are lost.
///
/// # Cancel safety
/// Not cancel safe: bytes that were read and not yet written are lost, so the session cannot be reused.
pub(crate) async fn relay(
    client: &mut UnixStream,
    session: &mut Stream,
    packets: &mut Packets,
    tail: &mut Tail,
    relogin: Option<&mut Relogin>,
) -> Ended {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = tokio::io::split(session);
    let (mut relogin_up, mut relogin_down) = match relogin {
        Some(Relogin { up, down, due }) => (Some((up, &*due)), Some((down, &*due))),
        None => (None, None),
    };
    let upwards = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            let Ok(count @ 1..) = from_client.read(&mut buffer).await else { return Ended::Client };
            let bytes = match &mut relogin_up {
                Some((up, due)) => up.follow(&buffer[..count], due),
                None => Cow::Borrowed(&buffer[..count]),
            };
            let onwards = packets.follow(&bytes);
            let written = async {
                to_server.write_all(&bytes[..onwards]).await?;
                to_server.flush().await
            };
            if written.await.is_err() {
                // What the server has sent before closing is still on its way to the client.
                return pending().await;
            }
            if onwards < bytes.len() {
                // Servers close after the closing command. The client's socket may stay open much longer, because
                // programs started by PHP inherit it.
                return Ended::Client;
            }
        }
    };
    let downwards = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            let Ok(count @ 1..) = from_server.read(&mut buffer).await else { return Ended::Server };
            let bytes = match &mut relogin_down {
                Some((down, due)) => match down.follow(&buffer[..count], due) {
                    Ok(bytes) => bytes,
                    // A session without a login cannot be used.
                    Err(LoginLost) => return Ended::Server,
                },
                None => Cow::Borrowed(&buffer[..count]),
            };
            tail.follow(&bytes);
            if to_client.write_all(&bytes).await.is_err() {
                return Ended::Client;
            }
        }
    };
    tokio::select! {
        ended = upwards => ended,
        ended = downwards => ended,
    }
}
