//! System calls that `std` does not offer safely: descriptor 3, and memory shared with the server.
#![expect(
    unsafe_code,
    reason = "descriptor 3 and the shared counters come from the parent, see docs/internals/frames.md"
)]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;

/// Returns the server's socket.
pub(crate) fn control_socket() -> UnixStream {
    // SAFETY: the server starts this program with a socket as descriptor 3; no other code here uses it.
    unsafe { UnixStream::from_raw_fd(3) }
}

/// Closes a connection for all processes that share it.
pub(crate) fn cut(socket: &UnixStream) {
    if socket.shutdown(std::net::Shutdown::Both).is_err() {
        eprintln!("fake-worker: socket was closed already");
    }
}

/// Number of words before the records of database connections.
pub(crate) const WORDS: usize = 40;

/// Maps the first words of the shared counters, until the process ends.
pub(crate) fn shared_words(counters: &File) -> &'static [AtomicU32; WORDS] {
    // SAFETY: the kernel chooses a free address; no other code uses the mapping.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<[AtomicU32; WORDS]>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            counters.as_raw_fd(),
            0,
        )
    };
    assert!(start != libc::MAP_FAILED, "the shared counters can be mapped");
    // SAFETY: the mapping is aligned to a page, has that many words, and is never unmapped.
    unsafe { &*start.cast() }
}
