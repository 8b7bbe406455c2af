//! `hearth verify`: replays requests in `request` and in other models, and reports every answer that differs, with the requests that cause it.
//!
//! Invariants
//! - No running server is touched. The application's own files and databases are used as its requests use them.
//! - Exit status: 0 no difference, 1 differences, 2 it could not be run.

mod apart;
mod cause;
mod compare;
mod crawl;
mod files;
mod fixed;
mod har;
mod instance;
mod jar;
mod log;
mod markup;
mod minimise;
mod report;
mod request;
mod search;
mod sessions;
mod sources;
mod tokens;

use std::num::NonZeroUsize;

use pool::Model;

use self::apart::apart;
use self::files::Latest;
use self::instance::{NotRun, Subject};
use self::report::Report;
use self::request::replay_order;
use self::search::{Replay, Runs};
pub(crate) use self::sources::Source;
use crate::app::detect::{self, Kind};
use crate::app::target::Target;
use crate::config::{self, Environment, Settings};
use crate::failure::Failure;
use crate::system::async_runtime;
use crate::system::users::PhpUser;

/// How often each request is replayed, unless `--requests` says how many there are in all.
const PASSES: usize = 3;

/// `hearth verify`.
#[derive(Debug)]
pub(crate) struct Verify {
    /// The application.
    pub target: Target,
    /// Where the requests come from.
    pub source: Source,
    /// `--models`.
    pub models: Vec<Model>,
    /// `--requests`: how many each model gets.
    pub requests: Option<usize>,
    /// `--max-requests`: how many distinct ones.
    pub most: usize,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--reset`.
    pub reset: Option<String>,
    /// `--ignore`.
    pub ignored: Vec<String>,
    /// `--unsafe`.
    pub with_unsafe: bool,
    /// `--format json`.
    pub json: bool,
}

/// Verifies an application. Returns the report, and whether nothing differs.
pub(crate) fn run(verify: &Verify, environment: &Environment) -> Result<(String, bool), Failure> {
    verified(verify, environment).map_err(Failure::could_not_run)
}

fn verified(verify: &Verify, environment: &Environment) -> Result<(String, bool), Failure> {
    let folder = detect::folder_of(&verify.target.path)?;
    let settings = config::load(
        &folder,
        verify.target.config.as_deref(),
        verify.target.flags.clone(),
        environment,
    )?;
    let sessions = sessions::not_compared(&settings, verify, environment)?;
    let (settings, rules) = apart(settings);
    cannot_be_here(&settings, environment)?;
    let user = PhpUser::of(&settings, environment)?;
    let run_dir = sessions::folder(user.as_ref(), environment).map_err(|error| {
        Failure::caused_by(
            "cannot make a folder for sessions",
            &error,
            "set TMPDIR to a folder that can be written",
        )
    })?;
    let subject = Subject {
        target: &verify.target,
        settings,
        environment,
        sessions: run_dir,
        moves_sessions: sessions.is_none(),
        ignored: verify.ignored.clone(),
        latest: Latest::default(),
    };
    let mut report = Report::default();
    report.notes.extend(rules);
    report.notes.extend(sessions);
    // A thread of its own for the pool, while this one looks at files.
    let runtime = async_runtime::start(NonZeroUsize::MIN.saturating_add(1))?;
    let runs = Runs { subject: &subject, folder: &folder, reset: verify.reset.as_deref() };
    runtime.block_on(all(verify, &runs, &mut report))?;
    let text = if verify.json { report.json() } else { report.text() };
    Ok((text, report.is_clean()))
}

/// Fails if the application would run otherwise than in a server.
fn cannot_be_here(settings: &Settings, environment: &Environment) -> Result<(), Failure> {
    let as_another = settings.server.user.is_some_and(|user| user.0 != 0);
    if environment.is_root && as_another && settings.php.user.is_none() {
        return Err(Failure::misused(
            "the server runs as another user (`server.user`), and this is root",
            "run `hearth verify` as that user",
        ));
    }
    if !settings.databases.connectors.0.is_empty() {
        return Err(Failure::misused(
            "the application's connectors to databases (`databases.connectors`) run in a server only",
            "verify a copy whose configuration names the database servers themselves",
        ));
    }
    Ok(())
}

async fn all(verify: &Verify, runs: &Runs<'_>, report: &mut Report) -> Result<(), Failure> {
    let reference_model = reference_model(verify)?;
    report.reference = reference_model.name();
    if verify.reset.is_none() {
        report.notes.push(
            "no --reset: each run starts with the files and databases that the last one left"
                .to_owned(),
        );
    }
    let (requests, source) =
        sources::requests(verify, runs, reference_model, &mut report.notes).await?;
    let wanted = verify.requests.unwrap_or(requests.len() * PASSES);
    let seed = verify.seed.unwrap_or(1);
    let order = replay_order(requests.len(), wanted, seed);
    let replay = Replay { requests, order };
    report.application = runs.subject.plan(reference_model)?.plan.explain(None);
    report.source = source;
    report.seed = seed;
    report.requests = replay.requests.len();
    report.replayed = replay.order.len();
    let mut reference = match runs.reference(reference_model, &replay).await {
        Ok(reference) => reference,
        Err(NotRun::Failed(failure)) => return Err(failure),
        Err(NotRun::Impossible(why)) => {
            let what = format!("`{}` cannot run here: {why}", reference_model.name());
            return Err(Failure::failed(what, "`hearth check` says more"));
        }
    };
    if reference.all_failed {
        reference.end().await;
        return Err(Failure::failed(
            format!(
                "the application answers every request with a server error in `{}`",
                reference_model.name()
            ),
            "`hearth check` shows the error; the application's log says more",
        ));
    }
    report.watched_files = reference.watched_files;
    report.notes.append(&mut reference.notes);
    report.masked = reference.masked();
    report.not_comparable = reference.incomparable(&replay);
    let mut outcome = Ok(());
    for model in &verify.models {
        match runs.compare(*model, &mut reference, &replay).await {
            Ok(of_model) => report.models.push(of_model),
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
    }
    reference.end().await;
    outcome?;
    if report.models.iter().all(|model| !model.ran()) {
        let what =
            "none of the models can run this application here, so there is nothing to compare";
        return Err(Failure::failed(what, "`hearth check` says which model runs it, and why"));
    }
    Ok(())
}

/// Returns the model whose answers are right: PHP's own request, or a new process for each request if only a worker script answers.
fn reference_model(verify: &Verify) -> Result<Model, Failure> {
    let application = detect::detect(&verify.target.path)?;
    Ok(if application.kind == Kind::WorkerScript { Model::Prespawn } else { Model::Request })
}
