//! What `std` cannot say safely: which descriptor a started program finds at number 3, what ends it, how much a peer has read.
#![expect(unsafe_code, reason = "pre_exec runs between fork and exec; one ioctl has no safe name")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

/// Has `command` start its program with `descriptor` as number 3, the place docs/internals/frames.md names.
pub(crate) fn give_descriptor_3(command: &mut Command, descriptor: OwnedFd) {
    let hook = move || {
        let raw = descriptor.as_raw_fd();
        if raw == 3 {
            // dup2 onto itself would keep FD_CLOEXEC
            rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty())?;
            return Ok(());
        }
        // SAFETY: the child has one thread and is about to exec; nothing else in it uses number 3.
        let mut third =
            std::mem::ManuallyDrop::new(unsafe { std::os::fd::FromRawFd::from_raw_fd(3) });
        rustix::io::dup2(&descriptor, &mut third)?;
        Ok(())
    };
    // SAFETY: the hook only makes system calls, which are async-signal-safe; it neither allocates nor locks.
    unsafe {
        command.pre_exec(hook);
    }
}

/// Has the program that `command` starts get `signal` when the *thread* that starts it ends (prctl(2), `PR_SET_PDEATHSIG`).
pub(crate) fn end_with_thread(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // It may have ended before it could be asked about.
        if rustix::process::getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: the hook only makes system calls, which are async-signal-safe; it neither allocates nor locks.
    unsafe {
        command.pre_exec(hook);
    }
}

/// Has the runtime watch a descriptor for being readable.
pub(crate) fn watch(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names the same open file until it is dropped, which is when the registration ends.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}

/// What was written to a Unix socket and not yet read by its peer: 0, or more than the bytes themselves (unix(7), `SIOCOUTQ`).
pub(crate) fn unread(socket: impl AsFd) -> rustix::io::Result<i32> {
    const SIOCOUTQ: Opcode = 0x5411;
    // SAFETY: the kernel stores an int for this request (net/unix/af_unix.c, `unix_ioctl`), and changes nothing.
    let getter = unsafe { Getter::<SIOCOUTQ, i32>::new() };
    // SAFETY: as above.
    unsafe { ioctl(socket, getter) }
}
