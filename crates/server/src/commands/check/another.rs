//! Checks of an application beside the one at PATH.

use super::access::AccessCheck;
use super::report::{Report, Topic};
use super::{Boots, application, databases, measured, model, paths, php};
use crate::app::applications;
use crate::app::detect::Application;
use crate::app::plan::Plan;
use crate::commands::remote::Running;
use crate::config::{Environment, NamedApplication};

/// Checks an application beside the one at PATH.
pub(super) fn look(
    report: &mut Report,
    named: &NamedApplication,
    at_path: Option<&Application>,
    (others_have_users, access): (bool, &AccessCheck),
    environment: &Environment,
    (running, boots): (&Running<'_>, Boots),
) {
    let settings = &named.settings;
    let found = match applications::found(named, at_path) {
        Ok(found) => found,
        Err(failure) => return report.failure(Topic::Application, &failure),
    };
    if let Some(folder) = applications::unread_settings(named, at_path) {
        report.warning(
            Topic::Settings,
            format!("the `hearth.toml` in {} is not read", folder.display()),
            "its settings belong in the application's table",
        );
    }
    let mut plan = match Plan::new(found, settings, environment) {
        Ok(plan) => plan,
        Err(failure) => return report.failure(Topic::Application, &failure),
    };
    php::user(report, &mut plan, settings, others_have_users, environment);
    model::look(report, &mut plan, settings, environment);
    let info = match plan.php {
        Some(_) => php::look(report, Some(&plan), settings, environment),
        None => None,
    };
    let claims: Vec<String> = named.claims.iter().map(ToString::to_string).collect();
    let version = info.as_ref().map(|info| info.php_version.as_str());
    let what = format!("answers {}: {}", claims.join(", "), plan.explain(version));
    report.fine(Topic::Application, what);
    access.application(report, &plan.application);
    let whose = (access, &access.of_php(Some(&plan)));
    let read = (settings, environment);
    application::look(report, &plan.application, info.as_ref(), read, whose);
    paths::of_application(report, settings, &plan.application.folder);
    databases::look(report, settings, Some(&plan), environment);
    measured::look(report, (&named.name, &plan), (settings, environment), running, boots);
}
