//! Boots the application once, as `hearth serve` would, has it answer one request, and ends it again.
//!
//! Invariants
//! - Every step has a time limit: `php.boot_timeout` for each boot, and a few seconds for the request and the end.
//! - No process is left behind, and nothing that runs is touched: no connector, no broker, no socket of a server.
//! - What PHP writes to its log and its output meanwhile is read, and not printed.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pool::{GroupState, Pool, StartError};
use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use super::php::in_place_of_another;
use super::{Report, Topic};
use crate::app::boot::{
    Reason, boot_failure, boot_known, entry_scripts, own_files, pool_options, with_others,
};
use crate::app::detect::Application;
use crate::app::measure;
use crate::app::plan::{PhpPlan, Plan};
use crate::app::preload;
use crate::config::{Auto, Environment, Settings};
use crate::ops::preloaded::Preloaded;
use crate::system::async_runtime;

/// The time that the processes have to end.
const GOODBYE: Duration = Duration::from_secs(1);

/// A finding that is a problem only if nothing else answers in its place.
type Finding = (Topic, String, String);

/// Returns why an application is not booted here, in words that follow "not booted: ".
fn not_here(plan: &Plan, settings: &Settings, environment: &Environment) -> Option<&'static str> {
    let in_place_of = in_place_of_another(plan, settings, environment);
    if plan.application.kind.is_function() {
        Some("functions are booted by `hearth lambda --emulate`")
    } else if in_place_of == Some("php.user") {
        Some("PHP's user (`php.user`) cannot use the application, and this is root")
    } else if in_place_of.is_some() {
        Some(
            "the server runs as another user (`server.user`), and this is root: run `hearth check` as that user",
        )
    } else if !settings.databases.connectors.0.is_empty() {
        Some("its connectors to databases (`databases.connectors`) run in a server only")
    } else {
        None
    }
}

/// Returns these settings for a boot that uses a folder of its own, in place of the one where a server may run.
pub(super) fn apart(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.server.run_dir = Auto(None);
    settings
}

/// Boots the application and reports what is wrong with that.
pub(crate) fn look(
    report: &mut Report,
    plan: &Plan,
    settings: &Settings,
    environment: &Environment,
) {
    if let Some(why) = not_here(plan, settings, environment) {
        return report.fine(Topic::Application, format!("not booted: {why}"));
    }
    let settings = &apart(settings);
    let runtime = match async_runtime::start(NonZeroUsize::MIN) {
        Ok(runtime) => runtime,
        Err(failure) => return report.failure(Topic::System, &failure),
    };
    let heard = Heard::default();
    let subscriber = tracing_subscriber::registry().with(heard.clone());
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(booted(report, plan.clone(), (settings, environment), &heard));
    });
}

async fn booted(
    report: &mut Report,
    mut plan: Plan,
    (settings, environment): (&Settings, &Environment),
    heard: &Heard,
) {
    let own = match own_files(settings, &plan, environment) {
        Ok(own) => own,
        Err(failure) => return report.failure(Topic::System, &failure),
    };
    let mut replaced: Vec<Finding> = Vec::new();
    let pool = loop {
        let php = plan.php.as_ref().expect("only what runs PHP is booted");
        let of = |php: &PhpPlan, plan: &Plan| {
            pool_options(php, plan, settings, own.as_ref(), None, None)
        };
        let mut options = with_others(of(php, &plan), &plan, settings, of);
        boot_known(&mut options, &plan, &entry_scripts(&plan, settings));
        let one =
            pool::Options { workers: NonZeroUsize::MIN, scaling: None, slow: None, ..options };
        let error = match Pool::start(one).await {
            Ok(pool) => break pool,
            Err(error) => error,
        };
        let model = php.model.name();
        let Some(fallback) = plan.fit_to_application(&error, None) else {
            report_all(report, replaced, false);
            return match &error {
                StartError::Boot { output } => {
                    let reason = Reason::of(output);
                    let what =
                        format!("the application does not boot in `{model}`: {}", reason.line());
                    report.problem(Topic::Application, what, reason.hint);
                }
                _ => report.failure(Topic::Application, &boot_failure(&error)),
            };
        };
        let (what, instead) = (fallback.why, fallback.instead.name());
        let what = if fallback.degraded {
            format!(
                "the application does not boot in `{model}`, and `{instead}` would run in its place: {what}"
            )
        } else {
            format!("`{instead}` would run in place of `{model}`: {what}")
        };
        let topic = if fallback.degraded { Topic::Application } else { Topic::Model };
        replaced.push((topic, what, fallback.hint));
    };
    report_entries(report, &pool);
    if settings.php.preload.is_some() && preload::obstacle(&plan, settings).is_none() {
        let php = plan.php.as_ref().expect("only what runs PHP is booted");
        let options = || pool_options(php, &plan, settings, own.as_ref(), None, None);
        let learned = preload::learn(&plan, settings, own.as_ref(), None, options).await;
        report_preload(report, &learned.report);
    }
    let answered = answer(&pool, &plan, settings).await;
    pool.drain(GOODBYE).await;
    let model = plan.php.as_ref().map_or("", |php| php.model.name());
    report_all(report, replaced, answered.is_ok());
    match answered {
        Err(why) => report_answer(report, &why, &heard.lines()),
        Ok(what) => report.fine(Topic::Application, format!("boots in `{model}`{what}")),
    }
    if plan.is_entry() {
        report_others(report, &plan.application, &entry_scripts(&plan, settings));
    }
    // A line without an end is read when its process has ended.
    if let Some(first) = heard.printed() {
        report.warning(
            Topic::Application,
            format!("the boot prints output, which no client gets: {first}"),
            "let the boot print nothing, or write to the log with error_log()",
        );
    }
}

/// Reports which scripts run beside the front controller. None of them is run to its end: what they do is not known.
fn report_others(report: &mut Report, application: &Application, waiting: &[String]) {
    let mut scripts = other_scripts(application);
    scripts.retain(|script| !waiting.iter().any(|waits| waits.trim_start_matches('/') == script));
    let scripts = match &*scripts {
        [] => "there are none at the top of the document root".to_owned(),
        [first] => first.clone(),
        [first, .., last] if scripts.len() > SHOWN => {
            format!("{} from {first} to {last}", scripts.len())
        }
        some => some.join(", "),
    };
    let what = format!("all other scripts run as in `request`, which starts ({scripts})");
    report.fine(Topic::Application, what);
}

/// Names of so many other scripts are shown.
const SHOWN: usize = 5;

/// Returns the scripts beside the front controller, sorted.
fn other_scripts(application: &Application) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(&application.document_root) else { return Vec::new() };
    let front = application.front_controller.as_deref();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let scripts = paths.filter(|path| path.extension().is_some_and(|end| end == "php"));
    let others = scripts.filter(|path| Some(&**path) != front && path.is_file());
    let mut names: Vec<String> =
        others.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    names.sort_unstable();
    names
}

/// Reports which other scripts wait for their requests, and which were to and do not.
fn report_entries(report: &mut Report, pool: &Pool) {
    for group in pool.status().groups.iter().skip(1) {
        let script = &group.script;
        match (group.state, &group.why) {
            (GroupState::Failed, why) => report.warning(
                Topic::Application,
                format!(
                    "{script} is not booted ahead, and runs as in `request`: {}",
                    why.as_deref().unwrap_or_default()
                ),
                "name the scripts that wait in `php.entries`, or correct this one (docs/guide/await.md)",
            ),
            (GroupState::Waits, _) => {
                report.fine(Topic::Application, format!("{script} is booted ahead, too"));
            }
            (GroupState::Booting | GroupState::Rest, _) => {}
        }
    }
}

/// Reports what would be preloaded, and what would not.
fn report_preload(report: &mut Report, preloaded: &Preloaded) {
    if preloaded.off.is_some() {
        let hint = "take `php.preload` out, or remove the reason (docs/guide/preloading.md)";
        report.warning(Topic::Php, preloaded.text(), hint);
    } else {
        report.fine(Topic::Php, preloaded.text());
    }
    for refused in &preloaded.refused {
        let (files, why, first) = (refused.files, refused.why, &refused.first);
        report.fine(Topic::Php, format!("not preloaded: {files}, {why} ({first})"));
    }
}

/// Reports the models that did not start: it is a warning where another one answers.
fn report_all(report: &mut Report, findings: Vec<Finding>, answers: bool) {
    for (topic, what, hint) in findings {
        if answers {
            report.warning(topic, what, hint);
        } else {
            report.problem(topic, what, hint);
        }
    }
}

/// Reports an answer that is an error, by the message that PHP logged with it.
fn report_answer(report: &mut Report, why: &str, lines: &[Line]) {
    let last = lines.iter().rev().find(|line| line.is_error);
    let (what, hint) = if let Some(line) = last {
        let reason = Reason::of(&line.text);
        // It has booted.
        let what = format!("{why}: {}", reason.line());
        let is_about_boots = reason.hint.contains("php.boot_timeout");
        (what, if is_about_boots { "correct the application".to_owned() } else { reason.hint })
    } else {
        let hint = "the application's own log says why; `php.warm_up` names other paths, or `off`";
        (why.to_owned(), hint.to_owned())
    };
    report.problem(Topic::Application, what, hint);
}

/// Sends one warm-up request. Returns what was answered, in words.
async fn answer(pool: &Pool, plan: &Plan, settings: &Settings) -> Result<String, String> {
    if tokio::time::timeout(settings.php.boot_timeout, pool.filled()).await.is_err() {
        let limit = settings.php.boot_timeout;
        return Err(format!("no worker was ready within {limit:?} (`php.boot_timeout`)"));
    }
    let Some(path) = plan.measured_paths(settings).into_iter().next() else {
        return Ok(String::new());
    };
    measure::get(pool, plan, &path).await?;
    Ok(format!(", and answers GET {path}"))
}

/// Lines that PHP's processes wrote, kept by a layer of tracing.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<Line>>>);

/// A line of PHP's log or output.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    is_error: bool,
    is_output: bool,
}

impl Heard {
    fn lines(&self) -> Vec<Line> {
        self.0.lock().expect("no holder panics").clone()
    }

    /// Returns the first line that was printed, if any was.
    fn printed(&self) -> Option<String> {
        const LONGEST: usize = 200;
        let lines = self.lines();
        let first = lines.iter().find(|line| line.is_output && !line.is_error)?;
        Some(first.text.chars().take(LONGEST).collect())
    }
}

impl<S: tracing::Subscriber> Layer<S> for Heard {
    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target() != "php" {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let is_error = *event.metadata().level() == tracing::Level::ERROR;
        let line = Line { text: fields.message, is_error, is_output: fields.source == "stdout" };
        self.0.lock().expect("no holder panics").push(line);
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    source: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "source" {
            value.clone_into(&mut self.source);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}
