//! All clients at once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::args::{Arguments, Avalanche};
use crate::clients::Role;
use crate::clock;
use crate::mode::{Board, Phase, Run, beside, generator, open, own_cpu_since, round};
use crate::process;
use crate::tally::float;

pub(crate) fn run(arguments: &Arguments, mode: &Avalanche) -> Result<Value, String> {
    let channel = arguments.channel.clone().unwrap_or_else(|| "avalanche".to_owned());
    let run = Run::new(arguments, vec![channel], 0)?;
    let board = Board::new(1);
    let (before, own) = (run.server.look()?, process::own_cpu());
    let begin = clock::now();

    let (tally, took) = beside(
        &run,
        &board,
        |thread, clients| {
            let all = run.share(thread, mode.n).map(|_| (Role::Passer, 0));
            open(clients, usize::MAX, all)?;
            board.opened.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            Ok(())
        },
        || {
            // Connecting itself is bounded by the patience; the rest is for closing and for a machine that is busy.
            let limit = run.patience * 2 + Duration::from_secs(30);
            let threads = u64::from(run.threads);
            board.wait_until(limit, |board| {
                board.opened.load(std::sync::atomic::Ordering::Acquire) == threads
            });
            Ok(clock::now() - begin)
        },
    )?;
    debug_assert!(board.reached(Phase::Done), "beside has ended");
    let after = run.server.look()?;

    let subscribed = tally.subscribed.count();
    Ok(json!({
        "mode": "avalanche",
        "n": mode.n,
        "opening": tally.opening(),
        "success": round(float(subscribed) / f64::from(mode.n), 5),
        "all_ms": round(float(took) / 1e6, 1),
        "server": run.connections(before, after, subscribed),
        "generator": generator(own_cpu_since(own), &tally),
    }))
}
