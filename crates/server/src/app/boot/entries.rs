//! The scripts beside a front controller that waits: which of them wait, too, and the options of their workers.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::uri::PathAndQuery;
use pool::{EntryScripts, Model, StartError};

use super::reason::Reason;
use crate::app::detect;
use crate::app::own_requests::request_of_ours;
use crate::app::plan::{PhpPlan, Plan, WorkerScript};
use crate::config::{Auto, Settings};

/// The scripts of one application.
#[derive(Debug)]
struct Entries {
    /// The options of the front controller.
    front: pool::Options,
    plan: Plan,
    settings: Settings,
}

impl EntryScripts for Entries {
    fn options(&self, script: &Path) -> Option<pool::Options> {
        let name = self.plan.script_name(script)?;
        if !would_wait(&self.settings.php.entries, &name, script) {
            return None;
        }
        let mut plan = self.plan.clone();
        plan.application.front_controller = Some(script.to_owned());
        if let Some(php) = &mut plan.php {
            php.script = Some(WorkerScript::Entry(script.to_owned()));
        }
        let mut warm_up = plan.warm_up(&self.settings);
        let named = &self.settings.php.warm_up.0;
        if named.is_none() || (warm_up.is_empty() && matches!(named, Some(Some(_)))) {
            warm_up = PathAndQuery::try_from(name).into_iter().collect();
        }
        if !self.front.model.boots_in_zygote() {
            warm_up.clear();
        }
        let request = |path| request_of_ours(path, &plan, "warm-up");
        Some(pool::Options {
            worker_script: Some(script.to_owned()),
            warm_up: warm_up.into_iter().map(request).collect(),
            ..self.front.clone()
        })
    }

    fn reason(&self, error: &StartError) -> String {
        match error {
            StartError::Boot { output } => Reason::of(output).line(),
            StartError::NoSnapshot { why } | StartError::Unfit { why } => why.clone(),
            other => other.to_string(),
        }
    }
}

/// Returns the scripts in the document root that would wait, beside the front controller, by their paths in the URL space. Reads the folder.
pub(crate) fn entry_scripts(plan: &Plan, settings: &Settings) -> Vec<String> {
    /// The most files and folders that are looked at.
    const MOST: usize = 10_000;
    let Some(entries) = plan.is_entry().then_some(&settings.php.entries) else {
        return Vec::new();
    };
    let root = &plan.application.document_root;
    let mut folders = vec![root.clone()];
    let (mut found, mut seen) = (Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            seen += 1;
            if seen > MOST {
                break;
            }
            let path = entry.path();
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if is_hidden || plan.application.front_controller.as_ref() == Some(&path) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(_) => found.extend(
                    plan.script_name(&path).filter(|name| would_wait(entries, name, &path)),
                ),
                Err(_) => {}
            }
        }
    }
    found.sort_unstable();
    found
}

/// Returns whether the script waits: its text says so, or a setting.
fn would_wait(entries: &Auto<Option<Vec<String>>>, name: &str, script: &Path) -> bool {
    if script.extension() != Some(OsStr::new("php")) {
        return false;
    }
    match entries {
        Auto(None) => detect::awaits(script),
        Auto(Some(patterns)) => {
            let name = name.trim_start_matches('/');
            let fits = |pattern: &String| matches(pattern.trim_start_matches('/'), name);
            patterns.iter().flatten().any(fits)
        }
    }
}

/// Returns whether a path matches a pattern in which `*` stands for any text without a slash.
fn matches(pattern: &str, path: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == path };
    let Some(after) = path.strip_prefix(start) else { return false };
    let segment = after.find('/').unwrap_or(after.len());
    (0..=segment).any(|at| after.get(at..).is_some_and(|after| matches(rest, after)))
}

/// Adds how all other scripts run, if the front controller waits for its requests. `of`: the options of a plan.
pub(crate) fn with_others(
    mut options: pool::Options,
    plan: &Plan,
    settings: &Settings,
    of: impl FnOnce(&PhpPlan, &Plan) -> pool::Options,
) -> pool::Options {
    let front = options.clone();
    let Some(entry) = &mut options.entry else { return options };
    let mut others = plan.clone();
    others.become_model(Model::Request);
    let Some(php) = &others.php else { return options };
    entry.others = Some(pool::Others {
        rest: Box::new(of(php, &others)),
        idle_timeout: settings.php.workers_idle_timeout,
        burst: settings.php.workers_burst,
        scripts: Arc::new(Entries { front, plan: plan.clone(), settings: settings.clone() }),
        known: Vec::new(),
    });
    options
}

/// Names the scripts that waited in the last generation, by their paths in the URL space.
pub(crate) fn boot_known(options: &mut pool::Options, plan: &Plan, names: &[String]) {
    let Some(others) = options.entry.as_mut().and_then(|entry| entry.others.as_mut()) else {
        return;
    };
    let root = &plan.application.document_root;
    let scripts = names.iter().map(|name| root.join(name.trim_start_matches('/')));
    let scripts: Vec<PathBuf> = scripts.filter(|script| script.is_file()).collect();
    others.known = scripts;
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_is_any_text_within_a_folder() {
        for (pattern, path) in [
            ("api.php", "api.php"),
            ("api/*.php", "api/one.php"),
            ("wp-admin/*", "wp-admin/edit.php"),
            ("*/*.php", "a/b.php"),
            ("*", "index.php"),
            ("w*-*n.php", "wp-login.php"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("api.php", "xapi.php"),
            ("api.php", "api.php5"),
            ("api/*.php", "api/v1/one.php"),
            ("*", "a/b.php"),
            ("wp-admin/*", "wp-admin/network/edit.php"),
            ("", "index.php"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }
}
