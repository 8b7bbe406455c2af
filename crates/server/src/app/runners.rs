//! Runners that frameworks bring for FrankenPHP, and what they expect of the server that starts them.
//!
//! Invariants
//! - Only names are known here: of files, classes and variables. Nothing of the application is run.
//! - Variables that the environment or the settings have already stay.

use std::path::{Path, PathBuf};

use crate::app::detect::Application;
use crate::config::{Environment, Settings, of_php};

/// A worker script that an application keeps for FrankenPHP; Octane's has this name. Hearth's own scripts do more for the models that
/// share nothing, so in a framework's project it runs only when it is named.
pub(crate) fn is_for_frankenphp(script: &Path) -> bool {
    script.ends_with("frankenphp-worker.php")
}

/// Returns the environment that `artisan octane:start --server=frankenphp` gives its script.
pub(crate) fn octane_environment(
    application: &Application,
    settings: &Settings,
    environment: &Environment,
) -> Vec<(String, String)> {
    let folder = application.folder.display().to_string();
    // The script would end after this many requests. Hearth replaces workers itself (`php.max_requests`).
    let never = u32::MAX.to_string();
    let wanted =
        [("APP_BASE_PATH", folder), ("LARAVEL_OCTANE", "1".into()), ("MAX_REQUESTS", never)];
    let set = |name: &str| of_php(name, settings, environment).is_some();
    let missing = wanted.into_iter().filter(|(name, _)| !set(name));
    missing.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the front controller if a runtime is named that runs it in a loop: runtime/frankenphp-symfony's, or another with such a name.
/// The Runtime component reads the name from `APP_RUNTIME` or `composer.json`.
pub(crate) fn symfony_runtime(
    application: &Application,
    settings: &Settings,
    environment: &Environment,
) -> Option<PathBuf> {
    let named = of_php("APP_RUNTIME", settings, environment)
        .map(str::to_owned)
        .or_else(|| runtime_of_composer(&application.folder))?
        .to_ascii_lowercase();
    let loops = named.contains("frankenphp") || named.contains("hearth");
    application.front_controller.clone().filter(|_| loops)
}

/// `extra.runtime.class` of `composer.json`.
fn runtime_of_composer(folder: &Path) -> Option<String> {
    let text = std::fs::read(folder.join("composer.json")).ok()?;
    let composer: serde_json::Value = serde_json::from_slice(&text).ok()?;
    composer.pointer("/extra/runtime/class")?.as_str().map(str::to_owned)
}
