//! One slot of a supervised command: at most one instance, started again after its end or by `cron`, and replaced at a
//! reload.
//!
//! Invariants
//! - An instance of a release starts when that of the release before has ended.
//! - The slot ends when the server drains and its instance has ended, whatever the instance does. Until an earlier server has
//!   let go of the place, it does not end: that server's time limit is the bound.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::guards::Guards;
use super::instance::Instance;
use super::place::Place;
use super::schedule::Schedule;
use super::table::ProcessTable;
use super::{Definition, Wanted};
use crate::system::guard::{Guard, groups_of_session, kill_group};

/// How long output is read after the last instance has ended: a process that has left the group may keep it open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often processes in the background are looked for while no run ends: their numbers may be used again.
const NOTED: Duration = Duration::from_secs(10);
/// How often processes in the background are looked for at the end.
const BEAT: Duration = Duration::from_millis(100);

/// A place for one instance.
#[derive(Debug)]
pub(super) struct Slot {
    number: usize,
    place: Place,
    wanted: watch::Receiver<Wanted>,
    table: Arc<ProcessTable>,
    guards: Arc<Guards>,
    drain: CancellationToken,
    readers: JoinSet<()>,
    /// The schedule of `cron`, which outlives releases.
    schedule: Option<Schedule>,
    /// The error of the last start, which is said once.
    refused: Option<String>,
    /// Groups of runs of `cron` that have ended and left processes in the background.
    background: BTreeMap<u32, Background>,
}

/// Processes that a run of `cron` has left in the background.
#[derive(Debug)]
struct Background {
    guard: Option<Arc<Guard>>,
    /// The definition of its run: a reload may have changed or removed that of the slot.
    definition: Arc<Definition>,
}

impl Slot {
    pub(super) fn new(
        (number, place): (usize, Place),
        wanted: watch::Receiver<Wanted>,
        (table, guards): (Arc<ProcessTable>, Arc<Guards>),
        drain: CancellationToken,
    ) -> Self {
        let readers = JoinSet::new();
        Self {
            number,
            place,
            wanted,
            table,
            guards,
            drain,
            readers,
            schedule: None,
            refused: None,
            background: BTreeMap::new(),
        }
    }

    /// Runs what is wanted until the server drains.
    pub(super) async fn run(mut self) {
        // Held until the end. A drain does not shorten the wait: while an earlier server has its instance, this place is not
        // free for a later one. The earlier one's time limit ends it.
        let _place = self.place.take().await;
        while !self.drain.is_cancelled() {
            let wanted = self.wanted.borrow_and_update().clone();
            match wanted {
                // It was said when the release came.
                Some(definition) if definition.launcher.is_err() => self.changed().await,
                Some(definition) if definition.cron.is_some() => self.by_cron(&definition).await,
                Some(definition) => self.always(&definition).await,
                None => self.changed().await,
            }
        }
        self.end_background().await;
        let reading = async { while self.readers.join_next().await.is_some() {} };
        if timeout(LAST_WORDS, reading).await.is_err() {
            tracing::debug!("the output of a process is still open");
        }
    }

    /// Forgets groups in the background that have ended.
    fn note_background(&mut self) {
        if self.background.is_empty() {
            return;
        }
        let there = groups_of_session();
        for (group, left) in self.background.extract_if(.., |group, _| !there.contains(group)) {
            if let Some(guard) = left.guard {
                guard.remove(group);
            }
        }
    }

    /// Waits for what runs of `cron` have left in the background, and kills it when the time is over.
    async fn end_background(&mut self) {
        let began = Instant::now();
        loop {
            self.note_background();
            let is_over =
                |_: &u32, left: &mut Background| began.elapsed() >= left.definition.stop_timeout;
            for (group, left) in self.background.extract_if(.., is_over) {
                let name = &*left.definition.name;
                tracing::warn!(
                    process.name = name,
                    group,
                    "what a run left in the background is killed"
                );
                kill_group(group);
            }
            if self.background.is_empty() {
                return;
            }
            sleep(BEAT).await;
        }
    }

    /// Waits until something else is wanted. Cancel safe.
    async fn changed(&mut self) {
        loop {
            tokio::select! {
                changed = self.wanted.changed() => {
                    // No receiver is left: the server ends.
                    if changed.is_err() {
                        self.drain.cancelled().await;
                    }
                    break;
                }
                () = self.drain.cancelled() => break,
                // A process that a reload has removed or changed has no further run after which they are noted.
                () = sleep(NOTED), if !self.background.is_empty() => self.note_background(),
            }
        }
        while self.readers.try_join_next().is_some() {}
    }

    /// Keeps an instance running.
    async fn always(&mut self, definition: &Arc<Definition>) {
        let mut backoff = Backoff::default();
        let mut has_run = false;
        loop {
            let delay = match self.start(definition).await {
                Some(instance) => {
                    let restarts = u64::from(std::mem::replace(&mut has_run, true));
                    self.table.of(definition, |entry| entry.restarts += restarts);
                    let by_itself = tokio::select! {
                        () = instance.ended() => true,
                        () = self.changed() => false,
                    };
                    if !by_itself {
                        return instance.stop().await;
                    }
                    let delay = backoff.after(instance.ran());
                    instance.finish(false, Some(delay)).await;
                    self.note_failing(definition, backoff.fails());
                    delay
                }
                None => backoff.after(Duration::ZERO),
            };
            tokio::select! {
                () = sleep(delay) => {}
                () = self.changed() => return self.note_failing(definition, false),
            }
        }
    }

    fn note_failing(&self, definition: &Definition, fails: bool) {
        self.table.of(definition, |entry| {
            if fails {
                entry.failing.insert(self.number);
            } else {
                entry.failing.remove(&self.number);
            }
        });
    }

    /// Starts an instance. An error is said once, and again when it is another one.
    async fn start(&mut self, definition: &Arc<Definition>) -> Option<Instance> {
        let shown = (&self.table, &*self.guards);
        let started = Instance::start(definition, self.number, shown, &mut self.readers).await;
        match started {
            Ok(instance) => {
                self.refused = None;
                Some(instance)
            }
            Err(error) => {
                self.say_refused(definition, &error);
                None
            }
        }
    }

    fn say_refused(&mut self, definition: &Definition, error: &io::Error) {
        let why = error.to_string();
        if self.refused.as_ref() != Some(&why) {
            let (name, command) = (&*definition.name, &*definition.command);
            tracing::error!(process.name = name, command, error = why, "process cannot be started");
            self.table.of(definition, |entry| entry.cannot_start = Some(why.clone()));
            self.refused = Some(why);
        }
    }

    /// Starts an instance at each time of `cron` at which none runs.
    async fn by_cron(&mut self, definition: &Arc<Definition>) {
        let Some((cron, zone)) = &definition.cron else { return };
        let now = Timestamp::now();
        let kept = self.schedule.take().filter(|kept| kept.is(cron, zone));
        let mut schedule = kept.unwrap_or_else(|| Schedule::new(cron.clone(), zone.clone(), now));
        self.note_next(definition, &schedule);
        let mut running: Option<Instance> = None;
        let mut said_overlap = false;
        // Set once the instance is waited for, and nothing is started any more.
        let mut limit: Option<Instant> = None;
        loop {
            let ended = async {
                match &running {
                    Some(instance) => instance.ended().await,
                    None => std::future::pending().await,
                }
            };
            let minute = sleep(Schedule::until_next_minute(Timestamp::now()));
            tokio::select! {
                () = ended => {
                    if let Some(instance) = running.take() {
                        // What a run has put into the background goes on, as with every cron.
                        let left = Background {
                            guard: instance.guard(),
                            definition: Arc::clone(definition),
                        };
                        self.background.insert(instance.pid(), left);
                        instance.finish(true, None).await;
                        self.note_background();
                    }
                    if limit.is_some() {
                        break;
                    }
                }
                () = sleep_until(limit.unwrap_or_else(Instant::now)), if limit.is_some() => {
                    if let Some(instance) = running.take() {
                        instance.kill().await;
                    }
                    break;
                }
                () = minute => {
                    if schedule.due(Timestamp::now()) {
                        if running.is_some() {
                            self.note_overlap(definition, &mut said_overlap);
                        } else {
                            said_overlap = false;
                            running = self.start(definition).await;
                            let started = u64::from(running.is_some());
                            self.table.of(definition, |entry| entry.runs += started);
                        }
                        self.note_next(definition, &schedule);
                    }
                }
                () = self.changed(), if limit.is_none() => {
                    let Some(instance) = &running else { break };
                    instance.note_stopping();
                    limit = Some(Instant::now() + definition.stop_timeout);
                }
            }
        }
        self.schedule = Some(schedule);
    }

    fn note_next(&self, definition: &Definition, schedule: &Schedule) {
        let next = schedule.next(Timestamp::now());
        self.table.of(definition, |entry| entry.next_run = next);
    }

    fn note_overlap(&self, definition: &Definition, said: &mut bool) {
        self.table.of(definition, |entry| entry.overlaps += 1);
        if !std::mem::replace(said, true) {
            tracing::warn!(
                process.name = &*definition.name,
                "run left out: the one before still goes on"
            );
        }
    }
}
