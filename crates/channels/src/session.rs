//! The protocol state of one socket: takes client messages, returns frames and decisions.
//!
//! Invariants
//! - A session belongs to one event loop; shared state is in the registry.
//! - Any client message gets a reply or is ignored; none can end the process.
//! - A session that ends leaves all its channels, and leaves no state behind.

mod client_event;
mod sign_in;
mod subscribe;

use std::sync::Arc;
use std::time::Duration;

use crate::app::{App, Limits};
use crate::channels::Channels;
use crate::close::{Close, NOT_UNDERSTOOD};
use crate::delivery::{ChannelId, Offset, Seat};
use crate::encoded::Encoded;
use crate::hello::Hello;
use crate::history::Room;
use crate::message::{self, ClientMessage};
use crate::moment::Moment;
use crate::name::ChannelName;
use crate::presence::Member;
use crate::rate::Bucket;
use crate::socket_id::SocketId;
use crate::statistics::Counters;
use sign_in::SignedIn;

/// The actions of an event loop after a turn of a session, in this order.
#[derive(Debug, Default)]
pub struct Out {
    /// Messages for the socket's queue.
    pub frames: Vec<Encoded>,
    /// Channels from which the socket was removed.
    pub left: Vec<ChannelId>,
    /// Channels to which the socket was added.
    pub joined: Vec<Join>,
    /// Closes the connection after its queue is sent.
    pub close: Option<Close>,
    /// The room for missed events in the socket's queue, which the event loop sets before a turn.
    pub room: Room,
}

/// A new subscription of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Id of the channel.
    pub channel: ChannelId,
    /// Only deliveries with a higher offset are for the socket.
    pub after: Offset,
    /// Deliveries of the shared log up to this position are not for the socket either.
    pub ahead: u64,
}

impl Out {
    /// Sends an error and closes a connection that has no session yet.
    pub fn refuse(&mut self, close: Close) {
        self.frames.push(message::error(close.code, close.reason));
        self.close = Some(close);
    }

    /// Clears the actions for the next turn and keeps the buffers.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.left.clear();
        self.joined.clear();
        self.close = None;
    }
}

/// The session of one socket.
#[derive(Debug)]
pub struct Session {
    app: Arc<App>,
    counters: Arc<Counters>,
    socket: SocketId,
    seat: Seat,
    /// Time of the last message from the client.
    heard: Moment,
    /// Time of an unanswered ping.
    asked: Option<Moment>,
    /// Rate limits for messages that other clients see; `None` until the first use.
    allowances: Option<Box<Allowances>>,
    user: Option<Box<SignedIn>>,
    /// Subscriptions, sorted by name.
    subscriptions: Vec<Subscribed>,
}

#[derive(Debug)]
struct Allowances {
    client_events: Bucket,
    subscriptions: Bucket,
}

#[derive(Debug)]
struct Subscribed {
    name: ChannelName,
    channel: ChannelId,
    member: Option<Arc<Member>>,
}

impl Session {
    /// Opens a session. Returns `None` if the client is rejected; `out` contains the reason.
    pub fn open(
        app: Arc<App>,
        seat: Seat,
        socket: SocketId,
        hello: &Hello<'_>,
        channels: &Channels,
        now: Moment,
        out: &mut Out,
    ) -> Option<Self> {
        let counters = channels.statistics().of(&app.id);
        let room = || {
            let limit = app.limits.connections.map(|limit| limit as u64);
            if counters.connections.increase_below(limit) { Ok(()) } else { Err(Close::OVER_QUOTA) }
        };
        if let Err(close) = hello.check(&app).and_then(|()| room()) {
            counters.closed_with_error.increase();
            out.refuse(close);
            return None;
        }
        counters.connected.increase();
        out.frames.push(message::connection_established(socket, app.limits.activity_timeout));
        Some(Self {
            app,
            counters,
            socket,
            seat,
            heard: now,
            asked: None,
            allowances: None,
            user: None,
            subscriptions: Vec::new(),
        })
    }

    /// Returns the application.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Replaces the application. Checks at connection time (origin, TLS, capacity) are not repeated.
    pub(crate) fn renew(&mut self, app: Arc<App>) {
        self.app = app;
    }

    /// Returns the counters of the application.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Handles one whole text message.
    pub fn text(&mut self, text: &str, channels: &Channels, now: Moment, out: &mut Out) {
        self.heard(now);
        self.counters.received.increase();
        match ClientMessage::read(text) {
            Ok(ClientMessage::Ping) => out.frames.push(message::pong()),
            Ok(ClientMessage::Pong) => {}
            Ok(ClientMessage::Subscribe(subscribe)) => {
                self.subscribe(&subscribe, channels, now, out);
            }
            Ok(ClientMessage::Unsubscribe { channel }) => {
                self.unsubscribe(&channel, channels, now, out);
            }
            Ok(ClientMessage::SignIn { auth, user_data }) => {
                self.sign_in(&auth, &user_data, channels, now, out);
            }
            Ok(ClientMessage::Client { event, channel, data }) => {
                self.client_event(&event, &channel, data, channels, now, out);
            }
            Err(malformed) => {
                out.frames.push(message::error(NOT_UNDERSTOOD, &malformed.to_string()));
            }
        }
    }

    /// Handles a whole binary message, which the protocol does not have.
    pub fn binary(&mut self, now: Moment, out: &mut Out) {
        self.heard(now);
        self.counters.received.increase();
        out.frames.push(message::error(NOT_UNDERSTOOD, "binary messages are not understood"));
    }

    /// Records a sign of life of the client, for example a WebSocket ping or pong.
    pub fn heard(&mut self, now: Moment) {
        self.heard = now;
        self.asked = None;
    }

    /// Returns when to call [`Session::idle`] unless the client sends a message before.
    pub fn due(&self) -> Moment {
        match self.asked {
            Some(asked) => asked + self.app.limits.pong_timeout,
            None => self.heard + self.app.limits.activity_timeout,
        }
    }

    /// Returns the timeout of the pending ping; `None` if no ping is pending.
    pub fn awaits_pong(&self) -> Option<Duration> {
        self.asked.map(|_| self.app.limits.pong_timeout)
    }

    /// Restarts the timeout of the pending ping, because the client is slow but alive.
    pub fn extend_pong_timeout(&mut self, now: Moment) {
        self.asked = self.asked.map(|_| now);
    }

    /// Sends a ping or closes the connection when [`Session::due`] is reached; otherwise does nothing.
    pub fn idle(&mut self, now: Moment, out: &mut Out) {
        if now < self.due() {
            return;
        }
        if self.asked.is_some() {
            self.counters.closed_with_error.increase();
            out.refuse(Close::PONG_TIMEOUT);
        } else {
            self.asked = Some(now);
            out.frames.push(message::ping());
        }
    }

    /// Ends the session of a closed socket.
    pub fn closed(self, channels: &Channels, now: Moment) {
        for subscribed in &self.subscriptions {
            self.leave(subscribed, channels, now);
        }
        if let Some(user) = &self.user {
            self.sign_out(user, channels);
        }
        self.counters.connections.decrease();
    }

    fn unsubscribe(&mut self, channel: &str, channels: &Channels, now: Moment, out: &mut Out) {
        let Ok(place) = self.find(channel) else { return };
        self.allowances(now);
        let subscribed = self.subscriptions.remove(place);
        if self.subscriptions.len() * 4 <= self.subscriptions.capacity() {
            self.subscriptions.shrink_to(self.subscriptions.len() * 2);
        }
        self.leave(&subscribed, channels, now);
        out.left.push(subscribed.channel);
    }

    fn leave(&self, subscribed: &Subscribed, channels: &Channels, now: Moment) {
        self.counters.subscriptions.decrease();
        channels.registry().unsubscribe(
            &self.app,
            &subscribed.name,
            self.seat.event_loop,
            subscribed.member.as_deref(),
            now,
        );
    }

    fn allowances(&mut self, now: Moment) -> &mut Allowances {
        let limits = &self.app.limits;
        self.allowances.get_or_insert_with(|| {
            Box::new(Allowances {
                client_events: Bucket::full(limits.client_events, now),
                subscriptions: Bucket::full(at_once(limits), now),
            })
        })
    }

    /// Takes a token for a subscription or a sign-in. Both send events to other clients, so a client that repeats
    /// them endlessly would load all of them. Until the first unsubscription the number is bounded anyway, and needs
    /// no bucket.
    fn take_subscription_token(&mut self, now: Moment) -> bool {
        let limits = &self.app.limits;
        let Some(allowances) = &mut self.allowances else { return true };
        let may = allowances.subscriptions.take_of(at_once(limits), limits.subscription_rate, now);
        if !may {
            self.counters.rate_limited.increase();
        }
        may
    }

    fn find(&self, channel: &str) -> Result<usize, usize> {
        self.subscriptions.binary_search_by(|subscribed| subscribed.name.as_str().cmp(channel))
    }
}

/// Returns the bucket size: a client may leave all its channels and subscribe to them again at once.
fn at_once(limits: &Limits) -> u32 {
    u32::try_from(limits.subscriptions).unwrap_or(u32::MAX).max(limits.subscription_rate)
}

#[cfg(test)]
mod tests;
