//! Signing in: assigns a socket to a user, and handles the user's watchlist.

use std::sync::Arc;

use super::{Out, Session};
use crate::auth;
use crate::channels::Channels;
use crate::close::{Close, LIMIT_EXCEEDED};
use crate::delivery::Seat;
use crate::json::Raw;
use crate::message;
use crate::moment::Moment;
use crate::name::ChannelName;
use crate::users::Reach;

/// The user to which the socket belongs.
#[derive(Debug)]
pub(super) struct SignedIn {
    pub(super) id: Arc<str>,
    /// The user's `user_info` on presence channels: JSON.
    pub(super) info: Option<Box<str>>,
    /// Users on the watchlist, each once.
    watchlist: Vec<Arc<str>>,
}

impl Session {
    pub(super) fn sign_in(
        &mut self,
        auth: &str,
        user_data: &str,
        channels: &Channels,
        now: Moment,
        out: &mut Out,
    ) {
        if self.user.is_some() {
            self.allowances(now);
            if !self.take_subscription_token(now) {
                let message = "too many sign-ins of one connection";
                out.frames.push(message::error(LIMIT_EXCEEDED, message));
                return;
            }
        }
        let signed = auth::sign_in(&self.app, self.socket, user_data, auth)
            .inspect_err(|why| self.counters.refuse_signature(&self.app.id, "sign-in", why))
            .is_ok();
        let user = Raw::new(user_data).ok().filter(|_| signed).and_then(|data| self.user_of(data));
        let Some((user, too_many)) = user else {
            self.counters.closed_with_error.increase();
            out.refuse(Close::UNAUTHORIZED);
            return;
        };
        let reach = channels.reach(&self.app, &self.counters);
        match &self.user {
            // The same user signs in again: watchers receive no event.
            Some(before) if before.id == user.id => {
                unwatch(before, self.seat, channels, &reach);
            }
            Some(_) => self.signed_out(channels, now, out),
            None => {}
        }
        out.frames.push(message::signin_success(user_data));
        if too_many {
            let limit = self.app.limits.watchlist;
            let message = format!("watchlist limit exceeded: {limit} users at most");
            out.frames.push(message::error(LIMIT_EXCEEDED, &message));
        }
        self.counters.signed_in.increase();
        let reach = channels.reach(&self.app, &self.counters);
        channels.users().sign_in(&reach, &user.id, self.seat);
        let mut online = Vec::new();
        for watched in &user.watchlist {
            if channels.users().watch(&reach, watched, self.seat) {
                online.push(&**watched);
            }
        }
        if !online.is_empty() {
            out.frames.push(message::watchlist_event("online", online.into_iter()));
        }
        let name = ChannelName::to_user(&user.id, self.app.limits.channel_name);
        self.user = Some(Box::new(user));
        // A user id that cannot be part of a channel name has no channel, so no message can be sent to it.
        if let Ok(name) = name
            && self.find(name.as_str()).is_err()
        {
            let joined = self.join(&name, None, None, channels, now, out);
            debug_assert!(joined.is_ok(), "only presence channels have members, and so too many");
        }
    }

    /// Removes the closed socket from its user.
    pub(super) fn sign_out(&self, user: &SignedIn, channels: &Channels) {
        let reach = channels.reach(&self.app, &self.counters);
        unwatch(user, self.seat, channels, &reach);
        channels.users().sign_out(&reach, &user.id, self.seat);
    }

    /// Removes the previous user when another one signs in on the same socket.
    fn signed_out(&mut self, channels: &Channels, now: Moment, out: &mut Out) {
        let Some(user) = self.user.take() else { return };
        if let Ok(name) = ChannelName::to_user(&user.id, self.app.limits.channel_name) {
            self.unsubscribe(name.as_str(), channels, now, out);
        }
        self.sign_out(&user, channels);
    }

    /// Parses `user_data`. The flag says that the watchlist is too long and was ignored.
    fn user_of(&self, user_data: Raw<'_>) -> Option<(SignedIn, bool)> {
        let limits = &self.app.limits;
        let [id, info, watchlist] = user_data.pick(["id", "user_info", "watchlist"]);
        // Pusher requires a string: client libraries do not complete a sign-in with another type.
        let id = id.and_then(Raw::string)?;
        if id.is_empty() || id.chars().count() > limits.user_id {
            return None;
        }
        let list = watchlist.filter(|_| self.app.rights.watchlist);
        let too_many = list.is_some_and(|list| list.elements().nth(limits.watchlist).is_some());
        let watched = list.filter(|_| !too_many).into_iter().flat_map(Raw::elements);
        let mut watchlist: Vec<Arc<str>> =
            watched.filter_map(Raw::id).map(|id| id.as_ref().into()).collect();
        watchlist.sort_unstable();
        watchlist.dedup();
        let info = info.map(|info| info.text().into());
        Some((SignedIn { id: id.as_ref().into(), info, watchlist }, too_many))
    }
}

fn unwatch(user: &SignedIn, seat: Seat, channels: &Channels, reach: &Reach<'_>) {
    for watched in &user.watchlist {
        channels.users().unwatch(reach, watched, seat);
    }
}
