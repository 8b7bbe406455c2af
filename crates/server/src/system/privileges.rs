//! Privileges of this process: what it keeps of root's, and becoming another user.
//!
//! Invariants
//! - The calls here are made while the process has one thread: users, groups and capabilities are a thread's own.

use std::fs;
use std::io;

use pool::Identity;
use rustix::process::{Gid, Uid, getegid, getgroups};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::users::PhpUser;
use crate::failure::Failure;

/// The capabilities of a server that runs PHP as another user: to become that user and its group, and to signal its processes. The kernel
/// checks the last one also when PHP's programs end because their parent has died (`check_kill_permission()`, kernel/signal.c).
const NEEDED: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// The ways to give a server what it needs.
pub(super) const WAYS: &str =
    "start Hearth as root, or with `AmbientCapabilities=CAP_SETUID CAP_SETGID CAP_KILL`";

/// Returns the capabilities that this process lacks to run PHP as another user.
pub(crate) fn lacking() -> Vec<&'static str> {
    let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let named = [
        (CapabilitySet::SETUID, "CAP_SETUID"),
        (CapabilitySet::SETGID, "CAP_SETGID"),
        (CapabilitySet::KILL, "CAP_KILL"),
    ];
    named.into_iter().filter(|(one, _)| !permitted.contains(*one)).map(|(_, name)| name).collect()
}

/// Prepares the privileges of this process; programs that it starts get none. To be called before there is a second thread.
///
/// The server joins PHP's groups, so that it can give files to them. Later it cannot: then it has threads, and groups belong to a thread.
pub(crate) fn prepare(users: &[PhpUser]) -> Result<(), Failure> {
    let Some(user) = users.first() else { return Ok(()) };
    let lacking = lacking();
    if !lacking.is_empty() {
        return Err(Failure::failed(
            format!(
                "PHP cannot run as user {} (`php.user`): the server lacks {}",
                user.name(),
                lacking.join(", ")
            ),
            WAYS,
        ));
    }
    one_thread("have PHP run as another user")?;
    let arrange = || -> io::Result<()> {
        let have = capabilities(None)?;
        let none = CapabilitySet::empty();
        // Without an inheritable one there is no ambient one either (capabilities(7)): what root or systemd gave goes to no child.
        set_capabilities(
            None,
            CapabilitySets { effective: have.effective | NEEDED, inheritable: none, ..have },
        )?;
        let mut groups = getgroups()?;
        let before = groups.len();
        for user in users {
            let group = Gid::from_raw(user.identity.group);
            if getegid() != group && !groups.contains(&group) {
                groups.push(group);
            }
        }
        if groups.len() > before {
            set_thread_groups(&groups)?;
        }
        Ok(())
    };
    arrange().map_err(|error| {
        let what = format!("cannot prepare to run PHP as user {} (`php.user`)", user.name());
        Failure::caused_by(what, &error, WAYS)
    })
}

/// `keeps`: what `php.user` takes. Nothing else of root's is left.
pub(crate) fn change(identity: &Identity, keeps: bool) -> Result<(), Failure> {
    let Identity { user, group, groups } = identity;
    let refused = |error: rustix::io::Errno| {
        Failure::caused_by(
            format!("cannot become user {user} of group {group}"),
            &io::Error::from(error),
            "start Hearth as root with the capabilities to change users, or as that user and without `server.user`",
        )
    };
    one_thread(&format!("become user {user}"))?;
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(*user), Gid::from_raw(*group));
    set_thread_groups(&groups).map_err(refused)?;
    set_thread_res_gid(group, group, group).map_err(refused)?;
    set_keep_capabilities(keeps).map_err(refused)?;
    set_thread_res_uid(user, user, user).map_err(refused)?;
    if keeps {
        set_keep_capabilities(false).map_err(refused)?;
        let none = CapabilitySet::empty();
        let kept = CapabilitySets { effective: NEEDED, permitted: NEEDED, inheritable: none };
        set_capabilities(None, kept).map_err(refused)?;
    }
    tracing::info!(user = user.as_raw(), group = group.as_raw(), "root no more");
    Ok(())
}

/// The calls of this module are for one thread.
fn one_thread(what: &str) -> Result<(), Failure> {
    match fs::read_dir("/proc/self/task").map_or(1, Iterator::count) {
        1 => Ok(()),
        threads => Err(Failure::failed(
            format!("cannot {what}: {threads} threads run already"),
            "please report this",
        )),
    }
}
