//! The order of webhook events per endpoint: batches, retries, and spool records.
//!
//! Promises
//! - An endpoint receives the events of one channel in order. A batch that it refuses is retried beside the events of
//!   other channels, so it delays only the channels that it has events of.
//! - At most one new batch and one retry of an endpoint are sent at a time.
//!
//! Uses neither sockets nor clocks nor files: [`Queue::poll`] returns what to do, [`Queue::done`] takes the result.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::Options;
use super::debounce::Debounce;
use super::intake::Note;
use super::spool::{Kept, Record};
use crate::moment::{Moment, UnixTime};

/// Id of a batch being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(u64);

/// The result of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The application responded with a status of 200 to 299.
    Taken,
    /// The application did not accept it, or the result is unknown.
    Failed,
    /// The application or endpoint does not exist any more.
    Gone,
}

/// A batch to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) id: BatchId,
    pub(super) app: Arc<str>,
    pub(super) target: Arc<str>,
    pub(super) body: Arc<str>,
}

/// The work to do now, in this order: write the file first, then send.
#[derive(Debug, Default)]
pub struct Step {
    /// Records to append to the spool.
    pub(super) append: Vec<u8>,
    /// Batches to send. Each result is passed to [`Queue::done`].
    pub(super) send: Vec<Batch>,
    /// When to poll again, unless something happens before.
    pub(super) wake: Option<Moment>,
}

/// Counters since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events accepted by applications.
    pub delivered: u64,
    /// Failed attempts to send a batch.
    pub failures: u64,
    /// Events dropped after [`Options::patience`], or because their endpoint was removed.
    pub given_up: u64,
    /// Events dropped because the limit of waiting bytes was reached.
    pub overflowed: u64,
    /// Waiting events.
    pub waiting: u64,
}

/// Identity of an endpoint, valid across restarts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    app: Arc<str>,
    target: Arc<str>,
}

/// An endpoint that refuses this many batches is taken as down: its new events wait until it accepts a retry.
const MAX_REFUSED: usize = 4;

/// Number of waiting events that are searched for channels without a refused batch.
const LOOK_AHEAD: usize = 10_000;

#[derive(Debug)]
struct Event {
    sequence: u64,
    since: Moment,
    channel: Arc<str>,
    json: Box<str>,
}

/// The events of one endpoint.
#[derive(Debug, Default)]
struct Line {
    /// In order.
    waiting: VecDeque<Event>,
    /// Size of all events in bytes, those of batches included.
    bytes: usize,
    /// Oldest first. No two have events of the same channel.
    batches: Vec<InFlight>,
}

/// A batch from its creation until it is accepted or dropped.
#[derive(Debug)]
struct InFlight {
    id: BatchId,
    body: Arc<str>,
    events: Vec<Event>,
    first_sent: Moment,
    /// The endpoint has refused it.
    refused: bool,
    pause: Duration,
    /// When to send it again; `None` while it is being sent.
    again: Option<Moment>,
}

impl InFlight {
    fn is_being_sent(&self) -> bool {
        self.again.is_none()
    }
}

impl Line {
    /// All events: those of batches, then the waiting ones.
    fn events(&self) -> impl Iterator<Item = &Event> {
        self.batches.iter().flat_map(|batch| &batch.events).chain(&self.waiting)
    }

    fn events_mut(&mut self) -> impl Iterator<Item = &mut Event> {
        self.batches.iter_mut().flat_map(|batch| &mut batch.events).chain(&mut self.waiting)
    }

    /// Removes the events of the next batch from the waiting ones.
    fn take(&mut self, batch: &HashSet<u64>) -> Vec<Event> {
        let (mut taken, mut left) = (Vec::with_capacity(batch.len()), Vec::new());
        while taken.len() < batch.len()
            && let Some(event) = self.waiting.pop_front()
        {
            if batch.contains(&event.sequence) { taken.push(event) } else { left.push(event) }
        }
        for event in left.into_iter().rev() {
            self.waiting.push_front(event);
        }
        taken
    }

    /// Decides which events the next new batch has.
    fn ready(&self, options: &Options, ending: bool, now: Moment) -> Ready {
        let refused = self.batches.iter().filter(|batch| batch.refused).count();
        if refused < self.batches.len() || refused >= MAX_REFUSED {
            return Ready::Nothing;
        }
        let held: HashSet<&str> = self
            .batches
            .iter()
            .flat_map(|batch| &batch.events)
            .map(|event| &*event.channel)
            .collect();
        let free =
            || self.waiting.iter().take(LOOK_AHEAD).filter(|event| !held.contains(&*event.channel));
        let Some(first) = free().next() else { return Ready::Nothing };
        let mut bytes = 0;
        let fitting = free().take(options.batch_events.max(1)).take_while(|event| {
            bytes += event.json.len() + 1;
            bytes <= options.batch_bytes
        });
        let mut batch: HashSet<u64> = fitting.map(|event| event.sequence).collect();
        // An event that is too large for a batch is sent alone.
        batch.insert(first.sequence);
        let full = batch.len() >= options.batch_events || free().nth(batch.len()).is_some();
        let gathered = first.since + options.batch_delay;
        if full || ending || gathered <= now { Ready::Batch(batch) } else { Ready::At(gathered) }
    }

    /// Returns the refused batch to send now, or when the next one is due.
    fn retry(&mut self, now: Moment) -> (Option<&mut InFlight>, Option<Moment>) {
        if self.batches.iter().any(|batch| batch.refused && batch.is_being_sent()) {
            return (None, None);
        }
        match self.batches.iter_mut().filter(|batch| batch.again.is_some()).min_by_key(|b| b.again)
        {
            Some(batch) if batch.again <= Some(now) => (Some(batch), None),
            Some(batch) => (None, batch.again),
            None => (None, None),
        }
    }
}

/// The webhook queue; see the module documentation.
#[derive(Debug)]
pub struct Queue {
    options: Options,
    debounce: Debounce,
    lines: BTreeMap<Address, Line>,
    append: Vec<u8>,
    next_batch: u64,
    next_sequence: u64,
    report: Report,
    ending: bool,
}

impl Queue {
    /// Creates a queue with the events from the spool.
    ///
    /// Its time starts at 0, as that of [`run`](super::run) does.
    pub fn new(options: Options, kept: Vec<Kept>) -> Self {
        Self::begun(options, kept, Moment::default())
    }

    /// Creates a queue whose time starts at `now`.
    pub(super) fn begun(options: Options, kept: Vec<Kept>, now: Moment) -> Self {
        let debounce = Debounce::new(options.debounce);
        let mut queue = Self {
            options,
            debounce,
            lines: BTreeMap::new(),
            append: Vec::new(),
            next_batch: 0,
            next_sequence: 0,
            report: Report::default(),
            ending: false,
        };
        for event in kept {
            queue.next_sequence = queue.next_sequence.max(event.sequence + 1);
            let (address, event) = restored(event, now);
            queue.push(address, event);
        }
        queue
    }

    /// Inserts the events that another process accepted, before its own. All events get new numbers, so the spool
    /// must be rewritten afterwards.
    pub(super) fn adopt(&mut self, kept: Vec<Kept>, now: Moment) {
        for event in kept.into_iter().rev() {
            let (address, event) = restored(event, now);
            let line = self.lines.entry(address).or_default();
            line.bytes += event.json.len();
            line.waiting.push_front(event);
            self.report.waiting += 1;
        }
        for event in self.lines.values_mut().flat_map(Line::events_mut) {
            event.sequence = self.next_sequence;
            self.next_sequence += 1;
        }
    }

    /// Adds events.
    pub(super) fn take(&mut self, notes: Vec<Note>, now: Moment) {
        for note in notes {
            if let Some(note) = self.debounce.add(note, now) {
                self.accept(&note, now);
            }
        }
        if self.ending {
            self.end(now);
        }
    }

    /// Stops debouncing and batching, because the process stops.
    pub fn end(&mut self, now: Moment) {
        self.ending = true;
        while let Some(note) = self.debounce.give_up() {
            self.accept(&note, now);
        }
    }

    fn accept(&mut self, note: &Note, now: Moment) {
        let mut json: Option<String> = None;
        for endpoint in note
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.wants(note.kind.topic(), &note.channel))
        {
            let json = json.get_or_insert_with(|| note.kind.json(&note.channel));
            let sequence = self.next_sequence;
            self.next_sequence += 1;
            Record::Event { sequence, app: &note.app, target: &endpoint.target, json }
                .write(&mut self.append);
            let address =
                Address { app: Arc::clone(&note.app), target: Arc::clone(&endpoint.target) };
            let channel = Arc::clone(&note.channel);
            self.push(address, Event { sequence, since: now, channel, json: json.as_str().into() });
        }
    }

    fn push(&mut self, address: Address, event: Event) {
        let line = self.lines.entry(address).or_default();
        line.bytes += event.json.len();
        line.waiting.push_back(event);
        self.report.waiting += 1;
        while line.bytes > self.options.kept {
            // A batch stays, because it may have arrived.
            let Some(dropped) = line.waiting.pop_front() else { break };
            line.bytes -= dropped.json.len();
            self.report.waiting -= 1;
            self.report.overflowed += 1;
            Record::Dropped { sequence: dropped.sequence }.write(&mut self.append);
        }
    }

    /// Returns the work to do now.
    pub fn poll(&mut self, now: Moment, unix: UnixTime) -> Step {
        while let Some(note) = self.debounce.released(now) {
            self.accept(&note, now);
        }
        let mut step = Step { wake: self.debounce.wake(), ..Step::default() };
        let mut wake = |at: Moment| step.wake = Some(step.wake.map_or(at, |before| before.min(at)));
        for (address, line) in &mut self.lines {
            let mut send = |batch: &InFlight| {
                let (app, target) = (Arc::clone(&address.app), Arc::clone(&address.target));
                step.send.push(Batch { id: batch.id, app, target, body: Arc::clone(&batch.body) });
            };
            match line.ready(&self.options, self.ending, now) {
                Ready::Nothing => {}
                Ready::At(at) => wake(at),
                Ready::Batch(batch) => {
                    let events = line.take(&batch);
                    let batch = InFlight {
                        id: BatchId(self.next_batch),
                        body: body(&events, unix),
                        events,
                        first_sent: now,
                        refused: false,
                        pause: self.options.first_pause,
                        again: None,
                    };
                    self.next_batch += 1;
                    send(&batch);
                    line.batches.push(batch);
                }
            }
            match line.retry(now) {
                (Some(batch), _) => {
                    batch.again = None;
                    send(batch);
                }
                (None, Some(at)) => wake(at),
                (None, None) => {}
            }
        }
        step.append = mem::take(&mut self.append);
        step
    }

    /// Takes the result of a batch. Unknown batches are ignored.
    pub fn done(&mut self, id: BatchId, outcome: Outcome, now: Moment) {
        let is_meant = |batch: &InFlight| batch.id == id && batch.is_being_sent();
        let found = self.lines.iter_mut().find_map(|(address, line)| {
            let at = line.batches.iter().position(is_meant)?;
            Some((address, line, at))
        });
        let Some((address, line, at)) = found else { return };
        let batch = &mut line.batches[at];
        let events = batch.events.len() as u64;
        match outcome {
            Outcome::Taken => {
                self.report.delivered += events;
                if batch.refused {
                    // The endpoint is back.
                    for other in line.batches.iter_mut().filter(|batch| batch.again.is_some()) {
                        other.again = Some(now);
                    }
                }
            }
            Outcome::Failed => {
                self.report.failures += 1;
                let last = batch.first_sent + self.options.patience;
                if now < last {
                    batch.refused = true;
                    batch.again = Some((now + batch.pause).min(last));
                    batch.pause = (batch.pause * 2).min(self.options.longest_pause);
                    return;
                }
                self.report.given_up += events;
            }
            Outcome::Gone => self.report.given_up += events,
        }
        self.report.waiting -= events;
        let batch = line.batches.remove(at);
        let last = batch.events.iter().map(|event| event.sequence).max().unwrap_or_default();
        let in_batches = line.batches.iter().flat_map(|batch| &batch.events);
        // Waiting events are in order.
        if in_batches.chain(line.waiting.front()).all(|event| event.sequence > last) {
            Record::Done { sequence: last, app: &address.app, target: &address.target }
                .write(&mut self.append);
        } else {
            for Event { sequence, .. } in &batch.events {
                Record::Dropped { sequence: *sequence }.write(&mut self.append);
            }
        }
        line.bytes -= batch.events.iter().map(|event| event.json.len()).sum::<usize>();
        if line.events().next().is_none() {
            let address = address.clone();
            self.lines.remove(&address);
        }
    }

    /// Returns all waiting events as spool records. The spool file is replaced by them when most of it is obsolete.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (address, line) in &self.lines {
            for event in line.events() {
                let Address { app, target } = address;
                Record::Event { sequence: event.sequence, app, target, json: &event.json }
                    .write(&mut out);
            }
        }
        out
    }

    /// Returns the number of bytes of waiting events.
    pub(super) fn bytes(&self) -> usize {
        self.lines.values().map(|line| line.bytes).sum()
    }

    /// Returns whether no work is left, including batches being sent.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.append.is_empty() && self.debounce.wake().is_none()
    }

    /// Returns how long a stopping process may wait.
    pub(super) fn linger(&self) -> Duration {
        self.options.linger
    }

    /// Returns the counters.
    pub fn report(&self) -> Report {
        self.report
    }
}

enum Ready {
    Nothing,
    At(Moment),
    /// The sequence numbers of its events.
    Batch(HashSet<u64>),
}

/// An event from the spool.
fn restored(kept: Kept, now: Moment) -> (Address, Event) {
    // As `NoteKind::json` writes it; names of channels have no characters that JSON escapes.
    let channel = kept.json.split_once(r#""channel":""#).and_then(|(_, rest)| rest.split_once('"'));
    let channel = channel.map_or("", |(channel, _)| channel).into();
    let address = Address { app: kept.app.into(), target: kept.target.into() };
    let event = Event { sequence: kept.sequence, since: now, channel, json: kept.json.into() };
    (address, event)
}

fn body(events: &[Event], unix: UnixTime) -> Arc<str> {
    let mut body = format!(r#"{{"time_ms":{},"events":["#, unix.millis());
    for (number, event) in events.iter().enumerate() {
        if number > 0 {
            body.push(',');
        }
        body.push_str(&event.json);
    }
    body.push_str("]}");
    body.into()
}

#[cfg(test)]
mod tests;
