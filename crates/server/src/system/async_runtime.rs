//! The async runtime. Before it starts, the system calls are tried whose refusal would end it in a panic, or let it wait forever.
//!
//! Invariants
//! - A call that a seccomp profile or an old kernel refuses is named, with what to do.
//! - The trial changes nothing and leaves no descriptor open.

use std::num::NonZeroUsize;

use rustix::event::epoll;
use rustix::io::ioctl_fionbio;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::system::sys;

/// Starts a runtime with this number of threads.
pub(crate) fn start(threads: NonZeroUsize) -> Result<Runtime, Failure> {
    try_calls().map_err(|(call, error)| {
        Failure::caused_by(
            format!("the system call `{call}` is refused"),
            &error,
            "allow it in the container's seccomp profile (packaging/seccomp.json has every call that Hearth needs), or use a newer kernel",
        )
    })?;
    let mut builder = match threads.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if threads.get() > 1 {
        builder.worker_threads(threads.get());
    }
    builder.enable_all().build().map_err(|error| {
        Failure::caused_by(
            "cannot start the runtime",
            &error,
            "lower `server.threads`, or raise the limits of processes and descriptors",
        )
    })
}

/// Makes each call once as tokio and the connections to PHP do. Returns the one that is refused.
fn try_calls() -> Result<(), (&'static str, std::io::Error)> {
    let refused = |call| move |error: rustix::io::Errno| (call, error.into());
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(refused("socketpair"))?;
    ioctl_fionbio(&one, true).map_err(refused("ioctl"))?;
    send(&one, b"1", SendFlags::NOSIGNAL).map_err(refused("sendto"))?;
    recv(&other, &mut [0_u8; 1], RecvFlags::empty()).map_err(refused("recvfrom"))?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused("epoll_create1"))?;
    let data = epoll::EventData::new_u64(0);
    epoll::add(&poll, &other, data, epoll::EventFlags::IN).map_err(refused("epoll_ctl"))?;
    sys::poll_once(&poll).map_err(|error| (sys::EPOLL_WAIT, error))
}
