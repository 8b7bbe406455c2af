//! The model: which one would run, what prevents a better one, and what to do about it.

use pool::Model;

use super::{Report, Topic};
use crate::app::detect::Kind;
use crate::app::fallback::{APCU_IS_DIVIDED, ONE_APCU};
use crate::app::measure;
use crate::app::php;
use crate::app::plan::Plan;
use crate::app::preload;
use crate::config::{Environment, Settings};

/// Checks the model, and replaces it as `hearth serve` would on this machine.
pub(crate) fn look(
    report: &mut Report,
    plan: &mut Plan,
    settings: &Settings,
    environment: &Environment,
) {
    model(report, plan, settings, environment);
    preloading(report, plan, settings);
}

fn model(report: &mut Report, plan: &mut Plan, settings: &Settings, environment: &Environment) {
    apcu(report, plan, settings, environment);
    let Some(php) = &plan.php else { return };
    let name = php.model.name();
    match php.model {
        Model::Snapshot => snapshot(report, plan, settings, environment),
        Model::Worker => report.warning(
            Topic::Model,
            "`worker` shares memory between requests: state left by one visitor's request is visible to the next",
            "use `--model snapshot`, which is as fast and puts memory back after each answer, unless the sharing is meant",
        ),
        Model::Request
            if settings.php.model.0.is_none()
                && plan.application.kind == Kind::FrontController =>
        {
            let known = plan.application.known.as_ref().map(|known| (known.name, &known.boot));
            let why = match (php.not_ahead, known) {
                (Some(why), known) => {
                    let name = known.map_or("the front controller", |(name, _)| name);
                    format!("{name} is not booted ahead: {why}. `--model snapshot` does it anyway")
                }
                (None, Some((name, Err(why)))) => format!("{name} is not booted ahead: {why}"),
                _ => "`snapshot` would boot the application once; it needs a worker script or a wait point (docs/guide/await.md)".to_owned(),
            };
            let what = format!("`request`: PHP starts and ends with each request. {why}");
            report.fine(Topic::Model, what);
        }
        Model::Builtin => report.warning(
            Topic::Model,
            "`builtin` is PHP's own development server, which PHP's manual keeps out of production",
            "use `--model request`, or `snapshot` for more speed",
        ),
        _ => report.fine(Topic::Model, format!("`{name}`, as the settings say")),
    }
}

/// Reports a wait point that divides `APCu`'s cache, or replaces the model as `hearth serve` would.
fn apcu(report: &mut Report, plan: &mut Plan, settings: &Settings, environment: &Environment) {
    let user = plan.php.as_ref().and_then(|php| php.user.as_ref());
    // Why the user is not known was reported with the settings.
    let Ok(user) = php::asks_as(user, settings, environment) else { return };
    if plan.fit_to_apcu(settings, user.as_ref()) {
        report.warning(Topic::Model, APCU_IS_DIVIDED, ONE_APCU);
    }
}

fn snapshot(report: &mut Report, plan: &mut Plan, settings: &Settings, environment: &Environment) {
    let Some(php) = &plan.php else { return };
    // Why the user is not known was reported with the settings.
    let Ok(user) = php::asks_as(php.user.as_ref(), settings, environment) else { return };
    let probe = php::probe(&php.worker, user.as_ref(), settings);
    if let Some(fallback) = plan.fit_to_machine(&probe) {
        let instead = if measure::has_choice(plan, settings) {
            "the cheaper of `fork` and `request`, measured at the start,".to_owned()
        } else {
            format!("`{}`", fallback.instead.name())
        };
        let what = format!("{instead} runs in place of `snapshot`: {}", fallback.why);
        report.warning(Topic::Model, what, fallback.hint);
    } else {
        report.fine(
            Topic::Model,
            "`snapshot`: the application boots once; memory is put back after each answer",
        );
    }
    // The application is not run here, so what its boot shows is known when the server starts.
}

/// Reports whether `php.preload` has an effect.
fn preloading(report: &mut Report, plan: &Plan, settings: &Settings) {
    if settings.php.preload.is_none() {
        return;
    }
    match preload::obstacle(plan, settings) {
        Some(why) => report.warning(
            Topic::Php,
            format!("`php.preload` is off: {why}"),
            "take `php.preload` out, or remove the reason (docs/guide/preloading.md)",
        ),
        None => report.fine(Topic::Php, "`php.preload`: learned at each start and reload"),
    }
}
