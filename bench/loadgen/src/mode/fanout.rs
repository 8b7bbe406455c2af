//! Some clients send and all others receive, in an open loop (a rate) or a closed one (a window).
//!
//! Invariants
//! - A message is expected by each reader that its channel had when sending began, except the client that sent it. A
//!   delivery that has not arrived when no more arrive is lost, whatever the reason.
//! - Senders are on the first thread.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::{Arguments, Fanout};
use crate::clients::{Clients, Role};
use crate::clock;
use crate::mode::{Board, NAP, NOBODY, Phase, Run, beside, generator, open, own_cpu_since, round};
use crate::process;
use crate::publisher::Publisher;
use crate::stamp::{COUNTS, Stamp};
use crate::tally::{Tally, count, float};

/// Time without a delivery after which missing deliveries are lost, and a closed loop counts as stopped.
const SILENCE: Duration = Duration::from_secs(2);
/// How long deliveries may go on when sending has ended.
const DRAIN: Duration = Duration::from_secs(20);

pub(crate) fn run(arguments: &Arguments, mode: &Fanout) -> Result<Value, String> {
    let prefix =
        arguments.channel.as_deref().unwrap_or(if mode.http { "load" } else { "private-load" });
    let channels: Vec<String> =
        (0..mode.channels).map(|number| format!("{prefix}-{number}")).collect();
    if !mode.http && !prefix.starts_with("private-") && !prefix.starts_with("presence-") {
        return Err(
            "client events are for private and presence channels only (hint: --http)".to_owned()
        );
    }
    let run = Run::new(arguments, channels, mode.senders)?;
    let board = Board::new(run.target.channels.len());
    let inflight = usize::try_from(mode.inflight.div_ceil(run.threads)).expect("64 bits");
    let own = process::own_cpu();
    let before = run.server.look()?;

    let (mut tally, (measured, published)) = beside(
        &run,
        &board,
        |thread, clients| {
            let senders = if thread == 0 && !mode.http { 0..mode.senders } else { 0..0 };
            let first: Vec<_> =
                senders.map(|sender| (Role::Reader, sender % mode.channels)).collect();
            let readers =
                run.share(thread, mode.n).map(|number| (Role::Reader, number % mode.channels));
            let slow =
                run.share(thread, mode.slow).map(|number| (Role::Slow, number % mode.channels));
            let senders = first.len();
            open(clients, inflight, first.into_iter().chain(readers).chain(slow))?;
            for (all, here) in
                board.readers.lock().expect("no thread panics").iter_mut().zip(clients.readers())
            {
                *all += here;
            }
            board.live.fetch_add(clients.live() as u64, Ordering::AcqRel);
            board.opened.fetch_add(1, Ordering::AcqRel);
            turn_until(&board, clients, Phase::Send)?;
            let mut noted = 0;
            if senders > 0 {
                match mode.window {
                    Some(window) => closed_loop(&run, &board, clients, mode, window, &mut noted)?,
                    None => open_loop(&run, &board, clients, mode, &mut noted)?,
                }
            }
            while !board.reached(Phase::Wake) {
                clients.turn(NAP).map_err(|errno| format!("epoll: {errno}"))?;
                board.note(clients, &mut noted);
            }
            clients.wake_slow().map_err(|errno| format!("epoll: {errno}"))?;
            while !board.reached(Phase::Done) {
                clients.turn(NAP).map_err(|errno| format!("epoll: {errno}"))?;
            }
            let left = clients.slow_left();
            if left > 0 {
                clients.tally.dropped.insert("slow: none, still connected".to_owned(), left);
            }
            clients.close_all();
            Ok(())
        },
        || lead(arguments, mode, &run, &board),
    )?;
    for one in &published {
        tally.add(one);
    }
    Ok(report(mode, &run, &board, &tally, &measured, before, own_cpu_since(own)))
}

/// The main thread's measurements of the server and of time.
struct Measured {
    opened: process::Usage,
    begun: process::Usage,
    drained: process::Usage,
    began: u64,
    last: u64,
    in_time: u64,
    ended: &'static str,
    highest: u64,
}

fn lead(
    arguments: &Arguments,
    mode: &Fanout,
    run: &Run,
    board: &Board,
) -> Result<(Measured, Vec<Tally>), String> {
    let limit = run.patience * 2 + Duration::from_mins(2);
    let threads = u64::from(run.threads);
    if !board.wait_until(limit, |board| board.opened.load(Ordering::Acquire) == threads) {
        return Err(format!("clients were still connecting after {limit:?}"));
    }
    let opened = run.server.look()?;
    if board.live.load(Ordering::Acquire) == 0 {
        return Err(NOBODY.to_owned());
    }
    // Connecting has left things to do behind it.
    thread::sleep(Duration::from_millis(300));
    let begun = run.server.look()?;
    let began = clock::now() + 5_000_000;
    let sending = Duration::from_secs(mode.secs);
    board.begin.store(began, Ordering::Release);
    board.end.store(began + clock::span(sending), Ordering::Release);
    board.enter(Phase::Send);
    let published = if mode.http {
        publish(arguments, mode, run, board)?
    } else {
        // The senders end it, or a closed loop that stands still.
        board.wait_until(sending + SILENCE * 2, |board| board.reached(Phase::Drain));
        Vec::new()
    };
    board.enter(Phase::Drain);
    let in_time = board.delivered.load(Ordering::Acquire);
    let all = |board: &Board| {
        board.delivered.load(Ordering::Acquire) >= board.expected.load(Ordering::Acquire)
    };
    let drain_began = clock::now();
    let settled = board.wait_until(DRAIN, |board| {
        let last = board.last_delivery.load(Ordering::Acquire).max(drain_began);
        all(board) || clock::now() > last + clock::span(SILENCE)
    });
    let ended = match (settled, all(board)) {
        (_, true) => "everything was delivered",
        (true, false) => "nothing more came",
        (false, false) => "deliveries still came when the time to wait for them was over",
    };
    let drained = run.server.look()?;
    board.enter(Phase::Wake);
    if mode.slow > 0 {
        // Time for a slow client to read what was kept for it, up to its end.
        thread::sleep(SILENCE);
    }
    let highest = run.server.look()?.highest;
    let last = board.last_delivery.load(Ordering::Acquire);
    Ok((Measured { opened, begun, drained, began, last, in_time, ended, highest }, published))
}

fn report(
    mode: &Fanout,
    run: &Run,
    board: &Board,
    tally: &Tally,
    measured: &Measured,
    before: process::Usage,
    own: f64,
) -> Value {
    let expected = board.expected.load(Ordering::Acquire);
    let sent = board.sent.load(Ordering::Acquire);
    let cpu = measured.drained - measured.begun;
    let seconds = float(measured.last.saturating_sub(measured.began)) / 1e9;
    let connections = tally.subscribed.count();
    let per = |amount: f64, of: f64| if of > 0.0 { round(amount / of, 2) } else { Value::Null };
    json!({
        "mode": "fanout",
        "loop": if mode.window.is_some() { "closed" } else { "open" },
        "n": mode.n, "channels": mode.channels, "senders": mode.senders, "payload": mode.payload, "slow": mode.slow,
        "rate": if mode.window.is_some() { Value::Null } else { json!(mode.rate) },
        "window": mode.window,
        "http": mode.http,
        "opening": tally.opening(),
        "sent": sent,
        "expected": expected,
        "delivered": tally.delivered,
        "missing": i128::from(expected) - i128::from(tally.delivered),
        "ended": measured.ended,
        "kept_for_slow": tally.kept_for_slow,
        "out_of_order": tally.out_of_order,
        "skipped": tally.skipped,
        "delivered_when_sending_ended": measured.in_time,
        "seconds": round(seconds, 3),
        "delivered_per_s": per(float(tally.delivered), seconds),
        "latency_ms": tally.latency.milliseconds(),
        "lateness_ms": tally.lateness.milliseconds(),
        "connecting": run.connections(before, measured.opened, connections),
        "server": if run.server.is_known() {
            json!({
                "cpu_s": round(cpu, 3),
                "delivered_per_cpu_s": per(float(tally.delivered), cpu),
                "us_per_delivery": per(cpu * 1e6, float(tally.delivered)),
                "resident": measured.drained.resident,
                "highest": measured.highest,
            })
        } else {
            Value::Null
        },
        "generator": generator(own, tally),
    })
}

fn turn_until(board: &Board, clients: &mut Clients, phase: Phase) -> Result<(), String> {
    while !board.reached(phase) {
        clients.turn(NAP).map_err(|errno| format!("epoll: {errno}"))?;
    }
    Ok(())
}

/// The data of one message: JSON of exactly `length` bytes, at least 47.
fn data(stamp: Stamp, length: u32) -> String {
    let bare = format!(r#"{{"at":"{}","pad":""}}"#, stamp.text());
    let pad = usize::try_from(length).expect("64 bits").saturating_sub(bare.len());
    format!(r#"{{"at":"{}","pad":"{}"}}"#, stamp.text(), "x".repeat(pad))
}

/// Sends one client event, and notes who is to receive it.
fn send(
    run: &Run,
    board: &Board,
    clients: &mut Clients,
    mode: &Fanout,
    sender: u32,
    turn: u32,
    readers: &[u64],
) {
    let channel = usize::try_from(sender % mode.channels).expect("64 bits");
    let sender_number = u8::try_from(sender).expect("at most 256 senders");
    let stamp = Stamp { at: clock::now(), sender: sender_number, count: turn };
    let event = format!(
        r#"{{"event":"client-load","channel":"{}","data":{}}}"#,
        run.target.channels[channel],
        data(stamp, mode.payload)
    );
    board.expected.fetch_add(readers[channel].saturating_sub(1), Ordering::AcqRel);
    board.sent.fetch_add(1, Ordering::AcqRel);
    // A sender that is gone has its own line in the report.
    let _gone = clients.send(usize::try_from(sender).expect("64 bits"), event.as_bytes());
}

fn open_loop(
    run: &Run,
    board: &Board,
    clients: &mut Clients,
    mode: &Fanout,
    noted: &mut u64,
) -> Result<(), String> {
    let readers = board.readers.lock().expect("no thread panics").clone();
    let (begin, end) = (board.begin.load(Ordering::Acquire), board.end.load(Ordering::Acquire));
    let total = u64::from(mode.rate) * mode.secs;
    let due = |message: u64| begin + message * 1_000_000_000 / u64::from(mode.rate);
    let mut message = 0;
    while message < total && message / u64::from(mode.senders) < u64::from(COUNTS) {
        let now = clock::now();
        // The clock alone does not end it: due messages are sent, and their delay is reported.
        if now > end + clock::span(SILENCE) {
            break;
        }
        if now >= due(message) {
            clients.tally.lateness.record(due(message), now);
            let sender = u32::try_from(message % u64::from(mode.senders)).expect("a sender");
            let turn = u32::try_from(message / u64::from(mode.senders)).expect("below COUNTS");
            send(run, board, clients, mode, sender, turn, &readers);
            message += 1;
            continue;
        }
        clients
            .turn(Duration::from_nanos(due(message) - now).min(NAP))
            .map_err(|errno| format!("epoll: {errno}"))?;
        board.note(clients, noted);
    }
    board.enter(Phase::Drain);
    Ok(())
}

fn closed_loop(
    run: &Run,
    board: &Board,
    clients: &mut Clients,
    mode: &Fanout,
    window: u32,
    noted: &mut u64,
) -> Result<(), String> {
    let readers = board.readers.lock().expect("no thread panics").clone();
    let end = board.end.load(Ordering::Acquire);
    // Deliveries of one message, as a mean over the channels in use.
    let used = mode.senders.min(mode.channels);
    let each: u64 = readers
        .iter()
        .take(usize::try_from(used).expect("64 bits"))
        .map(|n| n.saturating_sub(1))
        .sum();
    let open = (each / u64::from(used)).max(1) * u64::from(window);
    let mut message: u64 = 0;
    let mut moved = clock::now();
    let mut seen = 0;
    loop {
        let now = clock::now();
        let delivered = board.delivered.load(Ordering::Acquire);
        if delivered != seen {
            (seen, moved) = (delivered, now);
        }
        let on_their_way = board.expected.load(Ordering::Acquire).saturating_sub(delivered);
        if now >= end
            || now > moved + clock::span(SILENCE)
            || message / u64::from(mode.senders) >= u64::from(COUNTS)
        {
            break;
        }
        if on_their_way < open {
            let sender = u32::try_from(message % u64::from(mode.senders)).expect("a sender");
            let turn = u32::try_from(message / u64::from(mode.senders)).expect("below COUNTS");
            send(run, board, clients, mode, sender, turn, &readers);
            message += 1;
            continue;
        }
        // Another thread's deliveries do not wake this one.
        let wait = if run.threads > 1 { Duration::from_micros(200) } else { NAP };
        clients.turn(wait).map_err(|errno| format!("epoll: {errno}"))?;
        board.note(clients, noted);
    }
    board.enter(Phase::Drain);
    Ok(())
}

/// Publishes at the rate through the HTTP API, each sender with a connection and a thread of its own.
fn publish(
    arguments: &Arguments,
    mode: &Fanout,
    run: &Run,
    board: &Board,
) -> Result<Vec<Tally>, String> {
    let api = arguments.api.unwrap_or(arguments.to);
    thread::scope(|scope| {
        let senders: Vec<_> = (0..mode.senders)
            .map(|sender| {
                scope.spawn(move || {
                    let connect = Publisher::connect(api, arguments.app.clone());
                    let publisher =
                        connect.map_err(|error| format!("the HTTP API at {api}: {error}"))?;
                    publish_as(sender, publisher, mode, run, board)
                })
            })
            .collect();
        senders
            .into_iter()
            .map(|sender| sender.join().expect("threads report what goes wrong"))
            .collect()
    })
}

fn publish_as(
    sender: u32,
    mut publisher: Publisher,
    mode: &Fanout,
    run: &Run,
    board: &Board,
) -> Result<Tally, String> {
    let mut tally = Tally::new();
    let readers = board.readers.lock().expect("no thread panics").clone();
    let (begin, end) = (board.begin.load(Ordering::Acquire), board.end.load(Ordering::Acquire));
    let channel = usize::try_from(sender % mode.channels).expect("64 bits");
    let number = u8::try_from(sender).expect("at most 256 senders");
    let total = u64::from(mode.rate) * mode.secs;
    let own = (u64::from(sender)..total).step_by(usize::try_from(mode.senders).expect("64 bits"));
    for (turn, message) in own.enumerate() {
        let due = begin + message * 1_000_000_000 / u64::from(mode.rate);
        let now = clock::now();
        if now < due {
            thread::sleep(Duration::from_nanos(due - now));
        }
        let at = clock::now();
        // A server that answers slower than the rate is asked no longer than was agreed.
        if at > end + clock::span(SILENCE) || turn >= usize::try_from(COUNTS).expect("64 bits") {
            break;
        }
        tally.lateness.record(due, at);
        let turn = u32::try_from(turn).expect("below COUNTS");
        let data = data(Stamp { at, sender: number, count: turn }, mode.payload);
        board.expected.fetch_add(readers[channel], Ordering::AcqRel);
        board.sent.fetch_add(1, Ordering::AcqRel);
        match publisher.publish(&run.target.channels[channel], &data) {
            Ok(200) => {}
            Ok(status) => count(&mut tally.errors, &format!("HTTP {status}")),
            Err(error) => return Err(format!("publishing failed: {error}")),
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_json_of_the_length_asked_for() {
        let stamp = Stamp { at: 1, sender: 2, count: 3 };

        for length in [47, 64, 1000] {
            let text = data(stamp, length);
            assert_eq!(text.len(), usize::try_from(length).unwrap());
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(Stamp::find(value["at"].as_str().unwrap().as_bytes()), Some(stamp));
        }
    }
}
