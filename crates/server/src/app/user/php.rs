//! Who PHP is where `php.user` says another one than the server, and what the server needs for that.
//!
//! Invariants
//! - The server keeps three capabilities and hands them to nobody but a successor: to start PHP as somebody else, and to end it.
//! - What is made for one user's PHP no other user's can use: nobody is in the group of another.
//! - That PHP could not use its files is found before it starts, and said with the file.

use std::io;
use std::path::Path;
use std::process::Command;

use pool::Identity;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::{Accounts, one_thread};
use crate::app::plan::{Plan, WorkerScript};
use crate::config::{Environment, Settings};
use crate::failure::Failure;

/// What a server needs that has PHP run as another user: to become that user and its group on the way to PHP, and to signal its processes. The
/// kernel looks at the last also when it ends PHP's programs because their parent has died (`check_kill_permission()`, kernel/signal.c).
pub(super) const NEEDED: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// The user that PHP runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhpUser {
    /// His numbers.
    pub identity: Identity,
    /// `HOME`, `USER` and `LOGNAME`.
    pub env: Vec<(String, String)>,
    /// Variables that the server alone is to see: settings may be secrets.
    pub hidden: Vec<String>,
}

impl PhpUser {
    /// Whom the settings name; none where PHP is the server's own user.
    pub(crate) fn of(
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Option<Self>, Failure> {
        let Some(account) = settings.php.user else { return Ok(None) };
        let server = settings.server.user.map_or_else(|| geteuid().as_raw(), |user| user.0);
        let group = settings.php.group.0.map(|group| group.0);
        if account.0 == server && group.is_none() {
            return Ok(None);
        }
        if account.0 == 0 {
            return Err(Failure::misused(
                "`php.user` is root, and the server is not",
                "name the user that the application's files are for",
            ));
        }
        let accounts = Accounts::read();
        let identity = accounts.identity(account.0, group, "php.user", "php.group")?;
        let (name, home) = accounts.name_and_home(account.0);
        let env = [("HOME", &home), ("USER", &name), ("LOGNAME", &name)];
        let env = env.map(|(variable, value)| (variable.to_owned(), value.clone())).into();
        let settings = environment.settings().into_iter().map(|(name, _)| name);
        // They are followed as settings, and let one in at the collector. `php.env` may give PHP its own.
        let collector = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];
        let hidden = settings.chain(collector.map(str::to_owned)).collect();
        Ok(Some(Self { identity, env, hidden }))
    }

    /// Whom `[php]` of the server names: who is told of the broker's own socket, and of connectors.
    pub(crate) fn of_server(
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Option<Self>, Failure> {
        let user = Self::of(settings, environment)?;
        if let (Some(user), Some(named)) = (&user, settings.egress.group.0)
            && settings.egress.enabled
            && !user.identity.groups.contains(&named.0)
        {
            return Err(Failure::misused(
                format!(
                    "PHP's user is not in group {} (`egress.group`), which alone may use the broker",
                    named.0
                ),
                "leave out `egress.group`: then it is PHP's group",
            ));
        }
        Ok(user)
    }

    /// All that the settings name, of the server and of its applications, each once: those of `[php]` first.
    pub(crate) fn all_of(
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Vec<Self>, Failure> {
        let first = Self::of_server(settings, environment)?;
        let groups = first_groups(settings, first.as_ref())?;
        let mut all: Vec<Self> = first.iter().cloned().collect();
        for named in &settings.applications {
            let add = || -> Result<Option<Self>, Failure> {
                let user = Self::of(&named.settings, environment)?;
                let Some(user) = user.filter(|user| !all.iter().any(|known| known.is(user))) else {
                    return Ok(None);
                };
                let is_first =
                    first.as_ref().is_some_and(|first| first.identity.user == user.identity.user);
                if let Some(group) =
                    groups.iter().find(|group| user.identity.groups.contains(group))
                    && !is_first
                {
                    return Err(user.shares(*group));
                }
                all.iter().try_for_each(|other| user.must_be_apart_from(other))?;
                Ok(Some(user))
            };
            let added = add().map_err(|failure| failure.of_application(&named.name))?;
            all.extend(added);
        }
        Ok(all)
    }

    /// The same user with the same group.
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

    /// Errs where one of two users could use what is for the group of the other.
    fn must_be_apart_from(&self, other: &Self) -> Result<(), Failure> {
        if self.identity.user == other.identity.user {
            return Ok(());
        }
        if self.identity.groups.contains(&other.identity.group) {
            return Err(self.shares(other.identity.group));
        }
        if other.identity.groups.contains(&self.identity.group) {
            return Err(other.shares(self.identity.group));
        }
        Ok(())
    }

    fn shares(&self, group: u32) -> Failure {
        Failure::misused(
            format!(
                "PHP's user {} is in group {group}, which files and sockets for another user belong to",
                self.name()
            ),
            "give each user of PHP a group of its own (`php.group`)",
        )
    }

    /// Where something for this user is kept apart: the name of a folder.
    pub(crate) fn folder(&self) -> String {
        format!("user-{}-{}", self.identity.user, self.identity.group)
    }

    /// For people: the name, or the number of one who has none.
    pub(crate) fn name(&self) -> &str {
        self.env.last().map_or("", |(_, name)| name)
    }

    /// Has a program run as this user.
    pub(crate) fn put_on(user: Option<&Self>, command: &mut Command) {
        if let Some(user) = user {
            for name in &user.hidden {
                command.env_remove(name);
            }
            command.envs(user.env.iter().map(|(name, value)| (name, value)));
            user.identity.put_on(command);
        }
    }

    /// Errs on the first path that this user cannot use so.
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
                        "let it (`namei -l {path}` shows where its way ends), or name another user"
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

/// The first of these paths that somebody cannot use so. To be asked by who may become anybody.
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

/// The groups that the broker's own socket and token can belong to: no other user's PHP may be in them.
fn first_groups(settings: &Settings, first: Option<&PhpUser>) -> Result<Vec<u32>, Failure> {
    let named = settings.egress.group.0.map(|group| group.0);
    let own = match (first, settings.server.user, settings.server.group.0) {
        (Some(first), ..) => first.identity.group,
        (None, _, Some(group)) => group.0,
        (None, Some(user), None) if user.0 != geteuid().as_raw() => {
            Accounts::read().identity(user.0, None, "server.user", "server.group")?.group
        }
        (None, ..) => getegid().as_raw(),
    };
    Ok(named.into_iter().chain([own]).collect())
}

/// How a server comes to what it needs.
const WAYS: &str =
    "start Hearth as root, or with `AmbientCapabilities=CAP_SETUID CAP_SETGID CAP_KILL`";

fn become_in_this_thread(identity: &Identity) -> io::Result<()> {
    let groups: Vec<Gid> = identity.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    set_thread_groups(&groups)?;
    // Real and saved numbers stay ours: by those of a thread the kernel decides who may signal its process. (kill_ok_by_cred(), kernel/signal.c)
    set_thread_res_gid(getgid(), group, getgid())?;
    set_thread_res_uid(getuid(), user, getuid())?;
    Ok(())
}

/// Errs where PHP's user could not use what it runs.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    let Some(php) = &plan.php else { return Ok(()) };
    let Some(user) = &php.user else { return Ok(()) };
    let application = &plan.application;
    let enter = Access::EXEC_OK;
    let mut paths = vec![
        (&*php.worker.program, enter),
        (&*application.folder, enter),
        (&*application.document_root, enter),
    ];
    paths.extend(application.front_controller.as_deref().map(|file| (file, Access::READ_OK)));
    if let Some(WorkerScript::File(file)) = &php.script {
        paths.push((file, Access::READ_OK));
    }
    user.must_reach(&paths)
}

/// What this process lacks to have PHP run as another user.
pub(crate) fn lacking() -> Vec<&'static str> {
    let permitted = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let named = [
        (CapabilitySet::SETUID, "CAP_SETUID"),
        (CapabilitySet::SETGID, "CAP_SETGID"),
        (CapabilitySet::KILL, "CAP_KILL"),
    ];
    named.into_iter().filter(|(one, _)| !permitted.contains(*one)).map(|(_, name)| name).collect()
}

/// What the kernel is to let this process do, and no program that it starts. To be called before there is a second thread.
///
/// The server joins PHP's groups, so that it can give files to them. Later it cannot: then it has threads, and groups are a thread's own.
pub(super) fn prepare(users: &[PhpUser]) -> Result<(), Failure> {
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
