//! What PHP's processes may not do, whatever the code in them wants: the kernel refuses it (seccomp(2), landlock(7)).
//!
//! Invariants
//! - Everything that could fail is done before a process is forked; between fork and exec there are only system calls.
//! - What a kernel cannot do is an error when paths were asked for, and said by [`Sandbox::missing`] otherwise: never silently less.
//! - A process keeps it for life, and so does everything that it starts.

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

/// What PHP may still do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Files and folders that it may read, beside the system's programs and settings, the application and what it may write. None: all.
    pub readable: Option<Vec<PathBuf>>,
    /// Files and folders that it may write, beside the server's folder for it. None: all that its user may.
    pub writable: Option<Vec<PathBuf>>,
    /// Files of the server's own that PHP reads, whatever paths were named. One that is not there when PHP starts is not read later either.
    pub own_readable: Vec<PathBuf>,
    /// Those that it writes, too.
    pub own_writable: Vec<PathBuf>,
}

/// Why there is no such sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// Paths were named, and the kernel cannot hold PHP to them.
    #[error(
        "this kernel has no Landlock (Linux 5.13, enabled at boot), which holds PHP to the paths that it may use"
    )]
    NoLandlock,
    /// Nobody knows what the kernel could do: it is not asked.
    #[error("a filter of system calls keeps the server from Landlock")]
    Filtered(#[source] std::io::Error),
    /// A path that was named cannot be opened.
    #[error("cannot let PHP use {path}")]
    Path {
        /// As it was named.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// The kernel refused the rules.
    #[error("the kernel refused the sandbox: {0}")]
    Refused(String),
}

/// What every PHP process reads: programs, libraries and settings of the system. Those that are not there are left out.
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
    // Where /etc/resolv.conf leads on machines with systemd-resolved.
    "/run/systemd/resolve",
];

/// Devices that hold nothing. What is below /proc guards itself, and PHP's own entries there are what a snapshot is taken through.
const WRITABLE_SYSTEM: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/proc"];

/// The newest rights we know; a kernel that knows less is asked for what it has.
const NEWEST: ABI = ABI::V6;

impl Sandbox {
    /// What this kernel cannot refuse that newer ones can, in words; nothing when it can all.
    pub fn missing(&self) -> Vec<&'static str> {
        // Where it cannot be asked nothing starts, and that is said there.
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

/// A sandbox as the kernel takes it, to be put on by processes that are about to become PHP.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// None where the kernel has no Landlock.
    pub(crate) rules: Option<OwnedFd>,
    pub(crate) filter: BpfProgram,
}

impl Confinement {
    /// The sandbox of a pool, if it has one.
    pub(crate) fn of(options: &Options) -> Result<Option<Self>, SandboxError> {
        let Some(sandbox) = &options.sandbox else { return Ok(None) };
        Ok(Some(Self { rules: rules(sandbox, options)?, filter: filter()? }))
    }
}

fn reads() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST)
}

fn writes() -> BitFlags<AccessFs> {
    AccessFs::from_write(ABI::V4)
}

/// What is refused unless a rule allows it.
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
        // A domain of its own is what keeps it from others' memory (ptrace(2) access), whatever the domain refuses.
        handled = AccessFs::MakeBlock.into();
    }
    Ok(handled)
}

fn rules(sandbox: &Sandbox, options: &Options) -> Result<Option<OwnedFd>, SandboxError> {
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
        // Rights that only folders have make the kernel refuse a rule for a file.
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
    let program = options.program.canonicalize().unwrap_or_else(|_| options.program.clone());
    let of_program = [options.program.parent(), program.parent()];
    let script = options.worker_script.as_deref().and_then(Path::parent);
    for path in of_program.into_iter().flatten().chain(script).chain([&*options.directory]) {
        allow(path, reads, false)?;
    }
    if !options.run_dir.as_os_str().is_empty() {
        allow(&options.run_dir, reads | writes, false)?;
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

/// `EPERM` for what administers the machine, other processes and the kernel itself, and for parts of the kernel that PHP has no use for
/// and attackers do; everything else is allowed. `memfd_create(2)` stays: snapshots are made with it.
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
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, denied, arch).map_err(refused)?;
    let mut program = before();
    program.extend(BpfProgram::try_from(filter).map_err(refused)?);
    Ok(program)
}

/// clone3(2) hands its flags over in memory, where no filter sees them: `ENOSYS` has libc take clone(2). Numbers of the x32 ABI, which share
/// their architecture with ours, would pass by the table (seccomp(2), "Architectures").
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

/// namespaces(7): a user namespace gives all capabilities within, and with them most of the kernel to attack.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Of systemd's groups (systemd.exec(5), `SystemCallFilter=`): `@clock`, `@cpu-emulation`, `@debug`, `@keyring`, `@module`, `@mount`, `@obsolete`,
/// `@pkey` excepted, `@raw-io`, `@reboot`, `@swap`; and `io_uring(7)`, `bpf(2)`, what opens files by handle.
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
    libc::SYS_unshare,
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
        // Filters are a thread's own.
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
