//! Clients that do nothing, and now and then an event for all of them.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::{Arguments, Idle};
use crate::clients::Role;
use crate::clock;
use crate::mode::{Board, NAP, NOBODY, Phase, Run, beside, generator, open, own_cpu_since, round};
use crate::process;
use crate::publisher::Publisher;
use crate::stamp::Stamp;
use crate::tally::float;

/// How long an event may take to reach the last client.
const REACH: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &Arguments, mode: &Idle) -> Result<Value, String> {
    let channel = arguments.channel.clone().unwrap_or_else(|| "idle".to_owned());
    let run = Run::new(arguments, vec![channel.clone()], 1)?;
    let board = Board::new(1);
    let inflight = usize::try_from(mode.inflight.div_ceil(run.threads)).expect("64 bits");
    let (before, slab, own) = (run.server.look()?, process::slab(), process::own_cpu());
    let begin = clock::now();

    let (tally, (opened, opened_after, held, broadcasts, slab_after)) = beside(
        &run,
        &board,
        |thread, clients| {
            open(clients, inflight, run.share(thread, mode.n).map(|_| (Role::Reader, 0)))?;
            board.live.fetch_add(clients.live() as u64, Ordering::AcqRel);
            board.opened.fetch_add(1, Ordering::AcqRel);
            let mut noted = 0;
            while !board.reached(Phase::Done) {
                clients.turn(NAP).map_err(|errno| format!("epoll: {errno}"))?;
                board.note(clients, &mut noted);
            }
            clients.close_all();
            Ok(())
        },
        || {
            let limit = run.patience * 2 + Duration::from_mins(2);
            let threads = u64::from(run.threads);
            if !board.wait_until(limit, |board| board.opened.load(Ordering::Acquire) == threads) {
                return Err(format!("clients were still connecting after {limit:?}"));
            }
            let (opened, opened_after) = (run.server.look()?, clock::now() - begin);
            if board.live.load(Ordering::Acquire) == 0 {
                return Err(NOBODY.to_owned());
            }
            thread::sleep(Duration::from_secs(mode.hold));
            let held = run.server.look()?;
            let slab_after = process::slab();
            let mut broadcasts = Vec::new();
            if mode.bcast > 0 {
                let api = arguments.api.unwrap_or(arguments.to);
                let connect = Publisher::connect(api, arguments.app.clone());
                let mut publisher =
                    connect.map_err(|error| format!("the HTTP API at {api}: {error}"))?;
                for count in 0..mode.bcast {
                    broadcasts.push(broadcast(
                        &run,
                        &board,
                        &mut publisher,
                        &channel,
                        count,
                        mode.n,
                    )?);
                }
            }
            Ok((opened, opened_after, held, broadcasts, slab_after))
        },
    )?;

    let subscribed = tally.subscribed.count();
    Ok(json!({
        "mode": "idle",
        "n": mode.n,
        "opening": tally.opening(),
        "opened_ms": round(float(opened_after) / 1e6, 1),
        "server": run.connections(before, opened, subscribed),
        "held": if run.server.is_known() {
            json!({"seconds": mode.hold, "cpu_s": round(held - opened, 3), "resident": held.resident,
                "resident_each": round((float(held.resident) - float(before.resident)) / float(subscribed.max(1)), 0)})
        } else {
            Value::Null
        },
        // Both ends of each connection, and all other activity of the machine in that time.
        "kernel_bytes_each": round((float(slab_after) - float(slab)) / float(subscribed.max(1)), 0),
        "broadcasts": broadcasts,
        "latency_ms": tally.latency.milliseconds(),
        "generator": generator(own_cpu_since(own), &tally),
    }))
}

/// Publishes one event and waits until all clients have it, or no more receive it.
fn broadcast(
    run: &Run,
    board: &Board,
    publisher: &mut Publisher,
    channel: &str,
    count: u32,
    readers: u32,
) -> Result<Value, String> {
    let before = run.server.look()?;
    let delivered = board.delivered.load(Ordering::Acquire);
    let at = clock::now();
    let data = format!(r#"{{"at":"{}"}}"#, Stamp { at, sender: 0, count }.text());
    let status =
        publisher.publish(channel, &data).map_err(|error| format!("publishing failed: {error}"))?;
    let answered = clock::now();
    let all = delivered + u64::from(readers);
    board.wait_until(REACH, |board| board.delivered.load(Ordering::Acquire) >= all);
    let reached = board.delivered.load(Ordering::Acquire) - delivered;
    let last = board.last_delivery.load(Ordering::Acquire);
    // Wait until the server is idle before its time is read.
    thread::sleep(Duration::from_millis(50));
    let after = run.server.look()?;
    let ms = |from: u64, to: u64| round(float(to.saturating_sub(from)) / 1e6, 2);
    Ok(json!({
        "status": status,
        "delivered": reached,
        "answered_ms": ms(at, answered),
        "last_ms": if reached == 0 { Value::Null } else { ms(at, last) },
        "cpu_s": if run.server.is_known() { round(after - before, 3) } else { Value::Null },
    }))
}
