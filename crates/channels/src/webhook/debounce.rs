//! Debounces events: a page that is reloaded leaves and joins again within a second.
//!
//! Invariants
//! - A client that leaves and returns in time causes neither event.
//! - Debounced events are released in the order in which they started.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::intake::{Note, NoteKind};
use crate::moment::Moment;

/// Identifies a subject with at most one pending event: a channel's end, a member's absence, a channel's count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    app: Arc<str>,
    channel: Arc<str>,
    subject: Subject,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Existence,
    Member(Arc<str>),
    Count,
}

/// Release time, and the order of events with the same time.
type Due = (Moment, u64);

/// Maximum number of pending events. Beyond it the oldest is released.
const MAX_PENDING: usize = 100_000;

#[derive(Debug)]
pub(super) struct Debounce {
    time: Duration,
    due: BTreeMap<Due, (Key, Note)>,
    keys: HashMap<Key, Due>,
    next: u64,
}

impl Debounce {
    pub(super) fn new(time: Duration) -> Self {
        Self { time, due: BTreeMap::new(), keys: HashMap::new(), next: 0 }
    }

    /// Adds an event; returns one to send at once.
    pub(super) fn add(&mut self, note: Note, now: Moment) -> Option<Note> {
        let key = |subject| Key {
            app: Arc::clone(&note.app),
            channel: Arc::clone(&note.channel),
            subject,
        };
        match &note.kind {
            NoteKind::Occupied => self.cancel(&key(Subject::Existence), note),
            NoteKind::MemberAdded(user) => {
                self.cancel(&key(Subject::Member(Arc::clone(user))), note)
            }
            NoteKind::Vacated => self.begin(key(Subject::Existence), note, now),
            NoteKind::MemberRemoved(user) => {
                self.begin(key(Subject::Member(Arc::clone(user))), note, now)
            }
            NoteKind::Count(_) => {
                let key = key(Subject::Count);
                // The newest number is sent at the time of the first.
                let Some((_, waiting)) = self.keys.get(&key).and_then(|due| self.due.get_mut(due))
                else {
                    return self.begin(key, note, now);
                };
                *waiting = note;
                None
            }
            NoteKind::CacheMiss | NoteKind::Client(_) => Some(note),
        }
    }

    fn cancel(&mut self, key: &Key, note: Note) -> Option<Note> {
        match self.keys.remove(key) {
            Some(due) => {
                self.due.remove(&due);
                None
            }
            None => Some(note),
        }
    }

    fn begin(&mut self, key: Key, note: Note, now: Moment) -> Option<Note> {
        let due = (now + self.time, self.next);
        self.next += 1;
        if let Some(before) = self.keys.insert(key.clone(), due) {
            self.due.remove(&before);
        }
        self.due.insert(due, (key, note));
        if self.due.len() > MAX_PENDING { self.pop() } else { None }
    }

    fn pop(&mut self) -> Option<Note> {
        let (_, (key, note)) = self.due.pop_first()?;
        self.keys.remove(&key);
        Some(note)
    }

    /// Returns the next event whose time is over.
    pub(super) fn released(&mut self, now: Moment) -> Option<Note> {
        if self.wake()? <= now { self.pop() } else { None }
    }

    /// Returns the next event before its time, because the process stops.
    pub(super) fn give_up(&mut self) -> Option<Note> {
        self.pop()
    }

    /// Returns when the next event is released.
    pub(super) fn wake(&self) -> Option<Moment> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }
}
