//! Subscribing: authorization, and the first messages to a subscriber.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use super::{Join, Out, Session, Subscribed};
use crate::auth::{self, Unsigned};
use crate::channels::Channels;
use crate::close::NOT_UNDERSTOOD;
use crate::history::Position;
use crate::json::{Kind, Raw};
use crate::message::{self, Subscribe};
use crate::moment::Moment;
use crate::name::{Access, ChannelName};
use crate::presence::Member;
use crate::registry::{Joined, Resume, Subscription};

/// The reason of a rejected subscription, as sent to the client.
struct Refused {
    kind: &'static str,
    message: String,
    status: u16,
}

impl Refused {
    /// The name or data are invalid.
    fn invalid(why: &dyn Display) -> Self {
        Self { kind: "InvalidSubscription", message: why.to_string(), status: 400 }
    }

    /// The application did not authorize the subscription.
    fn unauthorized(why: &dyn Display) -> Self {
        Self { kind: "AuthError", message: why.to_string(), status: 401 }
    }

    /// A limit is exceeded.
    fn limit(why: &dyn Display) -> Self {
        Self { kind: "LimitReached", message: why.to_string(), status: 403 }
    }
}

impl Session {
    pub(super) fn subscribe(
        &mut self,
        subscribe: &Subscribe<'_>,
        channels: &Channels,
        now: Moment,
        out: &mut Out,
    ) {
        if let Err(refused) = self.try_subscribe(subscribe, channels, now, out) {
            self.counters.subscription_errors.increase();
            out.frames.push(message::subscription_error(
                &subscribe.channel,
                refused.kind,
                &refused.message,
                refused.status,
            ));
        }
    }

    fn try_subscribe(
        &mut self,
        subscribe: &Subscribe<'_>,
        channels: &Channels,
        now: Moment,
        out: &mut Out,
    ) -> Result<(), Refused> {
        if !self.take_subscription_token(now) {
            let rate = self.app.limits.subscription_rate;
            return Err(Refused::limit(&format_args!(
                "a connection that leaves channels may subscribe {rate} times per second"
            )));
        }
        let limits = &self.app.limits;
        let name = ChannelName::new(&subscribe.channel, limits.channel_name)
            .map_err(|why| Refused::invalid(&why))?;
        let known = self.find(name.as_str());
        if known.is_ok() && name.access() == Access::User {
            // The server subscribed it at sign-in; clients send the subscription anyway.
            out.frames.push(succeeded(name.as_str(), "{}"));
            return Ok(());
        }
        if known.is_ok() {
            // As Pusher does: the existing subscription is valid, so the error is not about the channel.
            let message = format!("existing subscription to channel {}", name.as_str());
            out.frames.push(message::error(NOT_UNDERSTOOD, &message));
            return Ok(());
        }
        let member = self.authorize(&name, subscribe)?;
        let of = |access| {
            self.subscriptions.iter().filter(move |one| one.name.access() == access).count()
        };
        // The user's own channel does not count, because the client did not choose it.
        if self.subscriptions.len() - of(Access::User) >= limits.subscriptions {
            let limit = limits.subscriptions;
            return Err(Refused::limit(&format_args!(
                "a connection may have {limit} subscriptions at most"
            )));
        }
        let public = limits.public_subscriptions;
        if name.access() == Access::Public && of(Access::Public) >= public {
            return Err(Refused::limit(&format_args!(
                "a connection may have {public} subscriptions to public channels at most"
            )));
        }
        let resume = subscribe.resume.as_ref().map(|resume| Resume {
            position: Position { epoch: resume.epoch, offset: resume.offset },
            socket: resume.socket_id,
            room: out.room.beside(&out.frames),
        });
        let joined = self
            .join(&name, member, resume, channels, now, out)
            .map_err(|why| Refused::limit(&why))?;
        out.frames.push(succeeded(name.as_str(), &subscription_data(&joined, resume.is_some())));
        out.frames.extend(joined.missed.iter().flatten().cloned());
        match (&joined.missed, joined.cached) {
            (None, Some(cached)) => out.frames.push(cached),
            (None, None) if name.is_cache() => out.frames.push(message::cache_miss(name.as_str())),
            _ => {}
        }
        match (resume, &joined.missed) {
            (Some(_), Some(_)) => self.counters.recovered.increase(),
            (Some(_), None) => self.counters.not_recovered.increase(),
            (None, _) => {}
        }
        Ok(())
    }

    /// Adds the socket to a channel that it is not in yet.
    pub(super) fn join(
        &mut self,
        name: &ChannelName,
        member: Option<Arc<Member>>,
        resume: Option<Resume>,
        channels: &Channels,
        now: Moment,
        out: &mut Out,
    ) -> Result<Joined, crate::registry::SubscribeRefused> {
        let subscription = Subscription {
            channel: name,
            event_loop: self.seat.event_loop,
            member: member.as_ref(),
            resume,
        };
        let joined = channels.registry().subscribe(&self.app, &subscription, now)?;
        let Joined { channel, after, ahead, .. } = joined;
        out.joined.push(Join { channel, after, ahead });
        self.counters.subscribed.increase();
        self.counters.subscriptions.increase();
        if let Err(place) = self.find(name.as_str()) {
            let subscribed =
                Subscribed { name: joined.name.clone(), channel: joined.channel, member };
            self.subscriptions.reserve_exact(usize::from(self.subscriptions.is_empty()));
            self.subscriptions.insert(place, subscribed);
        }
        Ok(joined)
    }

    /// Checks the permission for a channel and returns the member.
    fn authorize(
        &self,
        name: &ChannelName,
        subscribe: &Subscribe<'_>,
    ) -> Result<Option<Arc<Member>>, Refused> {
        if name.access() == Access::Public {
            return Ok(None);
        }
        if let Some(user_id) = name.user_id() {
            let is_it = self.user.as_ref().is_some_and(|user| *user.id == *user_id);
            let why = "only the user it belongs to hears this channel, after it has signed in";
            return if is_it { Ok(None) } else { Err(Refused::unauthorized(&why)) };
        }
        let auth =
            subscribe.auth.as_deref().ok_or_else(|| Refused::unauthorized(&"auth is missing"))?;
        let verify = |data| auth::subscription(&self.app, self.socket, name.as_str(), data, auth);
        let data = subscribe.channel_data.as_deref();
        if name.access() != Access::Presence {
            // The data are not interpreted here: some servers sign them, some do not. They must be an object, because
            // otherwise the signature of another text could be used. An application that signs in users without
            // checking the socket id would sign
            // `SOCKET:CHANNEL::user::{..}`, which would be valid for a subscription.
            let data = data.filter(|data| Raw::new(data).is_ok_and(|it| it.kind() == Kind::Object));
            verify(data)
                .or_else(|why| data.map_or(Err(why), |_| verify(None)))
                .map_err(|why| self.unsigned(why))?;
            return Ok(None);
        }
        verify(data).map_err(|why| self.unsigned(why))?;
        let member = match (data, &self.user) {
            (Some(data), _) => self.member(data)?,
            // A signed-in user is known already (Pusher Channels: "Authorizing users").
            (None, Some(user)) => self.member_of(&user.id, user.info.as_deref())?,
            (None, None) => {
                let why = "channel_data is missing: presence channels require it unless the client has signed in";
                return Err(Refused::unauthorized(&why));
            }
        };
        Ok(Some(Arc::new(member)))
    }

    fn unsigned(&self, why: Unsigned) -> Refused {
        self.counters.refuse_signature(&self.app.id, "subscription", &why);
        Refused::unauthorized(&why)
    }

    /// Parses the member of a presence channel from the signed `channel_data`.
    fn member(&self, channel_data: &str) -> Result<Member, Refused> {
        let data = Raw::new(channel_data)
            .map_err(|why| Refused::invalid(&format_args!("channel_data is no JSON: {why}")))?;
        let [user_id, user_info] = data.pick(["user_id", "user_info"]);
        let user_id = user_id.and_then(Raw::id).filter(|id| !id.is_empty()).ok_or_else(|| {
            Refused::invalid(&"channel_data needs a user_id that is a string or a number")
        })?;
        self.member_of(&user_id, user_info.map(Raw::text))
    }

    fn member_of(&self, id: &str, info: Option<&str>) -> Result<Member, Refused> {
        let limits = &self.app.limits;
        if id.chars().count() > limits.user_id {
            let limit = limits.user_id;
            return Err(Refused::limit(&format_args!("a user_id has {limit} characters at most")));
        }
        if info.is_some_and(|info| info.len() > limits.user_info) {
            let limit = limits.user_info;
            return Err(Refused::limit(&format_args!("user_info has {limit} bytes at most")));
        }
        Ok(Member::new(id, info))
    }
}

fn succeeded(channel: &str, data: &str) -> crate::encoded::Encoded {
    message::about("pusher_internal:subscription_succeeded", channel, data)
}

/// Returns the data of `subscription_succeeded`.
fn subscription_data(joined: &Joined, resumes: bool) -> String {
    let mut data = String::from("{");
    if let Some(roster) = &joined.roster {
        data.push_str(r#""presence":"#);
        data.push_str(roster);
    }
    if let Some(Position { epoch, offset }) = joined.position {
        if data.len() > 1 {
            data.push(',');
        }
        write!(data, r#""resume":{{"epoch":"{epoch:016x}","offset":{offset}}}"#)
            .expect("writing to a String cannot fail");
    }
    if resumes {
        if data.len() > 1 {
            data.push(',');
        }
        write!(data, r#""recovered":{}"#, joined.missed.is_some())
            .expect("writing to a String cannot fail");
    }
    data.push('}');
    data
}
