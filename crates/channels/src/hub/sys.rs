#![expect(unsafe_code, reason = "the allocator is asked by a function of C")]
//! What only the C library can do.

/// Gives memory that is free but still held by the allocator back to the system. Takes a millisecond for each few megabytes.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) locks what it looks at, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
