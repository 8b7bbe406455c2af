//! Files in memory (`memfd_create(2)`).

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

/// Creates a file in memory that cannot be executed: with `vm.memfd_noexec=2` Linux 6.3 to 6.5 refuses any call without that flag, and later ones set it.
/// The file can be sealed.
pub(crate) fn memory_file(name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag.
        Err(Errno::INVAL) => memfd_create(name, flags),
        file => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_not_executable_and_can_be_sealed() {
        use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};
        let file = memory_file("test").unwrap();
        // Where the kernel does not know the seal, the file is as it always was.
        if fcntl_get_seals(&file).unwrap().contains(SealFlags::EXEC) {
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_mode & 0o111, 0);
        }
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    }
}
