//! The run folder of a server, the files that Hearth puts into it for an application, and the broker's socket there.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::app::applications::Planned;
use crate::app::plan::{PhpPlan, Plan, WorkerScript};
use crate::app::preload;
use crate::config::{Environment, Settings};
use crate::failure::Failure;
use crate::subsystems::egress::{self, Broker, Users};
use crate::system::run_dir::RunDir;
use crate::system::users::PhpUser;

/// The server's own folder. If it was not configured and cannot be created, there is neither a broker nor a control socket, and PHP works
/// without.
pub(crate) fn run_dir(
    settings: &Settings,
    environment: &Environment,
    users: &[PhpUser],
) -> Result<Option<RunDir>, Failure> {
    let named = settings.server.run_dir.0.as_deref();
    let made = RunDir::new(named, &environment.temporary_folder());
    match made.and_then(|run_dir| run_dir.for_php(users)) {
        Ok(run_dir) => Ok(Some(run_dir)),
        Err(error) if named.is_some() => Err(no_run_dir(&error)),
        Err(error) => {
            tracing::warn!(
                %error,
                "no run folder: outgoing calls go out directly, and `hearth reload` will not find this server"
            );
            Ok(None)
        }
    }
}

/// The hint about a run folder that cannot be used.
pub(crate) const RUN_DIR_HINT: &str = "set `server.run_dir` to a folder of the server's own user that others cannot write into (`chmod go-w`), or to one below it that \
     Hearth makes";

pub(crate) fn no_run_dir(error: &std::io::Error) -> Failure {
    Failure::caused_by("cannot use the run folder", error, RUN_DIR_HINT)
}

/// The private folder of this server, and the worker script that Hearth brings, when there is one.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    script: Option<PathBuf>,
    run_dir: RunDir,
}

/// The folder's name.
const LOCKS: &str = "locks";

impl OwnFiles {
    /// Returns the path of Hearth's own script.
    pub(crate) fn script(&self) -> Option<&Path> {
        self.script.as_deref()
    }

    /// Returns the folder of the files.
    pub(crate) fn folder(&self) -> &Path {
        self.run_dir.path()
    }

    /// Returns the folder for OPcache's lock. PHP's user can write there, and not where the script is.
    pub(crate) fn locks(&self) -> PathBuf {
        self.run_dir.path().join(LOCKS)
    }

    /// Makes the files of one application in one generation of a server, in a folder of their own; none if it needs none.
    pub(crate) fn of_generation(
        number: u64,
        planned: &Planned,
        run_dir: Option<&RunDir>,
    ) -> Result<Option<Self>, Failure> {
        let Planned { name, settings, plan, .. } = planned;
        let needed = |php: &&PhpPlan| needs_folder(php, settings);
        let Some(php) = plan.php.as_ref().filter(needed) else { return Ok(None) };
        let Some(run_dir) = run_dir else {
            return Err(no_run_dir(&std::io::Error::other("there is none")));
        };
        // Several servers may share a folder that was configured.
        let name = if planned.is_main() { String::new() } else { format!("-{name}") };
        let name = format!("{}-generation-{number}{name}", std::process::id());
        let written =
            run_dir.inside(&name).and_then(|run_dir| Self::written(run_dir, php, settings));
        let written = written.map_err(|error| no_run_dir(&error))?;
        written.can_be_used_by(php.user.as_ref())?;
        Ok(Some(written))
    }

    fn written(run_dir: RunDir, php: &PhpPlan, settings: &Settings) -> std::io::Result<Self> {
        let locks = Some(run_dir.path().join(LOCKS)).filter(|_| needs_locks(settings));
        if let Some(locks) = &locks {
            DirBuilder::new().mode(0o700).recursive(true).create(locks)?;
        }
        if preloads(php, settings) {
            for (name, text) in preload::SCRIPTS {
                run_dir.write(name, text)?;
            }
        }
        let script = match &php.script {
            Some(WorkerScript::Ours { name, text, beside }) => {
                for (included, its_text) in *beside {
                    run_dir.write(included, its_text)?;
                }
                Some(run_dir.write(name, text)?)
            }
            _ => None,
        };
        if let Some(user) = &php.user {
            let files = std::fs::read_dir(run_dir.path())?;
            for file in files {
                user.identity.share(&file?.path(), 0o640)?;
            }
            if let Some(locks) = &locks {
                user.identity.share(locks, 0o770)?;
            }
            // php-fpm, php -S and php-cgi find theirs in it, too.
            user.identity.share(run_dir.path(), 0o750)?;
        }
        Ok(Self { script, run_dir })
    }

    /// Adds a file that PHP reads as this user.
    pub(crate) fn add(
        &self,
        name: &str,
        text: &[u8],
        user: Option<&PhpUser>,
    ) -> std::io::Result<PathBuf> {
        let path = self.run_dir.path().join(name);
        std::fs::write(&path, text)?;
        if let Some(user) = user {
            user.identity.share(&path, 0o640)?;
        }
        Ok(path)
    }

    fn can_be_used_by(&self, user: Option<&PhpUser>) -> Result<(), Failure> {
        let Some(user) = user else { return Ok(()) };
        let script = self.script.as_deref().map(|script| (script, Access::READ_OK));
        let mut paths = vec![(self.run_dir.path(), Access::EXEC_OK)];
        paths.extend(script);
        user.must_reach(&paths)
    }
}

/// Makes the files of a command that has one generation only, and its broker in the same folder.
pub(crate) fn own_files(
    settings: &Settings,
    plan: &Plan,
    environment: &Environment,
) -> Result<Option<OwnFiles>, Failure> {
    let Some(php) = &plan.php else { return Ok(None) };
    if !needs_folder(php, settings) && !settings.egress.enabled {
        return Ok(None);
    }
    let folder = settings.server.run_dir.0.as_deref();
    let run_dir = RunDir::new(folder, &environment.temporary_folder());
    let written = run_dir.and_then(|run_dir| OwnFiles::written(run_dir, php, settings));
    if let Ok(written) = &written {
        written.can_be_used_by(php.user.as_ref())?;
    }
    written.map(Some).or_else(|error| {
        if needs_folder(php, settings) {
            return Err(no_run_dir(&error));
        }
        // Only the broker would use it, and PHP works without.
        tracing::warn!(%error, "no egress broker: outgoing calls are made directly");
        Ok(None)
    })
}

/// Returns whether PHP needs a folder: for Hearth's own files, or for OPcache's lock in a sandbox that limits where PHP writes.
fn needs_folder(php: &PhpPlan, settings: &Settings) -> bool {
    php.needs_files() || needs_locks(settings) || preloads(php, settings)
}

/// Returns whether it may preload: the model may become `request` later.
fn preloads(php: &PhpPlan, settings: &Settings) -> bool {
    settings.php.preload.is_some() && !php.model.is_foreign()
}

/// In such a sandbox PHP cannot write to /tmp, where OPcache's lock is otherwise.
fn needs_locks(settings: &Settings) -> bool {
    !settings.sandbox.writable.is_empty()
}

/// Binds the broker's socket, unless it is switched off. If only its folder is missing, PHP's calls go out directly.
pub(crate) fn bind_broker(
    settings: &Settings,
    folder: &Path,
    users: Users<'_>,
    succeeds: bool,
    admin: Option<SocketAddr>,
) -> Result<Option<Broker>, Failure> {
    if !settings.egress.enabled {
        return Ok(None);
    }
    match Broker::bind(settings, &egress::socket_in(folder), users, succeeds, admin) {
        Ok(broker) => Ok(Some(broker)),
        // A folder that was explicitly configured and cannot be used is an error.
        Err(failure) if settings.egress.socket.0.is_some() || settings.egress.ca.0.is_some() => {
            Err(failure)
        }
        Err(failure) => {
            let reason = failure.message();
            tracing::warn!(reason, "no egress broker: outgoing calls are made directly");
            Ok(None)
        }
    }
}
