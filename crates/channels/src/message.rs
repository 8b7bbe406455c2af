//! Parses client messages and writes server messages (Pusher Channels: "WebSocket protocol", version 7).
//!
//! Invariants
//! - `data` of an event is neither parsed nor re-encoded: its bytes are forwarded as received.
//! - In the server's own messages `data` is a JSON string that contains JSON, except in `pusher:error`, `pusher:ping`
//!   and `pusher:pong`, as documented by the protocol.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use crate::encoded::Encoded;
use crate::json::{self, Kind, Raw, push_string};
use crate::presence::Member;
use crate::socket_id::SocketId;

/// A message from a client.
#[derive(Debug)]
pub(crate) enum ClientMessage<'a> {
    /// `pusher:ping`
    Ping,
    /// `pusher:pong`
    Pong,
    /// `pusher:subscribe`
    Subscribe(Subscribe<'a>),
    /// `pusher:unsubscribe`
    Unsubscribe {
        /// Name of the channel.
        channel: Cow<'a, str>,
    },
    /// `pusher:signin`
    SignIn {
        /// Signature.
        auth: Cow<'a, str>,
        /// The signed user data.
        user_data: Cow<'a, str>,
    },
    /// An event whose name starts with `client-`.
    Client {
        /// Whole name of the event.
        event: Cow<'a, str>,
        /// Name of the channel.
        channel: Cow<'a, str>,
        /// Data as received.
        data: Raw<'a>,
    },
}

/// A subscription request.
#[derive(Debug)]
pub(crate) struct Subscribe<'a> {
    pub(crate) channel: Cow<'a, str>,
    pub(crate) auth: Option<Cow<'a, str>>,
    pub(crate) channel_data: Option<Cow<'a, str>>,
    /// Position at which the connection broke.
    pub(crate) resume: Option<Resume>,
}

/// A position in a channel's history, as the client sent it.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) epoch: u64,
    pub(crate) offset: u64,
    /// Id of the client's previous socket, whose own events are not new to it.
    pub(crate) socket_id: Option<SocketId>,
}

/// Reasons why a message is rejected. The text is for the client's developer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the message cannot be parsed: {0}")]
    Json(json::Invalid),
    #[error("the message is not a JSON object with an \"event\" that is a string")]
    NoEvent,
    #[error("\"{member}\" is missing, or not of the right type")]
    Member { member: &'static str },
    #[error(
        "no such event: clients may send pusher:ping, pusher:pong, pusher:subscribe, pusher:unsubscribe, pusher:signin and client-..."
    )]
    UnknownEvent,
}

/// Value used for `null` and missing data.
const NULL: &str = "null";

impl<'a> ClientMessage<'a> {
    /// Parses one text message.
    pub(crate) fn read(text: &'a str) -> Result<Self, Malformed> {
        let message = Raw::new(text).map_err(Malformed::Json)?;
        let [event, channel, data] = message.pick(["event", "channel", "data"]);
        let event = event.and_then(Raw::string).ok_or(Malformed::NoEvent)?;
        match &*event {
            "pusher:ping" => Ok(Self::Ping),
            "pusher:pong" => Ok(Self::Pong),
            "pusher:subscribe" => Inner::of(data)?.subscribe().map(Self::Subscribe),
            "pusher:unsubscribe" => {
                Ok(Self::Unsubscribe { channel: Inner::of(data)?.required("channel")? })
            }
            "pusher:signin" => {
                // A missing value cannot have been signed, so it is rejected like a wrong signature.
                let string = |name| data.and_then(|data| data.get(name)).and_then(Raw::string);
                Ok(Self::SignIn {
                    auth: string("auth").unwrap_or_default(),
                    user_data: string("user_data").unwrap_or_default(),
                })
            }
            name if name.starts_with("client-") => {
                let missing = Malformed::Member { member: "channel" };
                let channel = channel.and_then(Raw::string).ok_or(missing)?;
                let data = match data {
                    Some(data) => data,
                    None => Raw::new(NULL).map_err(Malformed::Json)?,
                };
                Ok(Self::Client { event, channel, data })
            }
            _ => Err(Malformed::UnknownEvent),
        }
    }
}

/// The `data` of a message to the server itself.
#[derive(Clone, Copy)]
struct Inner<'a>(Raw<'a>);

impl<'a> Inner<'a> {
    fn of(data: Option<Raw<'a>>) -> Result<Self, Malformed> {
        data.filter(|data| data.kind() == Kind::Object)
            .map(Self)
            .ok_or(Malformed::Member { member: "data" })
    }

    fn required(self, member: &'static str) -> Result<Cow<'a, str>, Malformed> {
        self.optional(member)?.ok_or(Malformed::Member { member })
    }

    /// Returns an optional string; a missing member and `null` are the same.
    fn optional(self, member: &'static str) -> Result<Option<Cow<'a, str>>, Malformed> {
        match self.0.get(member).and_then(Raw::present) {
            None => Ok(None),
            Some(value) => value.string().map(Some).ok_or(Malformed::Member { member }),
        }
    }

    fn subscribe(self) -> Result<Subscribe<'a>, Malformed> {
        Ok(Subscribe {
            channel: self.required("channel")?,
            auth: self.optional("auth")?,
            channel_data: self.optional("channel_data")?,
            resume: self.0.get("resume").and_then(resume),
        })
    }
}

/// Parses a position. An invalid one counts as none: the client receives only new events and its current position.
fn resume(value: Raw<'_>) -> Option<Resume> {
    let [epoch, offset, socket_id] = value.pick(["epoch", "offset", "socket_id"]);
    Some(Resume {
        epoch: u64::from_str_radix(&epoch?.string()?, 16).ok()?,
        offset: offset?.unsigned()?,
        socket_id: socket_id.and_then(Raw::string).and_then(|id| id.parse().ok()),
    })
}

/// `pusher:connection_established`
pub(crate) fn connection_established(socket: SocketId, activity_timeout: Duration) -> Encoded {
    Encoded::new(&format!(
        r#"{{"event":"pusher:connection_established","data":"{{\"socket_id\":\"{socket}\",\"activity_timeout\":{}}}"}}"#,
        activity_timeout.as_secs()
    ))
}

/// `pusher:ping`
pub(crate) fn ping() -> Encoded {
    Encoded::new(r#"{"event":"pusher:ping","data":{}}"#)
}

/// `pusher:pong`
pub(crate) fn pong() -> Encoded {
    Encoded::new(r#"{"event":"pusher:pong","data":{}}"#)
}

/// `pusher:error`
pub(crate) fn error(code: u16, message: &str) -> Encoded {
    let mut text = format!(r#"{{"event":"pusher:error","data":{{"code":{code},"message":"#);
    push_string(&mut text, message);
    text.push_str("}}");
    Encoded::new(&text)
}

/// Builds an event of the server about a channel; `data` is JSON and is sent as a string.
pub(crate) fn about(event: &str, channel: &str, data: &str) -> Encoded {
    let mut text = String::with_capacity(event.len() + channel.len() + data.len() * 9 / 8 + 48);
    text.push_str(r#"{"event":""#);
    text.push_str(event);
    text.push_str(r#"","channel":"#);
    push_string(&mut text, channel);
    text.push_str(r#","data":"#);
    push_string(&mut text, data);
    text.push('}');
    Encoded::new(&text)
}

/// `pusher:subscription_error`
pub(crate) fn subscription_error(channel: &str, kind: &str, message: &str, status: u16) -> Encoded {
    let mut data = format!(r#"{{"type":"{kind}","error":"#);
    push_string(&mut data, message);
    write!(data, r#","status":{status}}}"#).expect("writing to a String cannot fail");
    about("pusher:subscription_error", channel, &data)
}

/// `pusher:cache_miss`
pub(crate) fn cache_miss(channel: &str) -> Encoded {
    let mut text = String::from(r#"{"event":"pusher:cache_miss","channel":"#);
    push_string(&mut text, channel);
    text.push('}');
    Encoded::new(&text)
}

/// `hearth:resume`: events may be missing, and the channel goes on at this position.
pub(crate) fn not_recovered(channel: &str, epoch: u64, offset: u64) -> Encoded {
    let data =
        format!(r#"{{"resume":{{"epoch":"{epoch:016x}","offset":{offset}}},"recovered":false}}"#);
    about("hearth:resume", channel, &data)
}

/// `pusher_internal:subscription_count`
pub(crate) fn subscription_count(channel: &str, count: usize) -> Encoded {
    let data = format!(r#"{{"subscription_count":{count}}}"#);
    about("pusher_internal:subscription_count", channel, &data)
}

/// `pusher_internal:member_added`
pub(crate) fn member_added(channel: &str, member: &Member) -> Encoded {
    let mut data = String::from(r#"{"user_id":"#);
    push_string(&mut data, member.id());
    if let Some(info) = member.info() {
        data.push_str(r#","user_info":"#);
        data.push_str(info);
    }
    data.push('}');
    about("pusher_internal:member_added", channel, &data)
}

/// `pusher_internal:member_removed`
pub(crate) fn member_removed(channel: &str, user_id: &str) -> Encoded {
    let mut data = String::from(r#"{"user_id":"#);
    push_string(&mut data, user_id);
    data.push('}');
    about("pusher_internal:member_removed", channel, &data)
}

/// `pusher:signin_success`
pub(crate) fn signin_success(user_data: &str) -> Encoded {
    let mut data = String::from(r#"{"user_data":"#);
    push_string(&mut data, user_data);
    data.push('}');
    let mut text = String::from(r#"{"event":"pusher:signin_success","data":"#);
    push_string(&mut text, &data);
    text.push('}');
    Encoded::new(&text)
}

/// `pusher_internal:watchlist_events`: one event of this name (`online` or `offline`).
pub(crate) fn watchlist_event<'a>(name: &str, users: impl Iterator<Item = &'a str>) -> Encoded {
    let mut data = format!(r#"{{"events":[{{"name":"{name}","user_ids":["#);
    for (index, user) in users.enumerate() {
        if index > 0 {
            data.push(',');
        }
        push_string(&mut data, user);
    }
    data.push_str("]}]}");
    let mut text = String::from(r#"{"event":"pusher_internal:watchlist_events","data":"#);
    push_string(&mut text, &data);
    text.push('}');
    Encoded::new(&text)
}

/// An event as subscribers receive it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    pub(crate) name: &'a str,
    pub(crate) channel: &'a str,
    /// The data: JSON.
    pub(crate) data: &'a str,
    /// Id of the member that sent a client event.
    pub(crate) user_id: Option<&'a str>,
    /// Offset in the channel's history.
    pub(crate) offset: Option<u64>,
}

impl Event<'_> {
    pub(crate) fn encode(&self) -> Encoded {
        let mut text =
            String::with_capacity(self.name.len() + self.channel.len() + self.data.len() + 80);
        text.push_str(r#"{"event":"#);
        push_string(&mut text, self.name);
        text.push_str(r#","channel":"#);
        push_string(&mut text, self.channel);
        text.push_str(r#","data":"#);
        text.push_str(self.data);
        if let Some(user_id) = self.user_id {
            text.push_str(r#","user_id":"#);
            push_string(&mut text, user_id);
        }
        if let Some(offset) = self.offset {
            write!(text, r#","offset":{offset}"#).expect("writing to a String cannot fail");
        }
        text.push('}');
        Encoded::new(&text)
    }
}
