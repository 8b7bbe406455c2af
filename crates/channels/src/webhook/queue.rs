//! The order of webhook events per endpoint: batches, retries, and spool records.
//!
//! Uses neither sockets nor clocks nor files: [`Queue::poll`] returns what to do, [`Queue::done`] takes the result.

use std::collections::{BTreeMap, VecDeque};
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

#[derive(Debug)]
struct Event {
    sequence: u64,
    since: Moment,
    json: Box<str>,
}

/// The events of one endpoint, in order; the first ones belong to the batch.
#[derive(Debug, Default)]
struct Line {
    events: VecDeque<Event>,
    bytes: usize,
    batch: Option<InFlight>,
}

/// A batch from its creation until it is accepted or dropped.
#[derive(Debug)]
struct InFlight {
    id: BatchId,
    body: Arc<str>,
    events: usize,
    first_sent: Moment,
    pause: Duration,
    /// When to send it again; `None` while it is being sent.
    again: Option<Moment>,
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
            let address = Address { app: event.app.into(), target: event.target.into() };
            queue.push(
                address,
                Event { sequence: event.sequence, since: now, json: event.json.into() },
            );
        }
        queue
    }

    /// Inserts the events that another process accepted, before its own. All events get new numbers, so the spool
    /// must be rewritten afterwards.
    pub(super) fn adopt(&mut self, kept: Vec<Kept>, now: Moment) {
        for event in kept.into_iter().rev() {
            let address = Address { app: event.app.into(), target: event.target.into() };
            let line = self.lines.entry(address).or_default();
            line.bytes += event.json.len();
            let flying = line.batch.as_ref().map_or(0, |in_flight| in_flight.events);
            line.events.insert(flying, Event { sequence: 0, since: now, json: event.json.into() });
            self.report.waiting += 1;
        }
        for event in self.lines.values_mut().flat_map(|line| &mut line.events) {
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
            self.push(address, Event { sequence, since: now, json: json.as_str().into() });
        }
    }

    fn push(&mut self, address: Address, event: Event) {
        let line = self.lines.entry(address).or_default();
        line.bytes += event.json.len();
        line.events.push_back(event);
        self.report.waiting += 1;
        while line.bytes > self.options.kept {
            // A batch being sent stays, because it may have arrived.
            let oldest = line.batch.as_ref().map_or(0, |in_flight| in_flight.events);
            let Some(dropped) = line.events.remove(oldest) else { break };
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
            let body = match &mut line.batch {
                Some(in_flight) => match in_flight.again {
                    None => continue,
                    Some(again) if again > now => {
                        wake(again);
                        continue;
                    }
                    Some(_) => {
                        in_flight.again = None;
                        Arc::clone(&in_flight.body)
                    }
                },
                None => match ready(line, &self.options, self.ending, now) {
                    Ready::Nothing => continue,
                    Ready::At(at) => {
                        wake(at);
                        continue;
                    }
                    Ready::Events(count) => {
                        let body = body(line.events.iter().take(count), unix);
                        line.batch = Some(InFlight {
                            id: BatchId(self.next_batch),
                            body: Arc::clone(&body),
                            events: count,
                            first_sent: now,
                            pause: self.options.first_pause,
                            again: None,
                        });
                        self.next_batch += 1;
                        body
                    }
                },
            };
            let Some(in_flight) = &line.batch else { continue };
            let (app, target) = (Arc::clone(&address.app), Arc::clone(&address.target));
            step.send.push(Batch { id: in_flight.id, app, target, body });
        }
        step.append = mem::take(&mut self.append);
        step
    }

    /// Takes the result of a batch. Unknown batches are ignored.
    pub fn done(&mut self, id: BatchId, outcome: Outcome, now: Moment) {
        let line = self.lines.iter_mut().find(|(_, line)| {
            line.batch
                .as_ref()
                .is_some_and(|in_flight| in_flight.id == id && in_flight.again.is_none())
        });
        let Some((address, line)) = line else { return };
        let Some(in_flight) = &mut line.batch else { return };
        let events = in_flight.events as u64;
        match outcome {
            Outcome::Taken => self.report.delivered += events,
            Outcome::Failed => {
                self.report.failures += 1;
                let last = in_flight.first_sent + self.options.patience;
                if now < last {
                    in_flight.again = Some((now + in_flight.pause).min(last));
                    in_flight.pause = (in_flight.pause * 2).min(self.options.longest_pause);
                    return;
                }
                self.report.given_up += events;
            }
            Outcome::Gone => self.report.given_up += events,
        }
        self.report.waiting -= events;
        let mut last = 0;
        for event in line.events.drain(..in_flight.events) {
            line.bytes -= event.json.len();
            last = event.sequence;
        }
        Record::Done { sequence: last, app: &address.app, target: &address.target }
            .write(&mut self.append);
        line.batch = None;
        if line.events.is_empty() {
            let address = address.clone();
            self.lines.remove(&address);
        }
    }

    /// Returns all waiting events as spool records. The spool file is replaced by them when most of it is obsolete.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (address, line) in &self.lines {
            for event in &line.events {
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
    Events(usize),
}

/// Decides how many events the next batch has.
fn ready(line: &Line, options: &Options, ending: bool, now: Moment) -> Ready {
    let Some(first) = line.events.front() else { return Ready::Nothing };
    let mut bytes = 0;
    let fitting = line.events.iter().take(options.batch_events.max(1)).take_while(|event| {
        bytes += event.json.len() + 1;
        bytes <= options.batch_bytes
    });
    let count = fitting.count().max(1);
    let full = count < line.events.len() || count >= options.batch_events;
    let gathered = first.since + options.batch_delay;
    if full || ending || gathered <= now { Ready::Events(count) } else { Ready::At(gathered) }
}

fn body<'a>(events: impl Iterator<Item = &'a Event>, unix: UnixTime) -> Arc<str> {
    let mut body = format!(r#"{{"time_ms":{},"events":["#, unix.millis());
    for (number, event) in events.enumerate() {
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
