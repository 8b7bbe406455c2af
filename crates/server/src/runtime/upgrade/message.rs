//! The messages between a server and its successor: lines of JSON, and sockets with the first one.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The version of this protocol. A successor with another one fails with an error.
pub(super) const VERSION: u32 = 1;
/// The most sockets of one message.
pub(super) const MOST: usize = 128;
/// The longest message in bytes.
pub(super) const LONGEST: usize = 64 << 10;

/// The first line of the running server. The sockets go along with it, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Offered {
    pub version: u32,
    pub pid: u32,
    /// A service manager has passed them: `http.listen` is ignored.
    pub activated: bool,
    pub sockets: Vec<Described>,
    /// The number of workers that the load needed.
    #[serde(default)]
    pub workers: Option<usize>,
    /// The same by application, the one at PATH among them.
    #[serde(default)]
    pub workers_of: BTreeMap<String, usize>,
    /// The model by application.
    #[serde(default)]
    pub models_of: BTreeMap<String, String>,
}

/// A socket of the offer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Described {
    pub role: Role,
    /// The server removes the file of this unix socket.
    pub takes_file_away: bool,
    /// A service manager has passed it.
    #[serde(default)]
    pub passed: bool,
    /// The processes whose QUIC packets the next socket, a relay, takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<u32>,
}

impl Described {
    /// Describes a socket of this purpose.
    pub(super) fn new(role: Role) -> Self {
        Self { role, takes_file_away: false, passed: false, processes: Vec::new() }
    }
}

/// The purpose of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// The HTTP front.
    Http,
    /// The admin address.
    Admin,
    /// The HTTP front's UDP socket for HTTP/3. Its relay follows.
    Quic,
    /// Takes packets of connections that the UDP socket before it has in the running server.
    Relay,
}

/// The only line of the successor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SuccessorMessage {
    /// The successor is ready to answer requests.
    Ready { version: String },
    /// The successor gave up.
    Failed(Failure),
}

/// The running server's answer to that.
pub(super) const GO: &[u8] = b"go\n";

/// Returns one value as a line of JSON.
pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("it has only plain types");
    line.push(b'\n');
    line
}

/// Sends a line with sockets. It fits into an empty socket's buffer: nothing is waited for.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    line: &[u8],
    sockets: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::other("too many sockets for one message"));
    }
    let sent = sendmsg(socket, &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent < line.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
}

/// Receives a line and the sockets that came with it.
pub(super) fn receive(mut socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut line = vec![0; LONGEST];
    let mut buffers = [IoSliceMut::new(&mut line)];
    let received =
        recvmsg(socket.as_fd(), &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    line.truncate(received);
    let mut sockets = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            sockets.extend(descriptors);
        }
    }
    while !line.ends_with(b"\n") {
        let mut more = [0; 4096];
        let read = socket.read(&mut more)?;
        if read == 0 || line.len() > LONGEST {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(more.get(..read).unwrap_or_default());
    }
    Ok((line, sockets))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_arrive_with_their_line_and_are_the_same() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sockets =
            [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let borrowed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        send(ours.as_fd(), b"two\n", &borrowed).unwrap();
        let (line, received) = receive(&theirs).unwrap();
        assert_eq!(line, b"two\n");
        let address = |socket: OwnedFd| TcpListener::from(socket).local_addr().unwrap();
        let received: Vec<_> = received.into_iter().map(address).collect();
        assert_eq!(received, sockets.map(|socket| socket.local_addr().unwrap()));
    }

    #[test]
    fn half_a_line_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(ours.as_fd(), b"half", &[]).unwrap();
        drop(ours);
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
