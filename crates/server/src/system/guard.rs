//! A process that outlives the server for a moment: it kills the process groups that a killed server has left behind.
//!
//! The kernel ends what the server itself has started (`PR_SET_PDEATHSIG`), and not what that has started in turn.
//!
//! Invariants
//! - It ends when its input does: when the server ends in any way.
//! - It kills no group but those of its own session that were added: a number alone may have been given out again.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use pool::Identity;
use rustix::process::{Pid, Signal, kill_process_group};

/// The only argument of the guard, which no one types.
const ARGUMENT: &str = "guard-process-groups";

/// Returns whether this process was started as a guard.
pub(crate) fn is_wanted() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().is_some_and(|first| first == ARGUMENT) && arguments.next().is_none()
}

/// Keeps account of groups until the server is gone, and kills those that are left.
pub(crate) fn run() -> ExitCode {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", group)) => groups.extend(group.parse::<u32>()),
            Some(("-", group)) => groups.retain(|known| group.parse() != Ok(*known)),
            _ => {}
        }
    }
    // Started meanwhile by what is killed: a second look finds them.
    for _ in 0..2 {
        for group in groups_of_session().intersection(&groups) {
            kill_group(*group);
        }
    }
    ExitCode::SUCCESS
}

/// Kills every process of a group.
pub(crate) fn kill_group(group: u32) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // It may have ended by now.
        let _gone = kill_process_group(group, Signal::KILL).is_err();
    }
}

/// Returns the numbers of the process groups that have a process in our session.
pub(crate) fn groups_of_session() -> BTreeSet<u32> {
    let read = |process: &Path| {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        // The name is in parentheses and may contain anything. Behind it: state, parent, group, session (proc(5)).
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.to_owned();
        let group: u32 = fields.nth(1)?.parse().ok()?;
        let session: u32 = fields.next()?.parse().ok()?;
        Some((state, group, session))
    };
    // 0 if the session's leader is in another process namespace, which getsid(2) would not tell.
    let ours = read(Path::new("/proc/self")).map(|(_, _, session)| session);
    let group = |entry: io::Result<std::fs::DirEntry>| {
        let (state, group, session) = read(&entry.ok()?.path())?;
        (state != "Z" && Some(session) == ours).then_some(group)
    };
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(group).collect()
}

/// A running guard, with the user whose processes it can kill.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Input of the process. It kills the remaining groups once this is closed.
    pipe: Mutex<ChildStdin>,
}

impl Guard {
    /// Starts a guard as this user.
    pub(crate) fn start(identity: Option<&Identity>) -> io::Result<Self> {
        // The very program that runs, also when an upgrade has put another one in its place.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("hearth").arg(ARGUMENT).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Signals from a terminal are for the server.
        command.process_group(0);
        if let Some(identity) = identity {
            identity.put_on(&mut command);
        }
        let mut process = command.spawn()?;
        let pipe = process.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
        Ok(Self { pipe: Mutex::new(pipe) })
    }

    /// Has a group killed when the server is gone.
    pub(crate) fn add(&self, group: u32) {
        self.send('+', group);
    }

    /// Has a group forgotten, as it has no process any more.
    pub(crate) fn remove(&self, group: u32) {
        self.send('-', group);
    }

    fn send(&self, sign: char, group: u32) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // A line is shorter than what a pipe takes at once.
        if let Err(error) = pipe.write_all(format!("{sign}{group}\n").as_bytes()) {
            tracing::debug!(%error, "no guard for process groups");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_group_is_of_our_session() {
        let ours = rustix::process::getpgrp().as_raw_nonzero().get();
        assert!(groups_of_session().contains(&ours.unsigned_abs()));
    }
}
