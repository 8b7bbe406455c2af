//! What is wrong now, in words that say what to look at. Also a part of `/status`.

use std::time::Duration;

use pool::{Ending, PoolStatus, WorkerState};
use serde::Serialize;

use super::View;
use super::html::Html;
use super::words::count;
use crate::app::fallback::Fallback;
use crate::ops::admin::{OfApplication, Status, Traffic};
use crate::subsystems::tls;

/// What happened longer ago is no problem of now.
const RECENT: Duration = Duration::from_mins(5);
/// So large a part of all requests may fail without a word.
const TOLERATED: f64 = 0.01;

/// Whoever renews certificates has done it by then.
const DAYS_AHEAD: i64 = 7;

/// Something an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// How bad it is.
    pub level: Level,
    /// What it is, a sentence.
    pub text: String,
}

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Requests fail.
    Error,
    /// They may soon, or some did.
    Warning,
}

/// All of them, the worst first.
pub(crate) fn problems(status: &Status) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |level, text: String| problems.push(Problem { level, text });
    match status.state {
        "starting" => add(Level::Warning, "The server starts: it answers nothing yet.".into()),
        "draining" => add(Level::Warning, "The server ends: it takes no new requests.".into()),
        _ => {}
    }
    if let Some(pool) = &status.pool {
        let ready = status.state == "ready";
        match &status.applications[..] {
            all @ [_, _, ..] => all.iter().for_each(|one| of_application(one, ready, &mut add)),
            _ => of_pool(pool, ready, &mut add),
        }
        of_workers(pool, &mut add);
    }
    for one in &status.applications {
        of_model(one, status.applications.len() > 1, &mut add);
    }
    if let Some(why) = &status.reloads.last_failure {
        add(Level::Warning, format!("The last reload failed, what ran goes on: {why}."));
    }
    if let Some(acme) = &status.acme {
        of_acme(acme, &status.certificates, &mut add);
    }
    for certificate in &status.certificates {
        of_certificate(certificate, &mut add);
    }
    if let Some(traffic) = &status.traffic {
        of_traffic(traffic, &mut add);
    }
    if let Some(clients) = &status.clients {
        clients.problems(&mut add);
    }
    problems.sort_by_key(|problem| problem.level);
    problems
}

fn of_pool(pool: &PoolStatus, ready: bool, add: &mut impl FnMut(Level, String)) {
    let serves = |state| matches!(state, WorkerState::Idle | WorkerState::Busy);
    if ready && !pool.workers.iter().any(|worker| serves(worker.state)) {
        add(Level::Error, "No worker can take a request.".into());
    }
    if pool.overloaded {
        let text =
            "More requests come than are answered: those that would wait for too long get 503.";
        add(Level::Error, text.into());
    }
    if pool.backlog > 0 {
        let waiting = if pool.backlog == 1 { "request waits" } else { "requests wait" };
        let text = format!("{} {waiting} for a worker: all of them are busy.", pool.backlog);
        add(Level::Warning, text);
    }
}

/// The same, of one of several applications.
fn of_application(one: &OfApplication, ready: bool, add: &mut impl FnMut(Level, String)) {
    let name = &one.name;
    if ready && one.model.is_some() && one.ready == 0 {
        add(Level::Error, format!("No worker of `{name}` can take a request."));
    }
    if one.overloaded {
        let text = format!(
            "More requests come to `{name}` than it answers: those that would wait for too long get 503."
        );
        add(Level::Error, text);
    }
    if one.backlog > 0 {
        let waiting = if one.backlog == 1 { "request waits" } else { "requests wait" };
        let text =
            format!("{} {waiting} for a worker of `{name}`: all of them are busy.", one.backlog);
        add(Level::Warning, text);
    }
}

/// Of one that runs otherwise than it was to.
fn of_model(one: &OfApplication, several: bool, add: &mut impl FnMut(Level, String)) {
    let Some(Fallback { wished, instead, why, hint, costs }) = &one.fallback else { return };
    let (wished, instead) = (wished.name(), instead.name());
    let costs = costs.as_ref().map(|costs| format!(" Measured at the start: {}.", costs.text()));
    let costs = costs.unwrap_or_default();
    let whose = if several { format!(" of `{}`", one.name) } else { String::new() };
    let text = format!(
        "The model{whose} is {instead} in place of {wished}: {why}.{costs} What to do: {hint}."
    );
    add(Level::Warning, text);
}

/// What has become of workers lately.
fn of_workers(pool: &PoolStatus, add: &mut impl FnMut(Level, String)) {
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
        let workers = if number == 1 { "worker" } else { "workers" };
        add(
            level,
            format!("{number} {workers} {what} in the last five minutes; the last: {last}."),
        );
    }
}

fn of_acme(
    acme: &tls::AcmeStatus,
    certificates: &[tls::Status],
    add: &mut impl FnMut(Level, String),
) {
    let names = acme.domains.join(", ");
    let held = certificates.iter().any(|certificate| certificate.from == "authority");
    match &acme.last_failure {
        Some(why) if held => {
            add(Level::Warning, format!("The certificate for {names} was not renewed: {why}."));
        }
        Some(why) => add(Level::Error, format!("There is no certificate for {names} yet: {why}.")),
        None if !held => {
            add(Level::Warning, format!("The certificate for {names} has been asked for."));
        }
        None => {}
    }
}

fn of_certificate(certificate: &tls::Status, add: &mut impl FnMut(Level, String)) {
    let names = certificate.names.join(", ");
    match certificate.days_left {
        ..0 => {
            add(Level::Error, format!("The certificate for {names} is over: browsers refuse it."));
        }
        days @ 0..DAYS_AHEAD => add(
            Level::Warning,
            format!("The certificate for {names} holds for {days} days more, and was not renewed."),
        ),
        _ => {}
    }
}

fn of_traffic(traffic: &Traffic, add: &mut impl FnMut(Level, String)) {
    if traffic.per_second <= 0.0 {
        return;
    }
    let part = traffic.errors_per_second / traffic.per_second;
    if part > TOLERATED {
        let text = format!(
            "{:.0} % of the last minute's requests failed (status 500 and above).",
            (part * 100.0).max(1.0)
        );
        add(Level::Error, text);
    }
}

/// The part of the page.
pub(super) fn render(view: &View, html: &mut Html) {
    let problems = &view.status.problems;
    if problems.is_empty() {
        html.raw("<p class=\"well\">Nothing is wrong.</p>");
        return;
    }
    html.raw("<h2>What is wrong <span class=\"soft\">").text(count(problems.len() as u64));
    html.raw("</span></h2><ul>");
    for problem in problems {
        html.raw(match problem.level {
            Level::Error => "<li class=\"error\"><b>Error</b> ",
            Level::Warning => "<li class=\"warning\"><b>Warning</b> ",
        });
        html.text(&problem.text).raw("</li>");
    }
    html.raw("</ul>");
}
