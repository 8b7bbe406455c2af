//! `hearth check`: what would run, and everything that is wrong with it.
//!
//! Invariants
//! - It changes nothing of its own: sockets are bound, and closed at the end. The application is booted once, and no script of it runs with
//!   `--no-boot`.
//! - A check by root runs nothing of PHP as root that the server would run as another user.
//! - It goes on after a problem as far as that makes sense, so one run shows them all.

mod access;
mod ahead;
mod another;
mod application;
mod boot;
mod connectors;
mod databases;
mod egress;
mod extensions;
mod lambda;
mod machine;
mod measured;
mod model;
mod paths;
mod php;
mod processes;
mod realtime;
mod report;
mod traced;
mod traces;

use std::path::Path;

use pool::Model;

use crate::app::applications;
use crate::app::detect;
use crate::app::plan::Plan;
use crate::app::target::Target;
use crate::commands::remote::Running;
use crate::config::{self, ConfigError, Environment, MAIN, Origin};
use crate::failure::Failure;
use crate::system::users::PhpUser;
use access::AccessCheck;
pub(crate) use report::Report;
use report::Topic;

/// How much of the application a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boots {
    /// Nothing: `--no-boot`, and what `hearth serve` prints, which boots anyway.
    No,
    /// One boot and one request.
    Once,
    /// Two workers and some requests, to measure their memory: `--boot`.
    Measured,
}

/// Checks everything. `on_lambda`: also checks what a cold start on AWS Lambda would spend time on.
pub(crate) fn check(
    target: &Target,
    (on_lambda, boots): (bool, Boots),
    environment: &Environment,
) -> Result<Report, Failure> {
    let mut report = Report::default();
    let folder = detect::folder_of(&target.path)?;
    let (file, flags) = (target.config.as_deref(), &target.flags);
    let settings = match config::load(&folder, file, flags.clone(), environment) {
        Ok(settings) => settings,
        Err(first) => {
            let mut all = config::problems(&folder, file, flags.clone(), environment);
            if all.is_empty() {
                all.push(first);
            }
            for error in all {
                // A wrong flag is a mistake in calling us, not something found.
                if matches!(error, ConfigError::WrongValue { origin: Origin::Flag(_), .. }) {
                    return Err(error.into());
                }
                report.failure(Topic::Settings, &error.into());
            }
            // Without settings nothing else can be judged.
            return Ok(report);
        }
    };
    report.fine(Topic::Settings, "all settings can be used");
    let access = AccessCheck::of(&mut report, &settings);
    let named = target.config.as_deref().or_else(|| environment.config_file());
    let file = named.map_or_else(|| folder.join("hearth.toml"), Path::to_owned);
    access.server(&mut report, &settings, &environment.current_dir.join(file));
    paths::look(&mut report, &settings, &access);

    let users = PhpUser::all_of(&settings, environment);
    let others_have_users = users.as_ref().is_ok_and(|users| !users.is_empty());
    if let Err(failure) = &users {
        report.failure(Topic::Settings, failure);
    }
    let at_path = applications::at_path(&target.path, &settings);
    let nobody_there = matches!(at_path, Ok(None));
    let plan = match &at_path {
        Ok(None) => {
            let what = "no application at PATH: requests that no other application claims get 421, or 404 on one of their hosts";
            report.fine(Topic::Application, what);
            Err(None)
        }
        Ok(Some(found)) => Plan::new(found.clone(), &settings, environment).map_err(|failure| {
            let model = settings.php.model.0.unwrap_or(Model::Request);
            let no_php = crate::app::php::program(model, &settings, environment).is_err();
            report.failure(if no_php { Topic::Php } else { Topic::Application }, &failure);
            Some(found.clone())
        }),
        Err(failure) => {
            report.failure(Topic::Application, failure);
            Err(None)
        }
    };
    let (application, plan) = match plan {
        Ok(mut plan) => {
            php::user(&mut report, &mut plan, &settings, others_have_users, environment);
            model::look(&mut report, &mut plan, &settings, environment);
            (Some(plan.application.clone()), Some(plan))
        }
        Err(application) => (application, None),
    };

    let wants_php = !nobody_there && plan.as_ref().is_none_or(|plan| plan.php.is_some());
    let info = if wants_php {
        php::look(&mut report, plan.as_ref(), &settings, environment)
    } else {
        None
    };
    if let Some(plan) = &plan {
        access.application(&mut report, &plan.application);
        paths::of_application(&mut report, &settings, &plan.application.folder);
        report.explain(plan.explain(info.as_ref().map(|info| info.php_version.as_str())));
    }
    if let Some(application) = &application {
        let whose = (&access, &access.of_php(plan.as_ref()));
        let read = (&settings, environment);
        application::look(&mut report, application, info.as_ref(), read, whose);
        if on_lambda || lambda::is_here(environment) {
            lambda::look(&mut report, read, application, plan.as_ref(), info.as_ref());
        }
    }
    let running = Running::of(target, environment);
    if let Some(plan) = &plan {
        measured::look(&mut report, (MAIN, plan), (&settings, environment), &running, boots);
    }
    match (&application, nobody_there) {
        (Some(application), _) => {
            let whose = (MAIN, &*application.folder);
            processes::look(&mut report, &settings.processes, whose, &settings, environment);
        }
        (None, true) => processes::without_application(&mut report, &settings.processes),
        // Why there is none was said.
        (None, false) => {}
    }
    for named in &settings.applications {
        report.about(Some(&named.name));
        let at_path = at_path.as_ref().ok().and_then(Option::as_ref);
        let booted = (&running, boots);
        another::look(
            &mut report,
            named,
            at_path,
            (others_have_users, &access),
            environment,
            booted,
        );
        if let Ok(found) = applications::found(named, at_path) {
            let (whose, own) = ((&*named.name, &*found.folder), &named.settings);
            processes::look(&mut report, &settings.processes, whose, own, environment);
        }
    }
    report.about(None);
    realtime::look(&mut report, &folder, &settings, environment);
    databases::look(&mut report, &settings, plan.as_ref(), environment);
    connectors::look(&mut report, &settings, plan.as_ref());
    egress::look(&mut report, &settings, plan.as_ref(), info.as_ref(), (&access, &running));
    traces::look(&mut report, &settings, environment);
    machine::look(&mut report, &settings, environment, &access, &running);
    Ok(report)
}

#[cfg(test)]
mod tests;
