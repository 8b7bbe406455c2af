//! One socket's conversation: what its client says in, what it is told and what becomes of it out.
//!
//! Invariants
//! - A session belongs to one event loop; what it shares with others is in the registry.
//! - Whatever a client says, it gets an answer or silence, and the process goes on.
//! - A session that ends leaves every channel it was in, and nothing of it stays anywhere.

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
use crate::message::{self, Said};
use crate::moment::Moment;
use crate::name::ChannelName;
use crate::presence::Member;
use crate::rate::Bucket;
use crate::socket_id::SocketId;
use crate::statistics::Counters;
use sign_in::SignedIn;

/// What an event loop has to do for a socket after a turn of its session, in this order.
#[derive(Debug, Default)]
pub struct Out {
    /// Into the socket's queue.
    pub frames: Vec<Encoded>,
    /// Channels it does not hear any more.
    pub left: Vec<ChannelId>,
    /// Channels it hears from now on.
    pub joined: Vec<Join>,
    /// To be closed, after its queue is sent.
    pub close: Option<Close>,
}

/// A channel that a socket hears from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Which.
    pub channel: ChannelId,
    /// Deliveries up to this one are not for it.
    pub after: Offset,
}

impl Out {
    /// Tells a client why, and ends the connection: for one that has no session yet.
    pub fn refuse(&mut self, close: Close) {
        self.frames.push(message::error(close.code, close.reason));
        self.close = Some(close);
    }

    /// Makes it empty, for the next turn; its room stays.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.left.clear();
        self.joined.clear();
        self.close = None;
    }
}

/// One socket's conversation.
#[derive(Debug)]
pub struct Session {
    app: Arc<App>,
    counters: Arc<Counters>,
    socket: SocketId,
    seat: Seat,
    /// When the client was heard last.
    heard: Moment,
    /// It was asked whether it is there, and has not said anything since.
    asked: Option<Moment>,
    /// What it may still do of what others are told; none until it has said something to them, or left a channel.
    allowances: Option<Box<Allowances>>,
    user: Option<Box<SignedIn>>,
    /// In the order of names.
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
    /// A client has come. None when it may not stay: `out` says why.
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

    /// Which socket it is.
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// Whose client it is.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Its application is this from now on. What was asked when the client came (origin, TLS, room) is not asked again.
    pub(crate) fn renew(&mut self, app: Arc<App>) {
        self.app = app;
    }

    /// The numbers of its application.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The client said something: one whole text message.
    pub fn text(&mut self, text: &str, channels: &Channels, now: Moment, out: &mut Out) {
        self.heard(now);
        self.counters.received.increase();
        match Said::read(text) {
            Ok(Said::Ping) => out.frames.push(message::pong()),
            Ok(Said::Pong) => {}
            Ok(Said::Subscribe(subscribe)) => self.subscribe(&subscribe, channels, now, out),
            Ok(Said::Unsubscribe { channel }) => self.unsubscribe(&channel, channels, now, out),
            Ok(Said::SignIn { auth, user_data }) => {
                self.sign_in(&auth, &user_data, channels, now, out);
            }
            Ok(Said::Client { event, channel, data }) => {
                self.client_event(&event, &channel, data, channels, now, out);
            }
            Err(malformed) => {
                out.frames.push(message::error(NOT_UNDERSTOOD, &malformed.to_string()));
            }
        }
    }

    /// The client sent a whole binary message: the protocol has none.
    pub fn binary(&mut self, now: Moment, out: &mut Out) {
        self.heard(now);
        self.counters.received.increase();
        out.frames.push(message::error(NOT_UNDERSTOOD, "binary messages are not understood"));
    }

    /// The client is there: a ping or a pong of the WebSocket itself.
    pub fn heard(&mut self, now: Moment) {
        self.heard = now;
        self.asked = None;
    }

    /// When [`Session::idle`] is to be called, if nothing is heard until then.
    pub fn due(&self) -> Moment {
        match self.asked {
            Some(asked) => asked + self.app.limits.pong_timeout,
            None => self.heard + self.app.limits.activity_timeout,
        }
    }

    /// How long the client may take to answer the ping that it was sent; `None` when no answer is awaited.
    pub fn awaits_pong(&self) -> Option<Duration> {
        self.asked.map(|_| self.app.limits.pong_timeout)
    }

    /// Starts the time for an answer to the ping again: the client is behind, and alive.
    pub fn extend_pong_timeout(&mut self, now: Moment) {
        self.asked = self.asked.map(|_| now);
    }

    /// It is as late as [`Session::due`] said: asks whether the client is there, or ends the connection. Does nothing when it is not that late.
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

    /// The socket is gone, whoever ended it.
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

    /// May it subscribe, or sign in anew? Others are told of both, so a client that comes and goes without end would keep everybody busy. What it does
    /// before it leaves a channel has a bound anyway, and needs no memory.
    fn may_come(&mut self, now: Moment) -> bool {
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

/// It may leave all channels that it may have, and come back at once.
fn at_once(limits: &Limits) -> u32 {
    u32::try_from(limits.subscriptions).unwrap_or(u32::MAX).max(limits.subscription_rate)
}

#[cfg(test)]
mod tests;
