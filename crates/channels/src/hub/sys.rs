#![expect(
    unsafe_code,
    reason = "the allocator and a socket's TCP statistics have no safe interface"
)]
//! System calls that need the C library.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Times of a TCP connection, from `TCP_INFO` (tcp(7)).
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpTimes {
    /// Time since data was last sent.
    pub(super) since_sent: Duration,
    /// Time since an acknowledgement was last received.
    pub(super) since_acknowledged: Duration,
}

/// Returns the times of a TCP connection; `None` for any other socket.
pub(super) fn tcp_times(socket: BorrowedFd<'_>) -> Option<TcpTimes> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the descriptor is borrowed, so it is open; getsockopt(2) writes at most `length` bytes, which is the size of `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: all fields are integers, for which the zeroes of the beginning are valid, too.
    let info = unsafe { info.assume_init() };
    Some(TcpTimes {
        since_sent: Duration::from_millis(info.tcpi_last_data_sent.into()),
        since_acknowledged: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    })
}

/// Returns free memory that the allocator still holds to the system. Takes a millisecond for each few megabytes.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) locks what it reads, and does not touch memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
