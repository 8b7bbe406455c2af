//! `hearth stop`: a running server finishes what it has and ends, or ends at once.
//!
//! Invariants
//! - It returns when the server's process has ended: what comes after it may take its address.

use std::time::Duration;

use tokio::time::Instant;

use crate::app::target::Target;
use crate::commands::remote::{Server, find};
use crate::commands::top::figures_of;
use crate::config::Environment;
use crate::failure::Failure;
use crate::ops::control::Stopping;
use crate::ops::format::count;
use crate::ops::log;

/// The interval between status requests to a server that ends.
const BEAT: Duration = Duration::from_millis(500);
/// The time that the end of the server's processes may take beyond its patience.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// Runs `hearth stop`: a server drains or ends at once, and the command waits until its process is gone. It prints what the server waits
/// for.
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
            log::line(&waits);
            said = waits;
        }
    }
}

/// Describes what the server waits for. `None` when it no longer answers, or waits for nothing.
fn what_is_waited_for(server: &Server, left: Duration) -> Option<String> {
    let figures = figures_of(&server.status().ok()?).ok()?;
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
    let instances = figures.instances();
    part(instances, "process that finishes its work", "processes that finish their work");
    if parts.is_empty() {
        return None;
    }
    let left = left.as_secs();
    Some(format!("waiting for {}, at most {left} s more", parts.join(", ")))
}
