//! The one thing `std` cannot say safely: which descriptor a started program finds at number 3.
#![expect(unsafe_code, reason = "pre_exec runs between fork and exec")]

use std::os::fd::{AsRawFd, OwnedFd};

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
