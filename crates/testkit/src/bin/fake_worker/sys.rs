//! Unsafe calls: ownership of descriptor 3.
#![expect(
    unsafe_code,
    reason = "descriptor 3 is given by the parent, see docs/internals/frames.md"
)]

use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

/// The server's socket.
pub(crate) fn control_socket() -> UnixStream {
    // SAFETY: the server starts this program with a socket at number 3; nothing else here uses it.
    unsafe { UnixStream::from_raw_fd(3) }
}

/// Closes a connection for all processes that share it.
pub(crate) fn cut(socket: &UnixStream) {
    if socket.shutdown(std::net::Shutdown::Both).is_err() {
        eprintln!("fake-worker: socket was closed already");
    }
}
