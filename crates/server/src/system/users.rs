//! Users of this machine, and the user that PHP runs as where that is another one than the server's.
//!
//! Invariants
//! - Nothing here reads settings: callers hand over numbers, and the names of the keys that hold them.
//! - Whether a user can reach a path is the kernel's decision: a thread becomes that user and asks.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use pool::Identity;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::privileges::WAYS;
use crate::failure::Failure;

/// The user that PHP runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhpUser {
    /// The user's numbers.
    pub identity: Identity,
    /// `HOME`, `USER` and `LOGNAME`.
    pub env: Vec<(String, String)>,
    /// Variables that the server alone is to see: settings may be secrets.
    pub hidden: Vec<String>,
}

impl PhpUser {
    /// Returns whether both are the same user with the same group.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.identity.user, self.identity.group) == (other.identity.user, other.identity.group)
    }

    /// Both are the same, or both our own user.
    pub(crate) fn same(one: Option<&Self>, other: Option<&Self>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Returns the name of the folder that keeps this user's files apart.
    pub(crate) fn folder(&self) -> String {
        format!("user-{}-{}", self.identity.user, self.identity.group)
    }

    /// Returns the name for people: the account's name, or its number.
    pub(crate) fn name(&self) -> &str {
        self.env.last().map_or("", |(_, name)| name)
    }

    /// Sets the user of a program to be started.
    pub(crate) fn put_on(user: Option<&Self>, command: &mut Command) {
        if let Some(user) = user {
            for name in &user.hidden {
                command.env_remove(name);
            }
            command.envs(user.env.iter().map(|(name, value)| (name, value)));
            user.identity.put_on(command);
        }
    }

    /// Fails on the first path that this user cannot use so.
    pub(crate) fn must_reach(&self, paths: &[(&Path, Access)]) -> Result<(), Failure> {
        let asked = first_refused(&self.identity, paths);
        let name = self.name();
        match asked {
            Ok(None) => Ok(()),
            Ok(Some((path, how, error))) => {
                let verb = if how == Access::READ_OK { "read" } else { "enter or run" };
                let path = path.display();
                Err(Failure::caused_by(
                    format!("PHP as user {name} (`php.user`) cannot {verb} {path}"),
                    &io::Error::from(error),
                    format!(
                        "grant access (`namei -l {path}` shows where access ends), or name another user"
                    ),
                ))
            }
            Err(error) => Err(Failure::caused_by(
                format!("cannot become user {name} (`php.user`)"),
                &error,
                WAYS,
            )),
        }
    }
}

/// Returns the first of these paths that the identity cannot use so. The process must be allowed to become any user.
pub(crate) fn first_refused<'p>(
    identity: &Identity,
    paths: &[(&'p Path, Access)],
) -> io::Result<Option<(&'p Path, Access, Errno)>> {
    // Users are a thread's own to the kernel, and this one ends with the question. Only the kernel knows all that decides it.
    std::thread::scope(|scope| {
        let asking = std::thread::Builder::new().spawn_scoped(scope, || {
            become_in_this_thread(identity)?;
            Ok(paths.iter().find_map(|(path, how)| {
                accessat(CWD, *path, *how, AtFlags::EACCESS).err().map(|error| (*path, *how, error))
            }))
        });
        asking.and_then(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("it did not say")))
        })
    })
}

fn become_in_this_thread(identity: &Identity) -> io::Result<()> {
    let groups: Vec<Gid> = identity.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    set_thread_groups(&groups)?;
    // Real and saved numbers stay ours: by those of a thread the kernel decides who may signal its process. (kill_ok_by_cred(),
    // kernel/signal.c)
    set_thread_res_gid(getgid(), group, getgid())?;
    set_thread_res_uid(getuid(), user, getuid())?;
    Ok(())
}

/// Users and groups, as the system's files have them (passwd(5), group(5)).
#[derive(Debug)]
pub(crate) struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    pub(crate) fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    fn known(&self, user: u32) -> Option<Vec<&str>> {
        let fields = |line| str::split(line, ':').collect::<Vec<_>>();
        self.passwd.lines().map(fields).find(|fields| number(fields, 2) == Some(user))
    }

    /// Returns the user's identity: its own group if none is named, and the groups that list it. `user_key` and `group_key` are the
    /// settings that name them.
    pub(crate) fn identity(
        &self,
        user: u32,
        group: Option<u32>,
        user_key: &str,
        group_key: &str,
    ) -> Result<Identity, Failure> {
        let known = self.known(user);
        let Some(group) = group.or_else(|| number(known.as_deref()?, 3)) else {
            return Err(Failure::misused(
                format!("user {user} (`{user_key}`) is not in /etc/passwd, and has no group"),
                format!("name one in `{group_key}`"),
            ));
        };
        let name = known.as_ref().and_then(|fields| fields.first());
        let names_him = |fields: &Vec<&str>| {
            let members = fields.get(3).copied().unwrap_or_default();
            name.is_some_and(|name| members.split(',').any(|member| member.trim() == *name))
        };
        let mut all: BTreeSet<u32> = self
            .group
            .lines()
            .map(|line| line.split(':').collect())
            .filter(names_him)
            .filter_map(|fields| number(&fields, 2))
            .collect();
        all.insert(group);
        Ok(Identity { user, group, groups: all.into_iter().collect() })
    }

    /// Returns the name and home for the environment. A user without an account is called by its number, with `/` as its home.
    pub(crate) fn name_and_home(&self, user: u32) -> (String, String) {
        let known = self.known(user);
        let field = |at: usize| known.as_ref()?.get(at).filter(|text| !text.is_empty());
        let name = field(0).map_or_else(|| user.to_string(), |name| (*name).to_owned());
        (name, field(5).map_or("/", |home| home).to_owned())
    }
}

fn number(fields: &[&str], field: usize) -> Option<u32> {
    fields.get(field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/var/www:/usr/sbin/nologin\nbroken\n";
    const GROUPS: &str =
        "root:x:0:\nadm:x:4:syslog\nshared:x:1001:deploy,www-data\nwww-data:x:33:\nww:x:7:www\n";

    fn accounts() -> Accounts {
        Accounts { passwd: PASSWD.to_owned(), group: GROUPS.to_owned() }
    }

    #[test]
    fn a_user_has_a_primary_group_and_its_memberships() {
        let identity = |group| accounts().identity(33, group, "server.user", "server.group");
        let known = identity(None).unwrap();
        assert_eq!(known, Identity { user: 33, group: 33, groups: vec![33, 1001] });
        let other = identity(Some(4)).unwrap();
        assert_eq!(other, Identity { user: 33, group: 4, groups: vec![4, 1001] });
        let home = accounts().name_and_home(33);
        assert_eq!(home, ("www-data".to_owned(), "/var/www".to_owned()));
    }

    #[test]
    fn a_numeric_user_without_an_account_needs_a_group() {
        let identity = |group| accounts().identity(4711, group, "php.user", "php.group");
        let refused = identity(None).unwrap_err();
        assert!(refused.render().contains("name one in `php.group`"), "{}", refused.render());
        let given = identity(Some(33)).unwrap();
        assert_eq!(given, Identity { user: 4711, group: 33, groups: vec![33] });
        assert_eq!(accounts().name_and_home(4711), ("4711".to_owned(), "/".to_owned()));
    }
}
