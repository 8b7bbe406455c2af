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
mod tokens;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use pool::Model;

use self::apart::apart;
use self::files::Latest;
use self::instance::{NotRun, Subject};
use self::report::Report;
use self::request::{Recorded, replay_order};
use self::search::{Replay, Runs};
use crate::app::applications;
use crate::app::detect::{self, Kind};
use crate::app::php;
use crate::app::target::Target;
use crate::config::{self, Environment, Settings};
use crate::failure::Failure;
use crate::ops::log as output;
use crate::system::async_runtime;
use crate::system::run_dir::RunDir;
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

/// The source of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The links of the application, from `/` on.
    Crawl,
    /// `--log`.
    Log(PathBuf),
    /// `--har`.
    Har(PathBuf),
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
    let sessions = session_handler(&settings, verify, environment)?;
    let (settings, rules) = apart(settings);
    cannot_be_here(&settings, environment)?;
    let user = PhpUser::of(&settings, environment)?;
    let run_dir = sessions_folder(user.as_ref(), environment).map_err(|error| {
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

/// Makes the folder of PHP's session files, which PHP's user can write.
fn sessions_folder(user: Option<&PhpUser>, environment: &Environment) -> std::io::Result<RunDir> {
    let run_dir = RunDir::new(None, &environment.temporary_folder())?;
    if let Some(user) = user {
        user.identity.share(run_dir.path(), 0o770)?;
    }
    Ok(run_dir)
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
    let (requests, source) = requests(verify, runs, reference_model, &mut report.notes).await?;
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

/// Returns the distinct requests to replay, and their source in words.
async fn requests(
    verify: &Verify,
    runs: &Runs<'_>,
    reference: Model,
    notes: &mut Vec<String>,
) -> Result<(Vec<Recorded>, String), Failure> {
    let (found, source) = match &verify.source {
        Source::Crawl => (crawled(runs, reference, verify.most).await?, "crawl from /".to_owned()),
        Source::Log(path) => {
            let (found, unread) = log::requests(&read(path, "--log")?);
            if unread > 0 {
                notes.push(format!("{unread} lines of the log hold no request that can be sent"));
            }
            (found, format!("log {}", path.display()))
        }
        Source::Har(path) => {
            let (found, others) = har::requests(&read(path, "--har")?).map_err(|error| {
                let what = format!("{} is no HAR file", path.display());
                Failure::caused_by(what, &error, "save one with a browser's developer tools: Network, \u{201c}Save all as HAR\u{201d}")
            })?;
            if others > 0 {
                notes.push(format!(
                    "{others} requests for other hosts than the first one are left out"
                ));
            }
            (found, format!("HAR {}", path.display()))
        }
    };
    let all = found.len();
    let sends_unsafe = verify.with_unsafe || matches!(verify.source, Source::Har(_));
    let allowed: Vec<Recorded> =
        found.into_iter().filter(|request| sends_unsafe || request.is_safe()).collect();
    if allowed.len() < all {
        let left_out = all - allowed.len();
        notes.push(format!("{left_out} requests with other methods than GET, HEAD and OPTIONS are left out: a log has no bodies (`--unsafe` sends them without)"));
    }
    let mut seen = HashSet::new();
    let mut distinct: Vec<Recorded> =
        allowed.into_iter().filter(|request| seen.insert(request.clone())).collect();
    if distinct.is_empty() {
        let what = format!("no request to replay in {source}");
        return Err(Failure::misused(
            what,
            "name a log or HAR file with requests for this application, or leave both out for a crawl",
        ));
    }
    if distinct.len() > verify.most {
        let left_out = distinct.len() - verify.most;
        notes.push(format!("{left_out} further requests are left out (`--max-requests`)"));
        distinct.truncate(verify.most);
    }
    Ok((distinct, source))
}

fn read(path: &Path, flag: &str) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::caused_by(
            format!("cannot read {}", path.display()),
            &error,
            format!("correct `{flag}`"),
        )
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Follows the links of the application from `/` on, breadth first.
async fn crawled(runs: &Runs<'_>, model: Model, most: usize) -> Result<Vec<Recorded>, Failure> {
    let mut instance = match runs.boot(model).await {
        Ok(instance) => instance,
        Err(NotRun::Failed(failure)) => return Err(failure),
        Err(NotRun::Impossible(why)) => {
            return Err(Failure::failed(why, "`hearth check` says more"));
        }
    };
    output::plain("verify: crawl from /");
    let mut targets = vec!["/".to_owned()];
    let mut known: HashSet<String> = targets.iter().cloned().collect();
    let mut next = 0;
    while let Some(target) = targets.get(next) {
        let seen = instance.ask(&Recorded::get(target)).await;
        next += 1;
        for link in seen.links {
            if targets.len() < most && known.insert(link.clone()) {
                targets.push(link);
            }
        }
    }
    instance.end().await;
    Ok(targets.into_iter().map(Recorded::get).collect())
}

/// Returns why the content of sessions is not compared; none if PHP writes them to files that can be watched.
fn session_handler(
    settings: &Settings,
    verify: &Verify,
    environment: &Environment,
) -> Result<Option<String>, Failure> {
    let own = |name: &str| {
        settings.php.ini.0.iter().rev().find(|(set, _)| set == name).map(|(_, value)| value.clone())
    };
    if own("session.save_path").is_some() {
        return Ok(Some(
            "session.save_path is set: sessions are compared if it is in the application's folder"
                .to_owned(),
        ));
    }
    let Some(application) = applications::at_path(&verify.target.path, settings)? else {
        return Ok(None);
    };
    let handler = match own("session.save_handler") {
        Some(handler) => handler,
        None if application.kind == Kind::StaticFiles => return Ok(None),
        None => handler_of_php_ini(settings, environment)?,
    };
    Ok((handler != "files")
        .then(|| format!("sessions are not compared: session.save_handler is `{handler}`")))
}

/// Returns the session handler of php.ini and the files beside it.
fn handler_of_php_ini(settings: &Settings, environment: &Environment) -> Result<String, Failure> {
    let worker = php::program(Model::Request, settings, environment)?;
    let user = php::asks_as(None, settings, environment)?;
    let info = php::info(&worker, settings, user.as_ref())?;
    let scanned = info.scanned.as_array().into_iter().flatten().filter_map(|file| file.as_str());
    let files = info.ini_file.as_deref().into_iter().chain(scanned);
    let mut handler = "files".to_owned();
    for file in files {
        let text = std::fs::read_to_string(file.trim()).unwrap_or_default();
        for line in text.lines() {
            if let Some((name, value)) = line.split_once('=')
                && name.trim() == "session.save_handler"
            {
                value.trim().trim_matches('"').clone_into(&mut handler);
            }
        }
    }
    Ok(handler)
}
