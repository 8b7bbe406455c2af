//! `hearth check`: what would run, and everything that is wrong with it.
//!
//! Invariants
//! - It changes nothing: no file is written, no script of the application runs; sockets are bound and closed at once.
//! - It goes on after a problem as far as that makes sense, so one run shows them all.

mod application;
mod connectors;
mod databases;
mod egress;
mod lambda;
mod machine;
mod model;
mod php;
mod realtime;
mod report;

use pool::Model;

use crate::cli::Target;
use crate::config::{self, ConfigError, Environment, Origin};
use crate::detect;
use crate::failure::Failure;
use crate::plan::Plan;
pub(crate) use report::Report;
use report::Topic;

/// Looks at everything.
///
/// `on_lambda`: also at what a cold start on AWS Lambda would spend time on.
pub(crate) fn check(
    target: &Target,
    on_lambda: bool,
    environment: &Environment,
) -> Result<Report, Failure> {
    let mut report = Report::default();
    let folder = detect::folder_of(&target.path)?;
    let settings =
        match config::load(&folder, target.config.as_deref(), target.flags.clone(), environment) {
            Ok(settings) => settings,
            // A wrong flag is a mistake in calling us, not something found.
            Err(error @ ConfigError::WrongValue { origin: Origin::Flag(_), .. }) => {
                return Err(error.into());
            }
            Err(error) => {
                // Without settings nothing else can be judged.
                report.failure(Topic::Settings, &error.into());
                return Ok(report);
            }
        };
    report.fine(Topic::Settings, "all settings can be used");

    let plan = match detect::detect(&target.path) {
        Ok(found) => Plan::new(found.clone(), &settings, environment).map_err(|failure| {
            let model = settings.php.model.0.unwrap_or(Model::Request);
            let no_php = crate::php::program(model, &settings, environment).is_err();
            report.failure(if no_php { Topic::Php } else { Topic::Application }, &failure);
            Some(found)
        }),
        Err(error) => {
            report.problem(Topic::Application, error.to_string(), error.hint());
            Err(None)
        }
    };
    let (application, plan) = match plan {
        Ok(mut plan) => {
            model::look(&mut report, &mut plan, &settings);
            (Some(plan.application.clone()), Some(plan))
        }
        Err(application) => (application, None),
    };

    let wants_php = plan.as_ref().is_none_or(|plan| plan.php.is_some());
    let info = if wants_php {
        php::look(&mut report, plan.as_ref(), &settings, environment)
    } else {
        None
    };
    if let Some(plan) = &plan {
        report.explain(plan.explain(info.as_ref().map(|info| info.php_version.as_str())));
    }
    if let Some(application) = &application {
        application::look(&mut report, application, info.as_ref(), environment);
        if on_lambda || lambda::is_here(environment) {
            lambda::look(&mut report, &settings, application, plan.as_ref(), info.as_ref());
        }
    }
    realtime::look(&mut report, &folder, &settings, environment);
    databases::look(&mut report, &settings, plan.as_ref(), environment);
    connectors::look(&mut report, &settings);
    egress::look(&mut report, &settings, plan.as_ref(), info.as_ref());
    machine::look(&mut report, &settings);
    Ok(report)
}

#[cfg(test)]
mod tests;
