//! Problems of PHP's workers.

use std::time::Duration;

use pool::{Ending, PoolStatus, WorkerState};

use crate::ops::fallback::Fallback;
use crate::ops::format::counted;
use crate::ops::problems::{Level, Problems};
use crate::ops::status::{OfApplication, Status};

/// The age from which an event is no longer a problem.
const RECENT: Duration = Duration::from_mins(5);

/// Adds the problems of all applications' workers.
pub(crate) fn problems_of(status: &Status, problems: &mut Problems) {
    if let Some(pool) = &status.pool {
        let ready = status.state == "ready";
        match &status.applications[..] {
            all @ [_, _, ..] => all.iter().for_each(|one| of_application(one, ready, problems)),
            _ => of_pool(pool, ready, problems),
        }
        of_workers(pool, problems);
        of_restores(pool, problems);
    }
    for one in &status.applications {
        of_model(one, status.applications.len() > 1, problems);
    }
}

fn of_pool(pool: &PoolStatus, ready: bool, problems: &mut Problems) {
    let serves = |state| matches!(state, WorkerState::Idle | WorkerState::Busy);
    if ready && !pool.workers.iter().any(|worker| serves(worker.state)) {
        problems.add(Level::Error, "No worker can take a request.");
    }
    if pool.overloaded {
        let text =
            "More requests come than are answered: those that would wait for too long get 503.";
        problems.add(Level::Error, text);
    }
    if pool.backlog > 0 {
        let waiting = if pool.backlog == 1 { "request waits" } else { "requests wait" };
        let text = format!("{} {waiting} for a worker: all of them are busy.", pool.backlog);
        problems.add(Level::Warning, text);
    }
}

/// Adds the problems of one of several applications.
fn of_application(one: &OfApplication, ready: bool, problems: &mut Problems) {
    let name = &one.name;
    if ready && one.model.is_some() && one.ready == 0 {
        problems.add(Level::Error, format!("No worker of `{name}` can take a request."));
    }
    if one.overloaded {
        let text = format!(
            "More requests come to `{name}` than it answers: those that would wait for too long get 503."
        );
        problems.add(Level::Error, text);
    }
    if one.backlog > 0 {
        let waiting = if one.backlog == 1 { "request waits" } else { "requests wait" };
        let text =
            format!("{} {waiting} for a worker of `{name}`: all of them are busy.", one.backlog);
        problems.add(Level::Warning, text);
    }
}

/// Adds the fallback of an application.
fn of_model(one: &OfApplication, several: bool, problems: &mut Problems) {
    let Some(Fallback { wished, instead, why, hint, costs, degraded: _ }) = &one.fallback else {
        return;
    };
    let costs = costs.as_ref().map(|costs| format!(" Measured at the start: {}.", costs.text()));
    let costs = costs.unwrap_or_default();
    let (wished, instead) = (wished.name(), instead.name());
    let whose = if several { format!(" of `{}`", one.name) } else { String::new() };
    let text = format!(
        "The model{whose} is {instead} in place of {wished}: {why}.{costs} What to do: {hint}."
    );
    problems.add(Level::Warning, text);
}

/// Adds restores that have left a difference: a fault of Hearth, or of code that writes to memory that is not its own.
fn of_restores(pool: &PoolStatus, problems: &mut Problems) {
    let restores = pool.restores;
    if restores.differing > 0 {
        let text = format!(
            "{} of {} verified restores left memory that differs from the snapshot: the log names the page and the request.",
            restores.differing, restores.verified
        );
        problems.add(Level::Error, text);
    }
}

/// Adds recent ends of workers.
fn of_workers(pool: &PoolStatus, problems: &mut Problems) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = now.unwrap_or_default().saturating_sub(RECENT).as_secs_f64();
    for (ending, level, what) in [
        (Ending::Crashed, Level::Error, "died"),
        (Ending::TimedOut, Level::Warning, "had to be killed"),
        (Ending::Retired, Level::Warning, "could not be put back"),
    ] {
        let mut of_kind =
            pool.ended.iter().filter(|end| end.ending == ending && end.at >= since).peekable();
        let Some(last) = of_kind.peek() else { continue };
        let last = last.reason.clone();
        let number = of_kind.count();
        let workers = counted(number, "worker");
        problems
            .add(level, format!("{workers} {what} in the last five minutes; the last: {last}."));
    }
}
