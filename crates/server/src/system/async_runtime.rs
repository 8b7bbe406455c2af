//! The async runtime, and a trial of the system calls whose refusal would end in a panic, or in a wait without end.
//!
//! Invariants
//! - A call that a seccomp profile or an old kernel refuses is named, with what to do.
//! - The trial changes nothing and leaves no descriptor open.

use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroUsize;

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, getsockname, listen, recv, recvmsg, send, sendmsg, shutdown,
    socket_with, socketpair,
};
use rustix::process::{WaitOptions, wait};
use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;
use crate::system::sys;

/// The hint for a system call that is refused.
pub(crate) const ALLOW_CALLS: &str = "allow the calls that Hearth needs in the container's seccomp profile: packaging/seccomp.json has them all";

/// Starts a runtime with this number of threads.
pub(crate) fn start(threads: NonZeroUsize) -> Result<Runtime, Failure> {
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

/// Makes each call once, as the runtime and the connections to PHP do. An error that is no refusal, such as a limit, is
/// left to the part that needs the call: it says more about it.
pub(crate) fn try_calls() -> Result<(), Failure> {
    match refused_call() {
        Err((call, error)) if is_refusal(&error) => {
            let message = format!("the system call {call} is refused");
            Err(Failure::caused_by(message, &error, ALLOW_CALLS))
        }
        _ => Ok(()),
    }
}

/// Returns whether this is the error of a seccomp profile, or of a kernel without the call.
fn is_refusal(error: &std::io::Error) -> bool {
    let refusals = [Errno::PERM, Errno::NOSYS, Errno::ACCESS];
    refusals.iter().any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

/// Returns the first call that is refused, and its error.
fn refused_call() -> Result<(), (&'static str, std::io::Error)> {
    let refused = |call| move |error: Errno| (call, error.into());
    let unix = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
    let (one, other) = socketpair(unix.0, unix.1, unix.2, None).map_err(refused("socketpair"))?;
    ioctl_fionbio(&one, true).map_err(refused("ioctl"))?;
    send(&one, b"1", SendFlags::NOSIGNAL).map_err(refused("sendto"))?;
    recv(&other, &mut [0_u8; 1], RecvFlags::empty()).map_err(refused("recvfrom"))?;
    sendmsg(&one, &[IoSlice::new(b"1")], &mut <_>::default(), SendFlags::NOSIGNAL)
        .map_err(refused("sendmsg"))?;
    let mut byte = [0_u8; 1];
    let into = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(&other, into, &mut <_>::default(), RecvFlags::empty()).map_err(refused("recvmsg"))?;
    shutdown(&one, Shutdown::Write).map_err(refused("shutdown"))?;

    // An address that the kernel chooses, outside of the file system.
    let listener = socket_with(unix.0, unix.1, unix.2, None).map_err(refused("socket"))?;
    bind(&listener, &SocketAddrUnix::new_unnamed()).map_err(refused("bind"))?;
    listen(&listener, 1).map_err(refused("listen"))?;
    let address = getsockname(&listener).map_err(refused("getsockname"))?;
    let client = socket_with(unix.0, unix.1, unix.2, None).map_err(refused("socket"))?;
    connect(&client, &address).map_err(refused("connect"))?;
    accept_with(&listener, SocketFlags::CLOEXEC).map_err(refused("accept4"))?;

    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused("epoll_create1"))?;
    let data = epoll::EventData::new_u64(0);
    epoll::add(&poll, &other, data, epoll::EventFlags::IN).map_err(refused("epoll_ctl"))?;
    sys::poll_once(&poll).map_err(|error| (sys::EPOLL_WAIT, error))?;
    // Without memfd_create another model takes the place of `snapshot`.
    if let Ok(memory) = memfd_create("trial", MemfdFlags::CLOEXEC) {
        ftruncate(&memory, 1).map_err(refused("ftruncate"))?;
    }
    match wait(WaitOptions::NOHANG) {
        Err(error) if error != Errno::CHILD => Err(refused("wait4")(error)),
        _ => Ok(()),
    }
}
