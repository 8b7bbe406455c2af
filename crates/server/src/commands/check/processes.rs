//! `[processes]`: whether each command can be started, and when those with `cron` are due.

use std::path::Path;

use rustix::fs::Access;

use super::{Report, Topic};
use crate::app::boot::program;
use crate::config::{Environment, MAIN, NamedProcess, Settings};
use crate::system::users::PhpUser;

/// Looks at the processes of one application, which has this folder and these settings.
pub(crate) fn look(
    report: &mut Report,
    processes: &[NamedProcess],
    (application, folder): (&str, &Path),
    settings: &Settings,
    environment: &Environment,
) {
    for process in processes.iter().filter(|process| &*process.application == application) {
        let NamedProcess { name, command, cron, count, .. } = process;
        let found = program(&command.program, folder, settings, environment);
        let reached = found.and_then(|program| {
            if let Some(user) = PhpUser::of(settings, environment)? {
                user.must_reach(&[(&program, Access::EXEC_OK), (folder, Access::EXEC_OK)])?;
            }
            Ok(program)
        });
        match reached {
            Ok(program) => {
                let when = match cron {
                    Some(cron) => format!("at `{cron}`"),
                    None if count.get() == 1 => "always".to_owned(),
                    None => format!("always, {count} at once"),
                };
                let program = program.display();
                let what = format!("process `{name}` runs {when}: `{command}` by {program}");
                report.fine(Topic::Processes, what);
            }
            Err(failure) => report.problem(
                Topic::Processes,
                format!("process `{name}` cannot be started: {}", failure.message()),
                failure.hint().unwrap_or_default(),
            ),
        }
    }
}

/// Reports processes of the application at PATH where there is none.
pub(crate) fn without_application(report: &mut Report, processes: &[NamedProcess]) {
    for process in processes.iter().filter(|process| &*process.application == MAIN) {
        let name = &process.name;
        report.problem(
            Topic::Processes,
            format!("process `{name}` cannot be started: there is no application at PATH"),
            format!("name one with `application` in `[processes.{name}]`"),
        );
    }
}
