//! What `std` cannot say safely: which descriptor a started program finds at number 3, as whom it runs, what ends it, what it may not do, how
//! much a peer has read.
#![expect(
    unsafe_code,
    reason = "pre_exec runs between fork and exec; some system calls have no safe name"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, fchmod, fstat};
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::process::{Gid, Signal, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

use crate::identity::Identity;
use crate::sandbox::Confinement;

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

/// Whoever holds a pipe of ours as its output may open it again, as `/dev/stderr` or below /proc: others than the process do not get there.
pub(crate) const PIPE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::WGRP).union(Mode::WOTH);

/// Has the program that `command` starts run as somebody else, without any privilege. Called before [`end_with_thread`], whose signal the
/// kernel forgets when a process changes its user (`commit_creds()`, kernel/cred.c), and before [`confine`].
pub(crate) fn become_other(command: &mut std::process::Command, identity: &Identity) {
    let groups: Vec<Gid> = identity.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    let hook = move || {
        for number in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // SAFETY: the child's output, which stays open; what is not open is refused by the calls.
            let output = unsafe { BorrowedFd::borrow_raw(number) };
            let is_pipe = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_fifo();
            if fstat(output).is_ok_and(is_pipe) {
                // One that the server was given may be somebody else's: then it cannot be opened again, and is written to all the same.
                let _theirs = fchmod(output, PIPE_MODE).is_err();
            }
        }
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        // From root to another user all are lost, from one user to another none.
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )?;
        set_no_new_privs(true)?;
        Ok(())
    };
    // SAFETY: the hook only makes system calls, which are async-signal-safe; it neither allocates nor locks.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, hook);
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

/// Has USR1 end nothing of the program that `command` starts: it asks the server for something, and may be sent to its whole control group.
pub(crate) fn ignore_usr1(command: &mut Command) {
    // SAFETY: signal(2) is async-signal-safe, and no handler is installed.
    let hook = || match unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: the hook only makes that system call; it neither allocates nor locks.
    unsafe {
        command.pre_exec(hook);
    }
}

/// Has the program that `command` starts run confined, and all that it starts. Called after everything else that is done before exec.
pub(crate) fn confine(command: &mut Command, confinement: Arc<Confinement>) {
    let hook = move || {
        // Both of the following ask for it, where a process is not root.
        set_no_new_privs(true)?;
        if let Some(rules) = &confinement.rules {
            // SAFETY: landlock_restrict_self(2) takes a descriptor and flags, and looks at no memory of ours.
            let done =
                unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
            if done != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        // It only makes system calls, too; its error holds a number.
        seccompiler::apply_filter(&confinement.filter)
            .map_err(|_refused| std::io::Error::last_os_error())
    };
    // SAFETY: the hook only makes system calls, which are async-signal-safe; it neither allocates nor locks.
    unsafe {
        command.pre_exec(hook);
    }
}

/// The version of Landlock that the kernel has; 0: none (`landlock_create_ruleset(2)`). Anything else that it says is an error: a filter
/// that refuses the call (`EPERM`) does not mean that there is none.
pub(crate) fn landlock_version() -> std::io::Result<i64> {
    const VERSION: u32 = 1; // LANDLOCK_CREATE_RULESET_VERSION
    // SAFETY: with this flag the call takes no memory, and only returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    if version >= 0 {
        return Ok(version);
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => Ok(0),
        _ => Err(error),
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
