//! The processes of a generation: `[processes]`, with the folder, user and environment of its applications.

use std::sync::Arc;

use crate::app::boot::{Surroundings, program_options};
use crate::config::{NamedProcess, Settings};
use crate::failure::Failure;
use crate::runtime::generation::{Booted, Generation};
use crate::runtime::reload::Generations;
use crate::subsystems::processes::{Definition, launcher};
use crate::system::users::PhpUser;

impl Generations<'_> {
    /// Returns the processes that belong to a generation. One that cannot be started says why.
    pub(crate) fn processes_of(
        &self,
        settings: &Settings,
        generation: &Generation,
    ) -> Vec<Definition> {
        let definition = |process: &NamedProcess| {
            let mut applications = generation.applications.iter();
            let booted = applications.find(|booted| booted.planned.name == process.application);
            Definition {
                name: Arc::clone(&process.name),
                application: Arc::clone(&process.application),
                command: process.command.to_string(),
                generation: generation.number,
                count: process.count.get(),
                cron: process.cron.clone().map(|cron| (cron, process.zone.clone())),
                stop_signal: process.stop_signal.0,
                stop_timeout: process.stop_timeout,
                launcher: self.program_of(process, booted).and_then(launcher),
            }
        };
        settings.processes.iter().map(definition).collect()
    }

    fn program_of(
        &self,
        process: &NamedProcess,
        booted: Option<&Booted>,
    ) -> Result<pool::ProgramOptions, Failure> {
        let environment = self.source.environment;
        let Some(Booted { planned, .. }) = booted else {
            return Err(Failure::failed(
                format!("there is no application `{}`", process.application),
                format!("name one with `application` in `[processes.{}]`", process.name),
            ));
        };
        let user = PhpUser::of(&planned.settings, environment)?;
        let broker = self.broker.watch();
        let is_first = PhpUser::same(user.as_ref(), self.first.as_ref());
        let surroundings = Surroundings {
            folder: &planned.plan.application.folder,
            settings: &planned.settings,
            user: user.as_ref(),
            egress_socket: broker.and_then(|broker| broker.socket_of(user.as_ref())),
            connectors: if is_first { self.connectors.env() } else { &[] },
        };
        let mut options = program_options(&process.command, &surroundings, environment)?;
        options.env.extend(self.entrance(planned, user.as_ref())?);
        if let (Some(sandbox), true) = (&mut options.sandbox, is_first) {
            sandbox.own_writable.extend(self.connectors.files().map(ToOwned::to_owned));
        }
        Ok(options)
    }
}
