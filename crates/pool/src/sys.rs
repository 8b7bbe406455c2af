//! System calls that `std` does not offer safely. They set descriptor 3 of a started program, its user, its
//! parent-death signal and its restrictions, read a socket's count of unread bytes, set a thread's scheduling policy, and
//! share memory with a worker.
#![expect(
    unsafe_code,
    reason = "pre_exec runs between fork and exec; some system calls have no safe name"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

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

/// Returns this thread's scheduling policy; `None` if the system does not tell it.
pub(crate) fn scheduling_policy() -> Option<libc::c_int> {
    // SAFETY: it takes a number. By its number, because musl's function does nothing.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    libc::c_int::try_from(policy).ok().filter(|policy| *policy >= 0)
}

/// Sets this thread's scheduling policy to one without priorities; returns whether it was set.
pub(crate) fn set_scheduling_policy(policy: libc::c_int) -> bool {
    let none: libc::c_int = 0;
    // SAFETY: the parameter, a struct of one number, outlives the call.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const none) == 0 }
}

/// Starts the program of `command` with `descriptor` as number 3, as docs/internals/frames.md requires.
pub(crate) fn pass_descriptor_3(command: &mut Command, descriptor: OwnedFd) {
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

/// Mode of the pipes that are a process's output. It allows reopening them as `/dev/stderr` or below /proc, which
/// other processes cannot reach.
pub(crate) const PIPE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::WGRP).union(Mode::WOTH);

/// Starts the program of `command` as another user, without any privilege. Must be called before [`end_with_thread`],
/// whose signal the kernel resets when a process changes its user (`commit_creds()`, kernel/cred.c), and before
/// [`confine`].
pub(crate) fn run_as(command: &mut std::process::Command, identity: &Identity) {
    let groups: Vec<Gid> = identity.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    let hook = move || {
        for number in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // SAFETY: the child's output stays open; the calls reject a descriptor that is not open.
            let output = unsafe { BorrowedFd::borrow_raw(number) };
            let is_pipe = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_fifo();
            if fstat(output).is_ok_and(is_pipe) {
                // A pipe inherited by the server may belong to another user: then it cannot be reopened, but can
                // still be written.
                let _theirs = fchmod(output, PIPE_MODE).is_err();
            }
        }
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        // The kernel drops all capabilities when root becomes another user, but none between two other users.
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

/// Sends `signal` to the program of `command` when the *thread* that starts it ends (prctl(2), `PR_SET_PDEATHSIG`).
pub(crate) fn end_with_thread(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have ended before the call.
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

/// Makes the program of `command` ignore SIGUSR1, which is a request to the server and may be sent to its whole
/// control group.
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

/// Starts the program of `command` confined, with all its children. Must be called after all other steps before exec.
pub(crate) fn confine(command: &mut Command, confinement: Arc<Confinement>) {
    let hook = move || {
        // Both of the following require it, unless a process is root.
        set_no_new_privs(true)?;
        if let Some(rules) = &confinement.rules {
            // SAFETY: landlock_restrict_self(2) takes a descriptor and flags, and accesses no memory.
            let done =
                unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
            if done != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        // It, too, only makes system calls; its error holds a number.
        seccompiler::apply_filter(&confinement.filter)
            .map_err(|_refused| std::io::Error::last_os_error())
    };
    // SAFETY: the hook only makes system calls, which are async-signal-safe; it neither allocates nor locks.
    unsafe {
        command.pre_exec(hook);
    }
}

/// Returns the kernel's version of Landlock; 0 for none (`landlock_create_ruleset(2)`). All other results are errors:
/// a filter that blocks the call (`EPERM`) does not mean that there is none.
pub(crate) fn landlock_version() -> std::io::Result<i64> {
    const VERSION: u32 = 1; // LANDLOCK_CREATE_RULESET_VERSION
    // SAFETY: with this flag the call accesses no memory and only returns a number.
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

/// Registers a descriptor with the runtime for readability.
pub(crate) fn watch(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names the same open file until it is dropped, which is when the registration ends.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}

/// Returns what was written to a Unix socket and not yet read by its peer: 0, or more than the bytes themselves
/// (unix(7), `SIOCOUTQ`).
pub(crate) fn unread(socket: impl AsFd) -> rustix::io::Result<i32> {
    const SIOCOUTQ: Opcode = 0x5411;
    // SAFETY: the kernel stores an int for this request (net/unix/af_unix.c, `unix_ioctl`), and changes nothing.
    let getter = unsafe { Getter::<SIOCOUTQ, i32>::new() };
    // SAFETY: as above.
    unsafe { ioctl(socket, getter) }
}

/// The first words of a file, mapped into this process and shared with a worker.
#[derive(Debug)]
pub(crate) struct MappedWords {
    start: NonNull<AtomicU32>,
}

// SAFETY: the mapping belongs to no thread, and its words are accessed atomically only.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Number of words. They are in the file's first page.
    pub(crate) const NUMBER: usize = 40;
    const BYTES: usize = Self::NUMBER * size_of::<AtomicU32>();

    /// Maps the first words of `file`, which has at least that many and never becomes shorter.
    pub(crate) fn of(file: impl AsFd) -> std::io::Result<Self> {
        // SAFETY: the kernel chooses a free address; no other code uses the mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start })
    }

    /// Returns one word.
    ///
    /// # Panics
    /// There is no word of that number.
    pub(crate) fn word(&self, number: usize) -> &AtomicU32 {
        assert!(number < Self::NUMBER, "a word of the mapping");
        // SAFETY: the mapping has that word.
        let word = unsafe { self.start.add(number) };
        // SAFETY: the mapping is aligned to a page and lives as long as `self`.
        unsafe { word.as_ref() }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference outlives `self`.
        let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), Self::BYTES) };
        debug_assert_eq!(unmapped, 0, "a mapping of our own");
    }
}
