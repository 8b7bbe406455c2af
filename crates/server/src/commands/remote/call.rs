//! One call to a control socket.
//!
//! Invariants
//! - A server costs no more than the time and the bytes that the caller allows.
//! - Only a process of the folder's owner is called.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http1::{parse_response, put_field, put_request_line};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};
use rustix::net::{connect, socket_with};
use tokio::time::Instant;

/// The control socket of a server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) socket: PathBuf,
    /// The user that has to listen there: the owner of the folder. None: there is no folder.
    pub(crate) owner: Option<u32>,
}

/// The limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The time limit; `None` is no limit.
    pub(crate) until: Option<Instant>,
    /// The largest answer in bytes.
    pub(crate) bytes: usize,
}

impl Bounds {
    /// Returns the time that is left; `None` is no limit.
    fn left(self) -> io::Result<Option<Duration>> {
        let Some(until) = self.until else { return Ok(None) };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Place {
    /// A connection, and the listening process.
    pub(crate) fn connect(&self, bounds: Bounds) -> io::Result<(UnixStream, UCred)> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Of connect(2), too, which waits while the queue is full.
        set_socket_timeout(&socket, Timeout::Send, bounds.left()?)?;
        connect(&socket, &SocketAddrUnix::new(&self.socket)?)?;
        // The credentials are those at listen(2) (unix(7)). A link could lead to another user's socket.
        let peer = socket_peercred(&socket)?;
        if self.owner.is_some_and(|owner| owner != peer.uid.as_raw()) {
            return Err(io::Error::other("another user listens there than the folder's owner"));
        }
        Ok((UnixStream::from(socket), peer))
    }

    /// The status and the body.
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        bounds: Bounds,
    ) -> io::Result<(u16, Bytes)> {
        let (mut stream, _) = self.connect(bounds)?;
        // HTTP/1.0: the body ends with the connection.
        let mut head = Vec::new();
        put_request_line(&mut head, method, path, Version::HTTP_10);
        put_field(&mut head, "Host", "hearth");
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head)?;
        let answer = parse_response(&read_all(stream, bounds)?)
            .ok_or_else(|| io::Error::other("the answer is no HTTP, or not whole"))?;
        Ok((answer.head.status.as_u16(), answer.body))
    }
}

fn read_all(mut stream: UnixStream, bounds: Bounds) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        // Set before each read: the limit is for the whole answer.
        stream.set_read_timeout(bounds.left()?)?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(all),
            Ok(read) if all.len() + read <= bounds.bytes => {
                all.extend(part.iter().take(read));
            }
            Ok(_) => return Err(io::Error::other("the answer is too long")),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}
