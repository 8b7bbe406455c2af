//! The history of a channel: its position, and what a subscriber that returns has missed.

use std::hash::BuildHasher as _;

use super::super::Resume;
use super::{Channel, Context};
use crate::app::{App, History};
use crate::delivery::{RESTARTED, UNTIL_LOADED};
use crate::encoded::Encoded;
use crate::history::{Kept, Position};
use crate::message;
use crate::name::{Access, ChannelName};

/// Returns the application's history settings for a channel.
pub(super) fn history_of<'a>(app: &'a App, name: &ChannelName) -> Option<&'a History> {
    let history = app.history.as_ref()?;
    let wanted = history.channels.is_empty()
        || history.channels.iter().any(|prefix| name.as_str().starts_with(&**prefix));
    (wanted && name.access() != Access::User).then_some(history)
}

impl Channel {
    /// Replaces the history after a gap in the shared log, and tells the subscribers of this node.
    pub(in crate::registry) fn restart_history(&mut self, context: &Context<'_>) {
        self.history = None;
        self.start_positions(context, RESTARTED);
    }

    /// Removes the history: an event is missing.
    pub(in crate::registry) fn end_history(&mut self) {
        self.history = None;
    }

    /// Keeps the position of a channel whose last subscriber has left for as long as its events: a client that comes back
    /// has missed nothing. The shared log needs no record for that.
    pub(super) fn wait_for_subscribers(&mut self, context: &Context<'_>) {
        if self.here == 0
            && !context.shared.is_active()
            && let Some(history) = history_of(context.app, &self.name)
            && let Some(kept) = &mut self.history
            && let Some(place) = context.places.take()
        {
            kept.wait(context.now + history.age, place);
        }
    }

    /// Tells the subscribers of this node from which position they have the channel's events. `why` is
    /// [`RESTARTED`] or [`LOADED`](crate::delivery::LOADED).
    pub(in crate::registry) fn start_positions(&mut self, context: &Context<'_>, why: u64) {
        if history_of(context.app, &self.name).is_none() || self.here == 0 {
            return;
        }
        // There is none while the log is read for the first time.
        if let Some(Position { epoch, offset }) = self.current(context) {
            let message = message::not_recovered(self.name.shared(), epoch, offset);
            self.deliver(context, &message, None, why);
        }
    }

    /// Returns the history, which begins now unless it has begun.
    pub(super) fn begin_history(&mut self, context: &Context<'_>) -> &mut Kept {
        // Two histories of one record never share an epoch if an event was published between them: it has increased
        // the sequence.
        let life = (self.id, self.sequence);
        let (app, name) = (&self.app.id, self.name.as_str());
        self.history.get_or_insert_with(|| {
            let kept = match context.shared.epoch().filter(|_| context.shared.is_active()) {
                Some(epoch) => Kept::new(epoch, context.shared.complete_after(app, name)),
                None => Kept::new(context.random.hash_one(("epoch", life)), 0),
            };
            Box::new(kept)
        })
    }

    /// Returns the position up to which this node has the channel's events; `None` until the shared log has
    /// been read up to its end once.
    pub(super) fn current(&mut self, context: &Context<'_>) -> Option<Position> {
        if !context.shared.is_active() {
            return Some(self.begin_history(context).position());
        }
        if !context.shared.is_loaded() {
            return None;
        }
        let epoch = self.begin_history(context).position().epoch;
        Some(Position { epoch, offset: context.shared.applied() })
    }

    /// Returns the position of a new subscriber in the history, the events it missed, and how far it is ahead of
    /// this node.
    pub(super) fn resume(
        &mut self,
        context: &Context<'_>,
        resume: Option<Resume>,
    ) -> (Option<Position>, Option<Vec<Encoded>>, u64) {
        if history_of(context.app, &self.name).is_none() {
            return (None, None, 0);
        }
        let Some(position) = self.current(context) else {
            return self.resume_early(context, resume).unwrap_or((None, None, UNTIL_LOADED));
        };
        let kept = self.begin_history(context);
        kept.expire(context.now);
        let Some(Resume { position: from, socket, room }) = resume else {
            return (Some(position), None, 0);
        };
        // Another node may have read more of the log than this one.
        if context.shared.is_active()
            && from.epoch == position.epoch
            && from.offset > position.offset
        {
            return (Some(from), Some(Vec::new()), from.offset);
        }
        (Some(position), kept.since(from, position.offset, socket, room), 0)
    }

    /// Resumes a subscriber while this node reads the log for the first time: the events that are still to be read reach
    /// it as deliveries. Returns `None` if it cannot be recovered.
    fn resume_early(
        &mut self,
        context: &Context<'_>,
        resume: Option<Resume>,
    ) -> Option<(Option<Position>, Option<Vec<Encoded>>, u64)> {
        let Resume { position: from, socket, room } = resume?;
        let epoch = context.shared.epoch().filter(|epoch| *epoch == from.epoch)?;
        let position = Position { epoch, offset: context.shared.applied() };
        let kept = self.begin_history(context);
        kept.expire(context.now);
        let resumed = if from.offset > position.offset {
            (Some(from), Some(Vec::new()), from.offset)
        } else {
            (Some(position), Some(kept.since(from, position.offset, socket, room)?), 0)
        };
        context.shared.set_resumed_early();
        Some(resumed)
    }
}
