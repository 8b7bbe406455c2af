//! Restrictions of PHP's processes that the kernel enforces (seccomp(2), landlock(7)).
//!
//! Invariants
//! - Everything that could fail is done before a process is forked; between fork and exec there are only system
//!   calls.
//! - A missing kernel feature is an error if paths were configured, and reported by [`Sandbox::missing`] otherwise:
//!   never silently less.
//! - A process keeps the sandbox for life, and so does everything that it starts.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::options::Options;
use crate::sys::landlock_version;

/// The access that PHP keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Files and folders that PHP may read, besides the system's programs and settings, the application, and the files
    /// it may write. `None` allows all.
    pub readable: Option<Vec<PathBuf>>,
    /// Files and folders that it may write, besides the server's folder for it. `None` allows all that its user may.
    pub writable: Option<Vec<PathBuf>>,
    /// The server's own files that PHP reads, in addition to the configured paths. One that does not exist when PHP
    /// starts cannot be read later either.
    pub own_readable: Vec<PathBuf>,
    /// The server's own files that PHP also writes.
    pub own_writable: Vec<PathBuf>,
}

/// Reasons why a sandbox cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// Paths were configured, and the kernel cannot enforce them.
    #[error(
        "this kernel has no Landlock (Linux 5.13, enabled at boot), which holds PHP to the paths that it may use"
    )]
    NoLandlock,
    /// The kernel's support is unknown, because a filter blocks the call.
    #[error("a filter of system calls keeps the server from Landlock")]
    Filtered(#[source] std::io::Error),
    /// A configured path cannot be opened.
    #[error("cannot let PHP use {path}")]
    Path {
        /// The path as configured.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The kernel rejected the rules.
    #[error("the kernel refused the sandbox: {0}")]
    Refused(String),
}

/// Programs, libraries and settings of the system that every PHP process reads. Missing ones are skipped.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/proc",
    "/dev",
    // Target of /etc/resolv.conf on machines with systemd-resolved.
    "/run/systemd/resolve",
];

/// Devices without content. Entries below /proc have their own access checks, and snapshots are taken through PHP's
/// own entries there.
const WRITABLE_SYSTEM: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/proc"];

/// The newest supported rights; an older kernel gets only the rights it supports.
const NEWEST: ABI = ABI::V6;

impl Sandbox {
    /// Describes what this kernel cannot restrict and newer ones can; empty if it can restrict everything.
    pub fn missing(&self) -> Vec<&'static str> {
        // If it cannot be queried nothing starts, and that is reported there.
        let version = landlock_version().unwrap_or(0);
        let paths = self.readable.is_some() || self.writable.is_some();
        let mut missing = Vec::new();
        if version < 1 {
            missing.push("keeping PHP from other processes' memory (Linux 5.13, with Landlock)");
        }
        if paths && (1..3).contains(&version) {
            missing.push("truncating files outside of the paths (Linux 6.2)");
        }
        if version < 6 {
            missing.push("signals to processes that are not PHP's (Linux 6.12)");
        }
        missing
    }
}

/// A sandbox prepared for the kernel, to be applied by processes that are about to become PHP.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// The Landlock rules; `None` if the kernel has no Landlock.
    pub(crate) rules: Option<OwnedFd>,
    pub(crate) filter: BpfProgram,
}

impl Confinement {
    /// Returns the sandbox of a pool, if it has one.
    pub(crate) fn of(options: &Options) -> Result<Option<Self>, SandboxError> {
        let Some(sandbox) = &options.sandbox else { return Ok(None) };
        let run_dir = Some(&*options.run_dir).filter(|path| !path.as_os_str().is_empty());
        let places = Places {
            program: &options.program,
            script: options.worker_script.as_deref(),
            directory: &options.directory,
            run_dir,
        };
        Self::new(sandbox, &places).map(Some)
    }

    /// Returns a sandbox for a program.
    pub(crate) fn new(sandbox: &Sandbox, places: &Places<'_>) -> Result<Self, SandboxError> {
        Ok(Self { rules: rules(sandbox, places)?, filter: filter()? })
    }
}

/// The paths that a program uses in every sandbox.
#[derive(Debug)]
pub(crate) struct Places<'p> {
    pub(crate) program: &'p Path,
    pub(crate) script: Option<&'p Path>,
    pub(crate) directory: &'p Path,
    /// The server's folder for it, which it may write.
    pub(crate) run_dir: Option<&'p Path>,
}

fn reads() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST)
}

fn writes() -> BitFlags<AccessFs> {
    AccessFs::from_write(ABI::V4)
}

/// Returns the rights that are denied unless a rule allows them.
fn handled(sandbox: &Sandbox) -> Result<BitFlags<AccessFs>, SandboxError> {
    let version = landlock_version().map_err(SandboxError::Filtered)?;
    let mut handled = BitFlags::empty();
    if sandbox.readable.is_some() {
        handled |= reads();
    }
    if sandbox.writable.is_some() {
        handled |= writes();
    }
    if !handled.is_empty() && version < 1 {
        return Err(SandboxError::NoLandlock);
    }
    if handled.is_empty() {
        // A separate domain protects the memory of other processes (ptrace(2) access), whatever the domain denies.
        handled = AccessFs::MakeBlock.into();
    }
    Ok(handled)
}

fn rules(sandbox: &Sandbox, places: &Places<'_>) -> Result<Option<OwnedFd>, SandboxError> {
    let refused = |error: RulesetError| SandboxError::Refused(error.to_string());
    let (reads, writes) = (reads(), writes());
    let handled = handled(sandbox)?;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)
        .map_err(refused)?
        .scope(Scope::Signal)
        .map_err(refused)?
        .create()
        .map_err(refused)?;
    let mut allow = |path: &Path, rights: BitFlags<AccessFs>, named: bool| {
        let rights = rights & handled;
        if rights.is_empty() {
            return Ok(());
        }
        let opened = match PathFd::new(path) {
            Ok(opened) => opened,
            Err(PathFdError::OpenCall { source, .. }) if named => {
                return Err(SandboxError::Path { path: path.to_owned(), cause: source });
            }
            Err(_not_there) => return Ok(()),
        };
        // The kernel rejects a rule for a file if it contains rights that only folders have.
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
        let rule = PathBeneath::new(opened, rights);
        (&mut rules).add_rule(rule).map(|_| ()).map_err(refused)
    };
    for path in SYSTEM {
        allow(Path::new(path), reads, false)?;
    }
    for path in WRITABLE_SYSTEM {
        allow(Path::new(path), AccessFs::WriteFile.into(), false)?;
    }
    let program = places.program.canonicalize().unwrap_or_else(|_| places.program.to_owned());
    let of_program = [places.program.parent(), program.parent()];
    let script = places.script.and_then(Path::parent);
    for path in of_program.into_iter().flatten().chain(script).chain([places.directory]) {
        allow(path, reads, false)?;
    }
    if let Some(run_dir) = places.run_dir {
        allow(run_dir, reads | writes, false)?;
    }
    for path in &sandbox.own_readable {
        allow(path, reads, false)?;
    }
    for path in &sandbox.own_writable {
        allow(path, reads | writes, false)?;
    }
    for path in sandbox.readable.iter().flatten() {
        allow(path, reads, true)?;
    }
    for path in sandbox.writable.iter().flatten() {
        allow(path, reads | writes, true)?;
    }
    Ok(rules.into())
}

/// Returns the filter. It answers `EPERM` to calls that administer the machine, other processes and the kernel, and to
/// kernel features that only attackers need. All other calls are allowed: `memfd_create(2)`, because snapshots use it,
/// and `unshare(CLONE_VM)`, which changes nothing. A restore checks with it that the process shares its memory with no
/// other.
fn filter() -> Result<BpfProgram, SandboxError> {
    let refused = |error: seccompiler::BackendError| SandboxError::Refused(error.to_string());
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(refused)?;
    let mut calls: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces = NAMESPACES.iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        let is_set = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, is_set, flag)?;
        SeccompRule::new(vec![condition])
    });
    calls.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>().map_err(refused)?);
    let asks = u64::from(libc::CLONE_VM.cast_unsigned());
    let does_more = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, asks)
        .and_then(|condition| SeccompRule::new(vec![condition]));
    calls.insert(libc::SYS_unshare, vec![does_more.map_err(refused)?]);
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, denied, arch).map_err(refused)?;
    let mut program = before();
    program.extend(BpfProgram::try_from(filter).map_err(refused)?);
    Ok(program)
}

/// Handles calls that the table cannot. clone3(2) passes its flags in memory, which no filter sees, so `ENOSYS` makes
/// libc use clone(2). Numbers of the x32 ABI, which share their architecture with ours, would bypass the table
/// (seccomp(2), "Architectures").
fn before() -> BpfProgram {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const X32: u32 = 0x4000_0000;
    let statement = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let answer = |error: i32| u32::from(SeccompAction::Errno(error.cast_unsigned()));
    let clone3 = u32::try_from(libc::SYS_clone3).expect("numbers of system calls are small");
    vec![
        statement(LOAD, 0, 0, 0), // the number is the first field of struct seccomp_data
        statement(IF_EQUAL, 0, 1, clone3),
        statement(RETURN, 0, 0, answer(libc::ENOSYS)),
        statement(IF_AT_LEAST, 0, 1, X32),
        statement(RETURN, 0, 0, answer(libc::EPERM)),
    ]
}

/// Namespace flags (namespaces(7)). A user namespace gives all capabilities inside, and exposes most of the kernel to
/// attacks.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Rejected calls, from systemd's groups (systemd.exec(5), `SystemCallFilter=`): `@clock`, `@cpu-emulation`,
/// `@debug`, `@keyring`, `@module`, `@mount`, `@obsolete`,
/// `@pkey` excepted, `@raw-io`, `@reboot`, `@swap`; also `io_uring(7)`, `bpf(2)` and calls that open files by handle.
const REFUSED: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_refuses_landlock_is_no_kernel_without_it() {
        // Filters apply to one thread.
        let filtered = std::thread::spawn(|| {
            let calls = BTreeMap::from([(libc::SYS_landlock_create_ruleset, Vec::new())]);
            let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
            let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
            let filter = SeccompFilter::new(calls, SeccompAction::Allow, refused, arch).unwrap();
            seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
            handled(&Sandbox::default()).unwrap_err()
        });
        let error = filtered.join().unwrap();
        let SandboxError::Filtered(cause) = error else { panic!("{error}") };
        assert_eq!(cause.raw_os_error(), Some(libc::EPERM));
    }
}
