//! The user that the server becomes once it listens: root binds the ports, and then gives up its rights.
//!
//! Invariants
//! - It happens while the process has one thread, before PHP, the run folder or any file of the application is touched: nothing of root's is
//!   left behind, and there is no way back (real, effective and saved numbers all change; setresuid(2)).
//! - A server that cannot become its user does not start.
//! - Of root's privileges nothing is left, but for what `php.user` takes.

use pool::Identity;
use rustix::process::{getegid, geteuid};

use crate::config::{Environment, Settings};
use crate::failure::Failure;
use crate::system::privileges::{change, prepare};
use crate::system::users::{Accounts, PhpUser};

/// Binds what `settings` name, becomes `server.user`, if there is one, and keeps what `php.user` takes. To be called before there is a second
/// thread.
pub(crate) fn become_user(
    settings: &Settings,
    environment: &Environment,
    bind: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let php = PhpUser::all_of(settings, environment)?;
    // A successor already runs as the user of its predecessor.
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
        bind()?;
        change(&identity, !php.is_empty())?;
    }
    prepare(&php)
}

/// Returns the user that the server is to become, if that is not the current one.
pub(crate) fn of_server(settings: &Settings) -> Result<Option<Identity>, Failure> {
    let wanted = settings.server.user.filter(|user| user.0 != geteuid().as_raw());
    let Some(account) = wanted else { return Ok(None) };
    let group = settings.server.group.0.map(|group| group.0);
    Accounts::read().identity(account.0, group, "server.user", "server.group").map(Some)
}

/// The warning about PHP as root: a hole in the application gives away the machine.
pub(crate) const PHP_IS_ROOT: &str = "PHP runs as root";
/// The hint for PHP as root.
pub(crate) const NOT_AS_ROOT: &str = "`--user NAME` (`server.user`) runs the server as another user once it listens, PHP included; \
                                      `--php-user NAME` (`php.user`) runs only PHP as another user";

/// Warns in the log when PHP runs as root.
pub(crate) fn warn_of_root(runs_php: bool) {
    if geteuid().is_root() && runs_php {
        tracing::warn!(hint = NOT_AS_ROOT, "{PHP_IS_ROOT}");
    }
}

/// Prepares the privileges of a command that listens nowhere: only `php.user` matters.
pub(crate) fn prepare_for_php(
    settings: &Settings,
    environment: &Environment,
) -> Result<(), Failure> {
    prepare(PhpUser::of_server(settings, environment)?.as_slice())
}

impl PhpUser {
    /// Returns the user that the settings name; none when PHP runs as the server's own user.
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

    /// Returns the user that the server's own `[php]` names: it gets the broker's own socket, and connectors.
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

    /// Returns all users that the settings name for PHP, of the server and of its applications, each once: that of `[php]` first.
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

    /// Fails when one of two users could use files that are for the group of the other.
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
