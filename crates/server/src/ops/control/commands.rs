//! `hearth reload`, `hearth upgrade`, `hearth status` and `hearth stop`: a running server is asked, and what it says is put into words.
//!
//! Invariants
//! - `stop` ends when the server's process has: what comes after it may take its address.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;

use super::Stopping;
use super::find::{Server, find};
use crate::cli::Target;
use crate::commands::top::{Figures, Screen, Sort};
use crate::config::Environment;
use crate::failure::Failure;
use crate::ops::dashboard::words::count;
use crate::ops::log;
use crate::ops::state::Reloaded;
use crate::runtime::upgrade::Upgraded;

/// How often a server that ends is asked what it waits for.
const BEAT: Duration = Duration::from_millis(500);
/// What the end of its processes may take beyond its patience.
const LAST_WORDS: Duration = Duration::from_secs(15);
/// Columns of what is printed.
const WIDTH: usize = 160;

/// `hearth reload`: has the server of an application boot a new generation, and says what became of it.
pub(crate) fn reload(target: &Target, environment: &Environment) -> Result<String, Failure> {
    let reloaded: Reloaded = find(target, environment)?.ask("POST", "/reload")?;
    let mut text = format!(
        "generation {} after {} ms: {}\n",
        reloaded.generation, reloaded.milliseconds, reloaded.explanation
    );
    if !reloaded.restart_for.is_empty() {
        let names = reloaded.restart_for.join(", ");
        writeln!(text, "not applied, restart for it: {names}").expect("a String takes all");
    }
    Ok(text)
}

/// `hearth upgrade`: has the program that is installed now take a running server's place.
pub(crate) fn upgrade(target: &Target, environment: &Environment) -> Result<String, Failure> {
    let server = find(target, environment)?;
    let Upgraded { pid, version, milliseconds } = server.ask("POST", "/upgrade")?;
    let old = server.who.pid;
    Ok(format!(
        "process {pid} (Hearth {version}) has taken over after {milliseconds} ms; process {old} finishes what it has\n"
    ))
}

/// `hearth status`: what a running server does, for people or as its `/status`; and whether it takes requests.
pub(crate) fn status(
    target: &Target,
    json: bool,
    environment: &Environment,
) -> Result<(String, bool), Failure> {
    let server = find(target, environment)?;
    let body = server.status()?;
    let figures = figures(&body)?;
    let ready = figures.state == "ready";
    if json {
        return Ok((String::from_utf8_lossy(&body).into_owned(), ready));
    }
    let screen = Screen { sort: Sort::Time, colour: environment.colour_stdout() };
    let lines = screen.report(&figures, &server.run_dir().display().to_string(), WIDTH);
    Ok((lines.join("\n") + "\n", ready))
}

fn figures(body: &[u8]) -> Result<Figures, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let hint =
            "the server is of another version: ask it with its own `hearth`, or with `--json`";
        Failure::caused_by("what the server says of itself is not to be understood", &error, hint)
    })
}

/// `hearth stop`: has a server finish what it has, or end at once, and waits until its process is gone. What it waits for is said.
pub(crate) fn stop(
    target: &Target,
    now: bool,
    environment: &Environment,
) -> Result<String, Failure> {
    let server = find(target, environment)?;
    let pid = server.who.pid;
    let unseen = |error: std::io::Error| {
        let message = format!("cannot see the end of the server (process {pid})");
        Failure::caused_by(message, &error, "ask with `hearth status`")
    };
    let process = server.process().map_err(unseen)?;
    let began = Instant::now();
    let patience = match server.ask::<Stopping>("POST", if now { "/stop?now" } else { "/stop" }) {
        // It has none, and may have ended before its answer was out.
        _ if now => Duration::ZERO,
        Ok(stopping) => Duration::from_secs(stopping.patience_seconds),
        Err(failure) => return Err(failure),
    };
    let mut said = String::new();
    loop {
        let ended = if let Some(process) = &process {
            process.has_ended(BEAT).map_err(unseen)?
        } else {
            std::thread::sleep(BEAT);
            !server.is_there()
        };
        if ended {
            let took = began.elapsed().as_secs_f64();
            return Ok(format!("process {pid} has ended after {took:.1} s\n"));
        }
        if began.elapsed() > patience + LAST_WORDS {
            let hint = if now {
                "`kill -KILL` ends what does not end"
            } else {
                "`hearth stop --now` does not wait"
            };
            return Err(Failure::failed(format!("process {pid} has not ended yet"), hint));
        }
        if let Some(waits) = what_is_waited_for(&server, patience.saturating_sub(began.elapsed()))
            && waits != said
        {
            log::say(&waits);
            said = waits;
        }
    }
}

/// None: it says nothing any more, or has nothing left to wait for.
fn what_is_waited_for(server: &Server, left: Duration) -> Option<String> {
    let figures = figures(&server.status().ok()?).ok()?;
    let mut parts = Vec::new();
    let mut part = |number: u64, one: &str, many: &str| {
        if number > 0 {
            parts.push(format!("{} {}", count(number), if number == 1 { one } else { many }));
        }
    };
    let (running, waiting) = figures.under_way();
    part(running, "request that runs", "requests that run");
    part(waiting, "request that waits", "requests that wait");
    let sockets = figures.realtime.as_ref().map_or(0, |realtime| realtime.sockets);
    part(sockets, "connection of realtime", "connections of realtime");
    if parts.is_empty() {
        return None;
    }
    let left = left.as_secs();
    Some(format!("waiting for {}, at most {left} s more", parts.join(", ")))
}
