//! Connections that the hub accepted and that are no WebSockets: it hands them over with what it has read.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use channels::hub::{ForwardedConnection, Stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connect::{Ends, choose};
use crate::application::Application;
use crate::connections::{Client, Open};
use crate::front::Shared;
use crate::websocket::session::Running;

/// How long a socket that another listener accepted waits for a place.
const ROOM: Duration = Duration::from_secs(1);

/// Serves the sockets that the hub hands over, until `drain`; then waits for them to end.
pub(crate) async fn receive<A: Application>(
    mut forwarded_connections: mpsc::Receiver<ForwardedConnection>,
    front: Arc<Shared<A>>,
    drain: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let forwarded = tokio::select! {
            biased;
            () = drain.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            forwarded = forwarded_connections.recv() => forwarded,
        };
        let Some(ForwardedConnection { stream, read, secure }) = forwarded else { break };
        // The limit applies to all connections. This socket is open already, so it only waits until idle ones are
        // closed.
        let slot = front.connections.slot(|| true);
        let Ok(slot) = tokio::time::timeout(ROOM, slot).await else { continue };
        let client = match &stream {
            Stream::Tcp(stream) => stream
                .peer_addr()
                .map_or(Client::UNKNOWN, |peer| Client::at(peer.ip(), front.trusts(peer.ip()))),
            Stream::Unix(_) => Client::UNKNOWN,
        };
        let drain = drain.child_token();
        let Ok(open) = front.connections.open(slot, client, drain.clone()) else { continue };
        let front = Arc::clone(&front);
        connections.spawn(async move {
            let read = BytesMut::from(read.as_slice());
            let outcome = match stream {
                Stream::Tcp(stream) => welcome(&front, stream, read, secure, &open, drain).await,
                Stream::Unix(stream) => match tokio::net::UnixStream::from_std(stream) {
                    Ok(stream) => {
                        let ends = Ends::UNIX;
                        Ok(Box::pin(choose(&front, stream, read, ends, secure, &open, drain)).await)
                    }
                    Err(error) => Err(error),
                },
            };
            match outcome {
                Ok(Some(socket)) => socket.await,
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "socket lost on its way from its event loop"),
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

async fn welcome<A: Application>(
    front: &Arc<Shared<A>>,
    stream: std::net::TcpStream,
    read: BytesMut,
    secure: bool,
    open: &Open,
    drain: CancellationToken,
) -> io::Result<Option<Running>> {
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let trusted = front.trusts(peer.ip());
    let ends = Ends { peer, local, trusted, redirect: false, client: None };
    Ok(Box::pin(choose(front, stream, read, ends, secure, open, drain)).await)
}
