//! The number of subscribers of a channel, and how often it is published.

use std::time::Duration;

use super::{Channel, Context};
use crate::message;
use crate::name::Access;
use crate::observer::ChannelEvent;

/// Up to this many subscribers each change of their number is published at once; beyond it at most every
/// [`COUNT_PAUSE`], as Pusher does.
const COUNT_AT_ONCE: usize = 100;
const COUNT_PAUSE: Duration = Duration::from_secs(5);
/// After this many numbers without a pause of two [`COUNT_BREATH`] in between, each waits for one. Any client may
/// subscribe and unsubscribe repeatedly.
const COUNT_OFTEN: u8 = 100;
const COUNT_BREATH: Duration = Duration::from_secs(1);

impl Channel {
    /// Publishes the number of subscribers if it changed and its pause is over.
    pub(super) fn count_changed(&mut self, context: &Context<'_>) {
        let now = self.subscribers();
        let channel = self.name.shared();
        let occupied = now > 0;
        let turned = occupied != (self.sent_count > 0);
        if turned {
            let event = if occupied {
                ChannelEvent::Occupied { channel }
            } else {
                ChannelEvent::Vacated { channel }
            };
            self.notify_observer(context, &event);
        }
        if matches!(self.name.access(), Access::Presence | Access::User) {
            self.sent_count = now;
            return;
        }
        let waits = context.now < self.sent_at + self.count_pause(now);
        if self.sent_count == now || (waits && !turned) {
            return;
        }
        self.sent_count = now;
        // A delayed number is published one breath after the previous one, so the gap does not count as a pause.
        let thick = context.now < self.sent_at + 2 * COUNT_BREATH;
        self.frequent_counts = if thick { self.frequent_counts.saturating_add(1) } else { 1 };
        self.sent_at = context.now;
        self.notify_observer(context, &ChannelEvent::SubscriptionCount { channel, count: now });
        if context.app.rights.subscription_count {
            let message = message::subscription_count(channel, now);
            self.deliver(context, &message, None, 0);
        }
    }

    /// Returns the minimum time between two published numbers.
    pub(super) fn count_pause(&self, subscribers: usize) -> Duration {
        if subscribers > COUNT_AT_ONCE {
            COUNT_PAUSE
        } else if self.frequent_counts >= COUNT_OFTEN {
            COUNT_BREATH
        } else {
            Duration::ZERO
        }
    }
}
