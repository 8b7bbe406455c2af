//! The settings and applications of a server on disk, read at the start and again at each reload.

use crate::app::applications::Plans;
use crate::app::detect;
use crate::app::target::Target;
use crate::config::{self, Environment, Settings};
use crate::failure::Failure;
use crate::system::users::PhpUser;

/// The place from which a server reads its settings and applications.
#[derive(Clone, Debug)]
pub(crate) struct Source<'s> {
    /// The target of the command line, read again at each reload, links included.
    pub target: &'s Target,
    /// The environment of the process.
    pub environment: &'s Environment,
    /// All users that PHP can run as, since the start.
    pub users: Vec<PhpUser>,
}

impl Source<'_> {
    /// Reads the settings and plans what would run. It reads files and may run a program: call it on a thread that may block.
    pub(crate) async fn read(
        &self,
        old: &Settings,
    ) -> Result<(Settings, Vec<&'static str>, Plans), Failure> {
        let (target, environment) = (self.target.clone(), self.environment.clone());
        let (old, users) = (old.clone(), self.users.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let (settings, restart_for) = settings(&target, &environment)?.in_place_of(&old);
            must_be_known(&users, &settings, &environment)?;
            let plans = Plans::read(&target, &settings, &environment)?;
            Ok((settings, restart_for, plans))
        });
        reading.await.unwrap_or_else(|error| {
            Err(Failure::caused_by("cannot read the settings", &error, "please report this"))
        })
    }
}

/// Reads the current settings for the path of the command line.
pub(crate) fn settings(target: &Target, environment: &Environment) -> Result<Settings, Failure> {
    let folder = detect::folder_of(&target.path)?;
    Ok(config::load(&folder, target.config.as_deref(), target.flags.clone(), environment)?)
}

/// Fails on a user of PHP that was not named when the server started: the process has neither joined its group nor kept the privileges.
fn must_be_known(
    known: &[PhpUser],
    settings: &Settings,
    environment: &Environment,
) -> Result<(), Failure> {
    for user in PhpUser::all_of(settings, environment)? {
        if !known.iter().any(|known| known.is(&user)) {
            return Err(Failure::failed(
                format!(
                    "PHP cannot run as user {}: no setting named it when the server started",
                    user.name()
                ),
                "`hearth upgrade`, or a restart, prepares the server for that user",
            ));
        }
    }
    Ok(())
}
