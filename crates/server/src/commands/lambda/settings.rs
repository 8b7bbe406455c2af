//! The settings of a function: Lambda's environment is weaker than every setting and stronger than every default.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::app::detect;
use crate::app::function;
use crate::app::target::LambdaTarget;
use crate::commands::emulate;
use crate::config::{self, Environment, Handler, Raw, Settings};
use crate::failure::Failure;
use crate::ops::log;

const LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";

const FORMAT: &str = "AWS_LAMBDA_LOG_FORMAT";

const CONCURRENCY: &str = "AWS_LAMBDA_MAX_CONCURRENCY";

/// The settings, and what to serve.
pub(crate) fn settings(
    target: LambdaTarget,
    environment: &Environment,
) -> Result<(Settings, PathBuf), Failure> {
    let path = path(target.path.as_deref(), environment)?;
    let folder = match function::handler_of(&path) {
        Handler::Http => detect::folder_of(&path)?,
        Handler::Function | Handler::Console => function::folder_of(&path)?,
    };
    let platform = platform(environment);
    let config = target.config.as_deref();
    let mut settings = config::load_on(platform, &folder, config, target.flags, environment)?;
    log::start(&settings, environment)?;
    if let Some(given) = follow_lanes(&mut settings, environment) {
        tracing::warn!(
            given,
            workers = lanes(&settings),
            hint = "it is for `hearth serve`; on Lambda `lambda.concurrency` says how many",
            "`php.workers` ignored"
        );
    }
    Ok((settings, path))
}

/// Returns the number of invocations that run at once.
pub(crate) fn lanes(settings: &Settings) -> NonZeroUsize {
    settings.lambda.concurrency.0.unwrap_or(NonZeroUsize::MIN)
}

/// Sets one worker for each lane: with fewer, invocations would wait, and further ones would boot for nothing. Returns the setting that it
/// replaced.
fn follow_lanes(settings: &mut Settings, environment: &Environment) -> Option<NonZeroUsize> {
    let lanes = lanes(settings);
    let platform = concurrency(environment).parse().ok();
    let given = settings.php.workers.0.replace(lanes);
    given.filter(|given| *given != lanes && Some(*given) != platform)
}

/// Returns the concurrency that the platform sets.
fn concurrency(environment: &Environment) -> &str {
    environment.variable(CONCURRENCY).unwrap_or("1")
}

/// Returns the path from the command line, else the function's configured handler, else the folder of its code, else the current folder.
fn path(named: Option<&Path>, environment: &Environment) -> Result<PathBuf, Failure> {
    let root = environment.variable("LAMBDA_TASK_ROOT").map(PathBuf::from);
    let root = root.unwrap_or_else(|| environment.current_dir.clone());
    let handler = environment.variable("_HANDLER").filter(|handler| !handler.is_empty());
    let Some(wanted) = named.or_else(|| handler.map(Path::new)) else { return Ok(root) };
    let mut places = vec![root.join(wanted)];
    if named.is_some() {
        places.insert(0, environment.current_dir.join(wanted));
    }
    places.dedup();
    if let Some(found) = places.iter().find(|place| place.exists()) {
        return Ok(found.clone());
    }
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Failure::failed(
        format!("nothing to run: no {}", looked.join(" and no ")),
        "set the function's handler to a script in its code such as `public/index.php`, or name it: `hearth lambda PATH`",
    ))
}

/// Returns what the environment names as the function's handler: an HTTP application, unless it names another file.
pub(crate) fn handler(environment: &Environment) -> Handler {
    path(None, environment).map_or(Handler::Http, |path| function::handler_of(&path))
}

/// Returns the settings that Lambda's environment implies.
fn platform(environment: &Environment) -> Vec<(&'static str, &'static str, Raw)> {
    let mut platform = vec![
        // An invocation has its own deadline, and a crowd of its own to wait in.
        ("php.request_timeout", "AWS_LAMBDA_RUNTIME_API", Raw::Text("off".into())),
    ];
    if let Some(level) = environment.variable(LEVEL) {
        let level = match level.to_ascii_lowercase().as_str() {
            "fatal" => "error".to_owned(),
            other => other.to_owned(),
        };
        platform.push(("log.level", LEVEL, Raw::Text(level)));
    }
    if let Some(format) = environment.variable(FORMAT) {
        platform.push(("log.format", FORMAT, Raw::Text(format.to_ascii_lowercase())));
    }
    platform.extend(emulate::platform(environment));
    let concurrency = concurrency(environment);
    if concurrency == "1" {
        // One invocation, one thing to do.
        platform.push(("server.threads", CONCURRENCY, Raw::Text("1".into())));
    }
    for key in ["lambda.concurrency", "php.workers"] {
        platform.push((key, CONCURRENCY, Raw::Text(concurrency.into())));
    }
    platform
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_values_rank_between_settings_and_defaults() {
        let folder = tempfile::tempdir().unwrap();
        let read = |variables: &[(&str, &str)], flags| {
            let environment = Environment::for_test(folder.path(), variables);
            config::load_on(platform(&environment), folder.path(), None, flags, &environment)
                .unwrap()
        };
        let here = [("AWS_LAMBDA_LOG_LEVEL", "WARN"), ("AWS_LAMBDA_MAX_CONCURRENCY", "4")];
        let settings = read(&here, Vec::new());
        assert_eq!(settings.log.level.0, "warn");
        assert_eq!(settings.php.request_timeout, None);
        assert_eq!(settings.php.workers.0, NonZeroUsize::new(4));
        let said = [here.as_slice(), &[("HEARTH_PHP_WORKERS", "2")]].concat();
        let settings = read(&said, vec![("log.level", Raw::Text("debug".into()))]);
        assert_eq!(settings.log.level.0, "debug");
        assert_eq!(settings.php.workers.0, NonZeroUsize::new(2));
    }

    #[test]
    fn workers_equal_concurrent_invocations() {
        let folder = tempfile::tempdir().unwrap();
        for (variables, workers, told) in [
            (&[][..], 1, None),
            (&[("HEARTH_PHP_WORKERS", "16")], 1, Some(16)),
            (&[("HEARTH_PHP_WORKERS", "1")], 1, None),
            (&[("HEARTH_LAMBDA_CONCURRENCY", "3")], 3, None),
            (&[("AWS_LAMBDA_MAX_CONCURRENCY", "4")], 4, None),
            (&[("AWS_LAMBDA_MAX_CONCURRENCY", "4"), ("HEARTH_PHP_WORKERS", "2")], 4, Some(2)),
        ] {
            let environment = Environment::for_test(folder.path(), variables);
            let platform = platform(&environment);
            let mut settings =
                config::load_on(platform, folder.path(), None, Vec::new(), &environment).unwrap();
            let given = follow_lanes(&mut settings, &environment);
            let given = given.map(NonZeroUsize::get);
            assert_eq!(
                (settings.php.workers.0, given),
                (NonZeroUsize::new(workers), told),
                "{variables:?}"
            );
        }
    }
}
