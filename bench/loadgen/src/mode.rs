//! Shared by the three modes: threads with their share of the clients, and the state through which they coordinate.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::Arguments;
use crate::clients::{Clients, Role, Target};
use crate::clock;
use crate::process::{self, Server, Usage};
use crate::tally::{Tally, float};

pub(crate) mod avalanche;
pub(crate) mod fanout;
pub(crate) mod idle;

/// How long a thread may sleep while nothing happens.
const NAP: Duration = Duration::from_millis(5);

/// Said by a run that has nothing to measure.
const NOBODY: &str =
    "no client is subscribed, so there is nothing to measure (hint: `avalanche --n 1` says why)";

/// The current phase; clients are opened before the first. It only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Senders send.
    Send,
    /// Sent messages arrive.
    Drain,
    /// Slow clients read what is left for them.
    Wake,
    Done,
}

/// Progress that threads share with each other.
#[derive(Debug)]
pub(crate) struct Board {
    phase: AtomicU8,
    /// Threads whose clients are all subscribed or failed.
    opened: AtomicU64,
    /// Clients that were subscribed then.
    live: AtomicU64,
    /// When sending begins and ends.
    begin: AtomicU64,
    end: AtomicU64,
    delivered: AtomicU64,
    last_delivery: AtomicU64,
    sent: AtomicU64,
    expected: AtomicU64,
    /// Readers of each channel.
    readers: Mutex<Vec<u64>>,
    /// The first thing that went wrong in a thread.
    fault: Mutex<Option<String>>,
}

impl Board {
    pub(crate) fn new(channels: usize) -> Self {
        Self {
            phase: AtomicU8::new(0),
            opened: AtomicU64::new(0),
            live: AtomicU64::new(0),
            begin: AtomicU64::new(0),
            end: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            last_delivery: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            readers: Mutex::new(vec![0; channels]),
            fault: Mutex::new(None),
        }
    }

    pub(crate) fn reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase_number(phase)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase_number(phase), Ordering::AcqRel);
    }

    /// The main thread's wait: true when `done`, false after `limit` or when a thread has failed.
    fn wait_until(&self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let deadline = clock::now() + clock::span(limit);
        while !done(self) {
            if clock::now() > deadline || self.fault.lock().expect("no thread panics").is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Adds what a thread's clients have received since its last note.
    fn note(&self, clients: &Clients, noted: &mut u64) {
        let delivered = clients.tally.delivered;
        if delivered != *noted {
            self.delivered.fetch_add(delivered - *noted, Ordering::AcqRel);
            self.last_delivery.fetch_max(clients.last_delivery(), Ordering::AcqRel);
            *noted = delivered;
        }
    }

    fn fail(&self, why: String) {
        self.fault.lock().expect("no thread panics").get_or_insert(why);
        self.enter(Phase::Done);
    }

    /// The first thing that went wrong in a thread, as an error.
    fn fault(&self) -> Result<(), String> {
        self.fault.lock().expect("no thread panics").take().map_or(Ok(()), Err)
    }
}

/// The value stored in the shared state, where 0 stands for none.
fn phase_number(phase: Phase) -> u8 {
    match phase {
        Phase::Send => 1,
        Phase::Drain => 2,
        Phase::Wake => 3,
        Phase::Done => 4,
    }
}

/// The target of each run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) target: Arc<Target>,
    pub(crate) server: Server,
    pub(crate) threads: u32,
    pub(crate) patience: Duration,
}

impl Run {
    pub(crate) fn new(
        arguments: &Arguments,
        channels: Vec<String>,
        senders: u32,
    ) -> Result<Self, String> {
        let patience = Duration::from_secs(arguments.patience);
        Ok(Self {
            target: Arc::new(Target {
                address: arguments.to,
                app: arguments.app.clone(),
                channels,
                receive_buffer: arguments
                    .rcvbuf
                    .map(|size| usize::try_from(size).expect("64 bits")),
                patience,
                senders: usize::try_from(senders).expect("64 bits"),
            }),
            server: Server::new(arguments.pid.clone())?,
            threads: arguments.threads,
            patience,
        })
    }

    /// The clients of thread number `thread` out of `n`.
    pub(crate) fn share(&self, thread: u32, n: u32) -> Range<u32> {
        let start =
            |thread: u32| u32::try_from(u64::from(n) * u64::from(thread) / u64::from(self.threads));
        let bound = |thread| start(thread).expect("no more than n");
        bound(thread)..bound(thread + 1)
    }

    /// CPU seconds, memory, and both for each of `connections`, between the looks `before` and `after`.
    pub(crate) fn connections(&self, before: Usage, after: Usage, connections: u64) -> Value {
        if !self.server.is_known() || connections == 0 {
            return Value::Null;
        }
        json!({
            "cpu_s": round(after - before, 3),
            "cpu_us_each": round((after - before) * 1e6 / float(connections), 1),
            "resident_before": before.resident,
            "resident": after.resident,
            "highest": after.highest,
            "resident_each": round((float(after.resident) - float(before.resident)) / float(connections), 0),
        })
    }
}

/// Opens the clients, at most `inflight` at a time, and turns until each is subscribed or has failed.
pub(crate) fn open(
    clients: &mut Clients,
    inflight: usize,
    mut to_open: impl Iterator<Item = (Role, u32)>,
) -> Result<(), String> {
    let mut more = true;
    let mut checked = clock::now();
    while more || clients.opening() > 0 {
        while more && clients.opening() < inflight {
            match to_open.next() {
                Some((role, channel)) => {
                    clients.open(role, channel);
                }
                None => more = false,
            }
        }
        clients.turn(NAP).map_err(|errno| format!("epoll: {errno}"))?;
        if clock::now() - checked > 100_000_000 {
            checked = clock::now();
            clients.expire();
        }
    }
    Ok(())
}

/// Runs `work` on each thread beside `lead` on this one, and returns the sum of the tallies.
pub(crate) fn beside<T>(
    run: &Run,
    board: &Board,
    work: impl Fn(u32, &mut Clients) -> Result<(), String> + Sync,
    lead: impl FnOnce() -> Result<T, String>,
) -> Result<(Tally, T), String> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..run.threads)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || {
                    let clients = Clients::new(Arc::clone(&run.target))
                        .map_err(|errno| format!("epoll: {errno}"));
                    let done = clients
                        .and_then(|mut clients| work(thread, &mut clients).map(|()| clients));
                    match done {
                        Ok(clients) => Some(clients.tally),
                        Err(why) => {
                            board.fail(why);
                            None
                        }
                    }
                })
            })
            .collect();
        let led = lead();
        // Whatever came of it, threads must not wait for a phase that never comes.
        board.enter(Phase::Done);
        let mut tally = Tally::new();
        for thread in threads {
            if let Some(one) = thread.join().expect("threads report what goes wrong") {
                tally.add(&one);
            }
        }
        board.fault()?;
        Ok((tally, led?))
    })
}

/// The generator's own cost.
pub(crate) fn generator(cpu: f64, tally: &Tally) -> Value {
    json!({
        "cpu_s": round(cpu, 3),
        "bytes": tally.bytes,
        "reads": tally.reads,
        "deliveries_per_read": if tally.reads == 0 { Value::Null } else { round(float(tally.delivered) / float(tally.reads), 2) },
        "fragmented": tally.fragmented,
    })
}

/// Formats a number with this many decimals; `null` if it is not finite.
pub(crate) fn round(value: f64, digits: i32) -> Value {
    let scale = 10_f64.powi(digits);
    json!((value * scale).round() / scale)
}

/// CPU seconds of this program since `before`.
pub(crate) fn own_cpu_since(before: f64) -> f64 {
    process::own_cpu() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_in_exactly_one_share() {
        let target = Arc::new(Target {
            address: "127.0.0.1:1".parse().unwrap(),
            app: crate::sign::App::parse("1:key:secret").unwrap(),
            channels: Vec::new(),
            receive_buffer: None,
            patience: NAP,
            senders: 0,
        });
        for threads in 1..=7 {
            let target = Arc::clone(&target);
            let run = Run { target, server: Server::default(), threads, patience: NAP };
            for n in [1, 6, 7, 1000, 200_000] {
                let dealt: Vec<u32> =
                    (0..threads).flat_map(|thread| run.share(thread, n)).collect();
                assert_eq!(dealt, (0..n).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn phases_only_go_forward() {
        let board = Board::new(1);
        board.enter(Phase::Drain);
        board.enter(Phase::Send);

        assert!(board.reached(Phase::Drain) && board.reached(Phase::Send));
        assert!(!board.reached(Phase::Done));
        board.fail("first".to_owned());
        board.fail("second".to_owned());
        assert!(board.reached(Phase::Done), "nobody waits for a run that has failed");
        assert_eq!(board.fault(), Err("first".to_owned()));
    }
}
