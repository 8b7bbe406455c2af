//! System calls that `std` has no safe function for: passed and inherited descriptors, capabilities of a successor, the handler of USR1, variables that
//! children must not see, one look for events, and memory that the allocator holds.
#![expect(
    unsafe_code,
    reason = "numbers become descriptors; the environment is changed before there are threads; the allocator is asked by a function of C"
)]

use std::os::fd::{AsRawFd as _, FromRawFd, OwnedFd, RawFd};

use rustix::thread::{
    CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use tokio::process::Command;

/// Takes descriptors that the starting program says to have passed. Those that are not open are left out.
///
/// To be called once, before anything is opened: a number that was not passed would belong to another part of this program.
pub(crate) fn passed(numbers: impl Iterator<Item = RawFd>) -> Vec<(RawFd, OwnedFd)> {
    let is_open = |number: &RawFd| {
        // SAFETY: the number is only looked at, by a call that refuses what is not open.
        let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(*number) };
        rustix::io::fcntl_getfd(borrowed).is_ok()
    };
    let take = |number: RawFd| {
        // SAFETY: sd_listen_fds(3): the caller of this program has opened it for us, and nothing here has taken it before (once, at the
        // start).
        (number, unsafe { OwnedFd::from_raw_fd(number) })
    };
    numbers.filter(is_open).map(take).collect()
}

/// Keeps descriptors that this program was started with, above stderr, from the programs that it starts: PHP code could use them.
pub(crate) fn keep_inherited_from_children() -> std::io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if number > libc::STDERR_FILENO {
            // SAFETY: the number was just listed; the call refuses one that is not open.
            let inherited = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// Lets the program that `command` starts keep the capabilities of this process, which is not root: so a successor can run PHP as another
/// user, too (capabilities(7), "Ambient").
pub(crate) fn hand_capabilities_on(command: &mut Command) {
    let hook = || {
        let have = capabilities(None)?;
        let kept = have.permitted;
        set_capabilities(None, CapabilitySets { inheritable: kept, ..have })?;
        for capability in kept.iter() {
            configure_capability_in_ambient_set(capability, true)?;
        }
        Ok(())
    };
    // SAFETY: the hook only makes system calls, which are async-signal-safe; it neither allocates nor locks.
    unsafe {
        command.pre_exec(hook);
    }
}

/// Makes USR1 terminate nothing before it is handled. It installs a handler, which started programs do not inherit, as they would inherit
/// an ignored signal.
#[expect(clippy::fn_to_numeric_cast_any, reason = "signal(2) takes its handler as a number")]
pub(crate) fn overhear_usr1() {
    extern "C" fn overheard(_number: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = overheard;
    // SAFETY: the handler does nothing, which is async-signal-safe at any moment; a later handler takes its place.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
    }
}

/// Takes variables out of the environment that children inherit. To be called before there is a second thread.
#[expect(clippy::disallowed_methods, reason = "no other thread runs yet")]
pub(crate) fn forget(variables: &[&str]) {
    for variable in variables {
        // SAFETY: `main` calls this before it starts the runtime, logging or anything else with a thread.
        unsafe { std::env::remove_var(variable) };
    }
}

/// The system call by which the C library waits for events.
pub(crate) const EPOLL_WAIT: &str =
    if cfg!(target_arch = "x86_64") { "epoll_wait" } else { "epoll_pwait" };

/// Asks once for events, as mio does, and waits for none.
pub(crate) fn poll_once(poll: &OwnedFd) -> std::io::Result<()> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: epoll_wait(2) writes at most the one event that it is given room for.
    let events = unsafe { libc::epoll_wait(poll.as_raw_fd(), &raw mut event, 1, 0) };
    if events < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes this program's code out of the process's resident memory, and returns the address range. What runs later is mapped again from
/// the page cache; what only the start has run, which is most of it, is not.
#[expect(clippy::fn_to_numeric_cast_any, reason = "an address inside of the code")]
pub(crate) fn give_back_code() -> Option<std::ops::Range<usize>> {
    let here = (give_back_code as *const ()).addr();
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut code = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        rest.starts_with("r-xp ").then_some(number(start)?..number(end)?)
    });
    let code = code.find(|range| range.contains(&here))?;
    // SAFETY: no one may write to these private pages of a file, so all of them are the file's, and madvise(2) changes no byte of them.
    let done =
        unsafe { libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED) };
    (done == 0).then_some(code)
}

/// Gives memory that is free but still held by the allocator back to the system. Takes a millisecond for each few megabytes.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) locks what it looks at, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_is_given_back_runs_on() {
        let code = give_back_code().expect("this program's code has a mapping");
        assert!(code.len() >= 1 << 20, "{code:x?}");
        assert_eq!(give_back_code(), Some(code));
    }
}
