//! Client events.

use super::{Out, Session};
use crate::channels::Channels;
use crate::close::CLIENT_EVENT_REFUSED;
use crate::json::{Kind, Raw};
use crate::message;
use crate::moment::Moment;
use crate::name::Access;
use crate::registry::{Author, Publication};

impl Session {
    pub(super) fn client_event(
        &mut self,
        event: &str,
        channel: &str,
        data: Raw<'_>,
        channels: &Channels,
        now: Moment,
        out: &mut Out,
    ) {
        if let Err(why) = self.try_client_event(event, channel, data, channels, now) {
            let message = format!("client event rejected: {why}");
            out.frames.push(message::error(CLIENT_EVENT_REFUSED, &message));
        }
    }

    fn try_client_event(
        &mut self,
        event: &str,
        channel: &str,
        data: Raw<'_>,
        channels: &Channels,
        now: Moment,
    ) -> Result<(), String> {
        // Checked first, so that an event rejected for other reasons uses a token too.
        let limit = self.app.limits.client_events;
        if !self.allowances(now).client_events.take(limit, now) {
            self.counters.rate_limited.increase();
            return Err(format!("rate limit: {limit} per second and connection"));
        }
        let limits = &self.app.limits;
        if !self.app.rights.client_events {
            return Err("not enabled for this application".to_owned());
        }
        if event.chars().count() > limits.event_name {
            return Err(format!("an event's name has {} characters at most", limits.event_name));
        }
        if size(data, limits.data) > limits.data {
            return Err(format!("an event's data has {} bytes at most", limits.data));
        }
        let subscribed = self.find(channel).ok().map(|place| &self.subscriptions[place]);
        let Some(subscribed) = subscribed else {
            return Err("this connection is not subscribed to the channel".to_owned());
        };
        if !matches!(subscribed.name.access(), Access::Private | Access::Presence) {
            return Err("only private and presence channels have them".to_owned());
        }
        let publication = Publication {
            channel: &subscribed.name,
            event,
            data: data.text(),
            author: Author::Client {
                socket: self.socket,
                user_id: subscribed.member.as_ref().map(|member| member.id()),
            },
        };
        let published = channels.registry().publish(&self.app, &publication, now);
        published.map(|_unstored| ()).map_err(|why| why.to_string())
    }
}

/// Returns the size of an event's data in bytes: of a string its unescaped text, otherwise its JSON. Text within the
/// limit is not unescaped.
fn size(data: Raw<'_>, limit: usize) -> usize {
    let text = data.text();
    if text.len() <= limit || data.kind() != Kind::String {
        return text.len();
    }
    data.string().map_or(text.len(), |said| said.len())
}
