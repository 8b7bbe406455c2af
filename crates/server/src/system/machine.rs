//! The machine that this process runs on.

use std::num::NonZeroUsize;

/// The processors that this process may use.
pub(crate) fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The running kernel's release.
pub(crate) fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_unreadable| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns whether a seccomp profile decides which system calls this process may make (proc(5), "Seccomp").
pub(crate) fn filters_calls() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|text| text.lines().any(|line| line == "Seccomp:\t2"))
}
