//! Who the server is once it listens: root binds what only root may bind, and is somebody else from then on.
//!
//! Invariants
//! - It happens while the process has one thread, before PHP, the run folder or any file of the application is touched: nothing of root's is
//!   left behind, and there is no way back (real, effective and saved numbers all change; setresuid(2)).
//! - A server that cannot become who it is to be does not start.
//! - Of root's privileges nothing is left, but for what `php.user` takes.

mod php;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;

use front_http::{BindError, Given};
use pool::Identity;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

pub(crate) use self::php::{PhpUser, check as check_php, first_refused, lacking};
use crate::app::applications::{Planned, Plans};
use crate::config::{Address, Environment, Settings};
use crate::failure::Failure;
use crate::ops::admin;
use crate::ops::state::AdminSocket;
use crate::runtime::sockets::Sockets;
use crate::subsystems::front;

/// Binds what `settings` name, becomes `server.user`, if there is one, and keeps what `php.user` takes. To be called before there is a second
/// thread.
pub(crate) fn become_user(
    settings: &Settings,
    sockets: &mut Sockets,
    environment: &Environment,
) -> Result<(), Failure> {
    let php = PhpUser::all_of(settings, environment)?;
    // A successor is who its predecessor had become.
    if let Some(identity) = of_server(settings)? {
        let own = geteuid();
        if !own.is_root() {
            return Err(Failure::failed(
                format!(
                    "user {} cannot become user {} (`server.user`)",
                    own.as_raw(),
                    identity.user
                ),
                "start Hearth as root, or as that user and without `server.user`",
            ));
        }
        bind(settings, sockets)?;
        change(&identity, !php.is_empty())?;
    }
    php::prepare(&php)
}

/// Who the server is to be, where that is somebody else than we are.
pub(crate) fn of_server(settings: &Settings) -> Result<Option<Identity>, Failure> {
    let wanted = settings.server.user.filter(|user| user.0 != geteuid().as_raw());
    let Some(account) = wanted else { return Ok(None) };
    let group = settings.server.group.0.map(|group| group.0);
    Accounts::read().identity(account.0, group, "server.user", "server.group").map(Some)
}

/// What there is to know where PHP is root: who finds a hole in the application has the machine.
pub(crate) const PHP_IS_ROOT: &str = "PHP runs as root";
/// And what to do.
pub(crate) const NOT_AS_ROOT: &str = "`--user NAME` (`server.user`) has the server be another user once it listens, PHP included; \
                                      `--php-user NAME` (`php.user`) has PHP be one";

/// Says so in the log.
pub(crate) fn warn_of_root(plans: &Plans) {
    let own = |planned: &Planned| planned.plan.php.as_ref().is_some_and(|php| php.user.is_none());
    if geteuid().is_root() && plans.iter().any(own) {
        tracing::warn!(hint = NOT_AS_ROOT, "{PHP_IS_ROOT}");
    }
}

/// The same where nothing listens: only `php.user` matters.
pub(crate) fn prepare_for_php(
    settings: &Settings,
    environment: &Environment,
) -> Result<(), Failure> {
    php::prepare(PhpUser::of_server(settings, environment)?.as_slice())
}

fn bind(settings: &Settings, sockets: &mut Sockets) -> Result<(), Failure> {
    if !sockets.activated {
        for listen in &settings.http.listen {
            // Socket files are made by who will take them away.
            if let Address::Tcp(address) = listen.address {
                sockets.http.push(Given::bind(address).map_err(|cause| {
                    let error = BindError::Listen { address: address.to_string(), cause };
                    front::not_bound(&error, settings)
                })?);
            }
        }
    }
    if let (None, Some(address)) = (&sockets.admin, settings.admin.listen) {
        let bound = TcpListener::bind(address);
        let listener = bound.map_err(|error| admin::not_bound(address, &error))?;
        sockets.admin = Some(AdminSocket { listener, passed: false });
    }
    Ok(())
}

/// Users and groups, as the system's files have them (passwd(5), group(5)).
#[derive(Debug)]
struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    fn known(&self, user: u32) -> Option<Vec<&str>> {
        let fields = |line| str::split(line, ':').collect::<Vec<_>>();
        self.passwd.lines().map(fields).find(|fields| number(fields, 2) == Some(user))
    }

    /// The user's own group where none is named, and the groups that name him. `user_key` and `group_key`: the settings that say it.
    fn identity(
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

    /// What goes into the environment. Who is in no file is called by his number, and at home at the root.
    fn name_and_home(&self, user: u32) -> (String, String) {
        let known = self.known(user);
        let field = |at: usize| known.as_ref()?.get(at).filter(|text| !text.is_empty());
        let name = field(0).map_or_else(|| user.to_string(), |name| (*name).to_owned());
        (name, field(5).map_or("/", |home| home).to_owned())
    }
}

fn number(fields: &[&str], field: usize) -> Option<u32> {
    fields.get(field)?.parse().ok()
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

/// `keeps`: what `php.user` takes. Nothing else of root's is left.
fn change(identity: &Identity, keeps: bool) -> Result<(), Failure> {
    let Identity { user, group, groups } = identity;
    let refused = |error: rustix::io::Errno| {
        Failure::caused_by(
            format!("cannot become user {user} of group {group}"),
            &std::io::Error::from(error),
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
        let kept =
            CapabilitySets { effective: php::NEEDED, permitted: php::NEEDED, inheritable: none };
        set_capabilities(None, kept).map_err(refused)?;
    }
    tracing::info!(user = user.as_raw(), group = group.as_raw(), "root no more");
    Ok(())
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
    fn a_user_has_his_own_group_and_those_that_name_him() {
        let identity = |group| accounts().identity(33, group, "server.user", "server.group");
        let known = identity(None).unwrap();
        assert_eq!(known, Identity { user: 33, group: 33, groups: vec![33, 1001] });
        let other = identity(Some(4)).unwrap();
        assert_eq!(other, Identity { user: 33, group: 4, groups: vec![4, 1001] });
        let home = accounts().name_and_home(33);
        assert_eq!(home, ("www-data".to_owned(), "/var/www".to_owned()));
    }

    #[test]
    fn a_number_without_a_line_needs_a_group() {
        let identity = |group| accounts().identity(4711, group, "php.user", "php.group");
        let refused = identity(None).unwrap_err();
        assert!(refused.render().contains("name one in `php.group`"), "{}", refused.render());
        let given = identity(Some(33)).unwrap();
        assert_eq!(given, Identity { user: 4711, group: 33, groups: vec![33] });
        assert_eq!(accounts().name_and_home(4711), ("4711".to_owned(), "/".to_owned()));
    }
}
