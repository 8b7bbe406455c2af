//! Server-Sent Events (WHATWG HTML, "Server-sent events"): the same channels and permissions as a WebSocket, for
//! receiving only.
//!
//! `GET /app/KEY/sse?channels=a,private-b&auth=,KEY:SIGNATURE&socket_id=1.2` subscribes to those channels. `auth` has
//! one part for each channel that needs one, in the order of `channels`. It is signed like a subscription of the
//! `socket_id` that the client names, and `channel_data` belongs to presence channels. The id must be one that `GET
//! /app/KEY/sse/id` issued shortly before: [`crate::stream_id`]. Each message is an event: `event` is its name,
//! `data` the JSON that a WebSocket client receives. On channels with a history `id` is the position, and a stream of
//! one channel resumes from `Last-Event-ID`.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;

use crate::auth;
use crate::close::Close;
use crate::encoded::Encoded;
use crate::json::{Raw, push_string, quoted};
use crate::socket_id::{InvalidSocketId, SocketId};

/// Fields of a request for an event stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamRequest<'a> {
    /// Path and query.
    pub(super) target: &'a str,
    /// Value of the header field `Origin`.
    pub(super) origin: Option<&'a str>,
    /// Value of the header field `Sec-Fetch-Site`.
    pub(super) site: Option<&'a str>,
    /// Value of the header field `Last-Event-ID`.
    pub(super) last_event_id: Option<&'a str>,
}

/// A parsed request for an event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamSubscription {
    /// Key of the application.
    pub(super) key: String,
    /// The request is for a socket id, not for a stream.
    pub(super) only_id: bool,
    /// The request does not come from a page of another origin, as far as the browser reports it.
    pub(super) own_page: bool,
    /// The socket id for which the subscriptions are signed.
    pub(super) socket: Option<SocketId>,
    /// The equivalent `pusher:subscribe` messages.
    pub(super) subscriptions: Vec<String>,
}

/// Path suffix after the key for requests of a socket id.
const ID: &str = "/sse/id";

/// Returns whether the target is the path of an event stream or of its id.
pub(super) fn is_meant(target: &str) -> bool {
    key(target).is_some()
}

fn key(target: &str) -> Option<&str> {
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let path = path.strip_prefix("/app/")?;
    let key = path.strip_suffix("/sse").or_else(|| path.strip_suffix(ID))?;
    (!key.is_empty() && !key.contains('/')).then_some(key)
}

impl StreamSubscription {
    pub(super) fn read(asked: &StreamRequest<'_>) -> Result<Self, Close> {
        let StreamRequest { target, origin: _, site, last_event_id } = *asked;
        let key = key(target).ok_or(Close::NO_SUCH_PATH)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (mut channels, mut signatures) = (Cow::Borrowed(""), Cow::Borrowed(""));
        let (mut channel_data, mut socket, mut place) = (None, None, None);
        for (name, value) in auth::parameters(query) {
            match &*name {
                "channels" => channels = value,
                "auth" => signatures = value,
                "channel_data" => channel_data = Some(value),
                "socket_id" => {
                    socket = Some(value.parse().map_err(|InvalidSocketId| Close::OTHER_ID)?);
                }
                "last_event_id" => place = Place::read(&value),
                _ => {}
            }
        }
        let names: Vec<&str> = channels.split(',').filter(|name| !name.is_empty()).collect();
        // An `EventSource` sends the field by itself when it reconnects, so it is newer than the query.
        let place = last_event_id.and_then(Place::read).or(place).filter(|_| names.len() == 1);
        let signatures = signatures.split(',').chain(std::iter::repeat(""));
        let subscriptions = names.iter().zip(signatures).map(|(channel, signature)| {
            let mut text = String::from(r#"{"event":"pusher:subscribe","data":{"channel":"#);
            push_string(&mut text, channel);
            if !signature.is_empty() {
                text.push_str(r#","auth":"#);
                push_string(&mut text, signature);
            }
            if let Some(data) = channel_data.as_ref().filter(|_| channel.starts_with("presence-")) {
                text.push_str(r#","channel_data":"#);
                push_string(&mut text, data);
            }
            if let Some(Place { epoch, offset }) = place {
                write!(text, r#","resume":{{"epoch":"{epoch:016x}","offset":{offset}}}"#)
                    .expect("writing to a String cannot fail");
            }
            text.push_str("}}");
            text
        });
        Ok(Self {
            key: auth::unescaped(key, false).into_owned(),
            only_id: path.ends_with(ID),
            // Browsers send no `Origin` with a no-cors request (`<img>`). They send this field to secure origins
            // only, and old browsers do not send it.
            own_page: site.is_none_or(|site| matches!(site, "same-origin" | "none")),
            socket,
            subscriptions: subscriptions.collect(),
        })
    }
}

/// A position in a channel's history as an event id: `EPOCH:OFFSET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    epoch: u64,
    offset: u64,
}

impl Place {
    fn read(id: &str) -> Option<Self> {
        let (epoch, offset) = id.trim().split_once(':')?;
        Some(Self { epoch: u64::from_str_radix(epoch, 16).ok()?, offset: offset.parse().ok()? })
    }

    /// Reads the position from the data of `subscription_succeeded`.
    fn told(data: Raw<'_>) -> Option<Self> {
        let data = data.string()?;
        let [epoch, offset] = Raw::new(&data).ok()?.get("resume")?.pick(["epoch", "offset"]);
        Some(Self {
            epoch: u64::from_str_radix(&epoch?.string()?, 16).ok()?,
            offset: offset?.unsigned()?,
        })
    }
}

const SUCCEEDED: &str = "pusher_internal:subscription_succeeded";

/// The epochs of a stream's channels. All streams of a channel have the same epochs, so they can share the encoded
/// event.
#[derive(Clone, Debug, Default)]
pub(super) struct Epochs(Vec<(Box<str>, u64)>);

impl Epochs {
    /// Stores the epoch that `message` contains for a channel.
    pub(super) fn store(&mut self, message: &Encoded) {
        let text = message.text();
        let Ok(message) = Raw::from_bytes(&text) else { return };
        let [event, channel, data] = message.pick(["event", "channel", "data"]);
        if event.and_then(Raw::string).is_none_or(|event| event != SUCCEEDED) {
            return;
        }
        if let (Some(channel), Some(place)) =
            (channel.and_then(Raw::string), data.and_then(Place::told))
        {
            self.0.push((channel.into(), place.epoch));
        }
    }

    fn of(&self, channel: &str) -> Option<u64> {
        self.0.iter().find(|(name, _)| **name == *channel).map(|(_, epoch)| *epoch)
    }
}

/// Encodes a message as a server-sent event.
pub(super) fn write(text: &[u8], epochs: &Epochs) -> Bytes {
    let text = String::from_utf8_lossy(text);
    let mut event = String::with_capacity(text.len() + 64);
    if let Ok(message) = Raw::new(&text) {
        let [name, channel, data, offset] = message.pick(["event", "channel", "data", "offset"]);
        let name = name.and_then(Raw::string);
        let place = if name.as_deref() == Some(SUCCEEDED) {
            data.and_then(Place::told)
        } else {
            let epoch = channel.and_then(Raw::string).and_then(|channel| epochs.of(&channel));
            epoch.zip(offset.and_then(Raw::unsigned)).map(|(epoch, offset)| Place { epoch, offset })
        };
        if let Some(Place { epoch, offset }) = place {
            writeln!(event, "id: {epoch:016x}:{offset}").expect("writing to a String cannot fail");
        }
        // An event name with a line break cannot be written; the data still contain it.
        if let Some(name) = name.filter(|name| !name.contains(['\r', '\n'])) {
            writeln!(event, "event: {name}").expect("writing to a String cannot fail");
        }
    }
    // JSON may contain line breaks between its parts. `lines` splits at two of the three that an event stream has.
    for line in text.lines().flat_map(|line| line.split('\r')) {
        writeln!(event, "data: {line}").expect("writing to a String cannot fail");
    }
    event.push('\n');
    event.into_bytes().into()
}

/// A comment that shows clients and proxies that the stream is alive.
pub(super) const HEARTBEAT: &[u8] = b":\n\n";

/// Sent before the end of a stream: the time in milliseconds until the client reconnects.
pub(super) const RETRY: &[u8] = b"retry: 1000\n\n";

/// Returns the response head of an event stream. The body ends with the connection.
pub(super) fn head(origin: Option<&str>) -> Box<[u8]> {
    let mut head = String::from(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Accel-Buffering: no\r\n",
    );
    allow(&mut head, origin);
    head.push_str("Connection: close\r\n\r\n");
    head.into_bytes().into_boxed_slice()
}

/// Returns the response with a socket id.
pub(super) fn id(socket: SocketId, origin: Option<&str>) -> Box<[u8]> {
    answer("200 OK", &format!(r#"{{"socket_id":"{socket}"}}"#), origin)
}

/// Returns the response that rejects an event stream. An `EventSource` does not reconnect after a status of 400 or
/// more.
pub(super) fn refusal(close: Close, origin: Option<&str>) -> Box<[u8]> {
    let status = match close.code {
        4001 | 4005 => "404 Not Found",
        4004 | 4100 => "503 Service Unavailable",
        _ => "403 Forbidden",
    };
    let body = format!(r#"{{"code":{},"error":{}}}"#, close.code, quoted(close.reason));
    answer(status, &body, origin)
}

fn answer(status: &str, body: &str, origin: Option<&str>) -> Box<[u8]> {
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nContent-Length: {}\r\n",
        body.len()
    );
    allow(&mut answer, origin);
    answer.push_str("Connection: close\r\n\r\n");
    answer.push_str(body);
    answer.into_bytes().into_boxed_slice()
}

/// Allows the page's origin to read the response. [`crate::Hello`] has checked the origin, and the parser accepts no
/// line breaks.
fn allow(head: &mut String, origin: Option<&str>) {
    if let Some(origin) = origin {
        write!(head, "Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\n")
            .expect("writing to a String cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(target: &str, last_event_id: Option<&str>) -> Result<StreamSubscription, Close> {
        StreamSubscription::read(&StreamRequest { target, origin: None, site: None, last_event_id })
    }

    #[test]
    fn a_target_is_translated_to_subscribe_messages() {
        let target = "/app/key/sse?channels=news,private-a,presence-b&auth=,key:s1,key:s2&socket_id=1.2&channel_data=%7B%22user_id%22%3A%221%22%7D";
        let wanted = read(target, Some("00000000000000ff:7")).unwrap();
        assert_eq!(wanted.key, "key");
        assert_eq!(wanted.socket.map(|socket| socket.to_string()).as_deref(), Some("1.2"));
        assert_eq!(
            wanted.subscriptions,
            [
                r#"{"event":"pusher:subscribe","data":{"channel":"news"}}"#,
                r#"{"event":"pusher:subscribe","data":{"channel":"private-a","auth":"key:s1"}}"#,
                r#"{"event":"pusher:subscribe","data":{"channel":"presence-b","auth":"key:s2","channel_data":"{\"user_id\":\"1\"}"}}"#,
            ],
            "an id means one channel, and this is of three"
        );
        let wanted = read("/app/key/sse?channels=news", Some("00000000000000ff:7")).unwrap();
        assert_eq!(
            wanted.subscriptions,
            [
                r#"{"event":"pusher:subscribe","data":{"channel":"news","resume":{"epoch":"00000000000000ff","offset":7}}}"#
            ]
        );
        let target = "/app/key/sse?channels=news&last_event_id=00000000000000ff:7";
        assert_eq!(read(target, None).unwrap(), wanted);
        let id = read("/app/key/sse/id", None).unwrap();
        assert!(id.only_id && id.key == "key" && !wanted.only_id);
        assert_eq!(read("/app/key/sse?channels=a&socket_id=1", None), Err(Close::OTHER_ID));
        assert!(
            !is_meant("/app/key")
                && !is_meant("/app//sse")
                && !is_meant("/app/a/b/sse")
                && !is_meant("/app//sse/id")
                && is_meant("/app/key/sse/id")
                && is_meant("/app/key/sse?")
        );
    }

    #[test]
    fn a_message_becomes_an_event_with_its_position() {
        let mut epochs = Epochs::default();
        let first = Encoded::new(
            r#"{"event":"pusher_internal:subscription_succeeded","channel":"news","data":"{\"resume\":{\"epoch\":\"00000000000000ff\",\"offset\":3}}"}"#,
        );
        epochs.store(&first);
        let event =
            |text: &str| String::from_utf8(write(text.as_bytes(), &epochs).to_vec()).unwrap();
        assert!(
            event(str::from_utf8(&first.text()).unwrap())
                .starts_with("id: 00000000000000ff:3\nevent: pusher_internal:")
        );
        assert_eq!(
            event(r#"{"event":"e","channel":"news","data":"d","offset":4}"#),
            "id: 00000000000000ff:4\nevent: e\ndata: {\"event\":\"e\",\"channel\":\"news\",\"data\":\"d\",\"offset\":4}\n\n"
        );
        assert_eq!(
            event("{\"event\":\"a\\nb\",\r\"data\":{\n}}"),
            "data: {\"event\":\"a\\nb\",\ndata: \"data\":{\ndata: }}\n\n",
            "no line of the data can end the event, and no name can add a field"
        );
    }
    proptest! {
        #[test]
        fn no_text_adds_a_field_or_ends_an_event(name in ".{0,20}", data in "(.|\\r|\\n){0,60}") {
            let text = format!(r#"{{"event":{},{data}"data":1}}"#, quoted(&name));
            let event = String::from_utf8(write(text.as_bytes(), &Epochs::default()).to_vec()).unwrap();
            let lines: Vec<&str> = event.strip_suffix("\n\n").unwrap().split(['\r', '\n']).collect();
            prop_assert!(lines.iter().skip(1).all(|line| line.starts_with("data: ")), "{event:?}");
            prop_assert!(lines[0].starts_with("event: ") || lines[0].starts_with("data: "));
        }

        #[test]
        fn any_target_is_parsed_or_rejected(target in "/app/.{0,40}/sse(\\?(channels|auth|socket_id|channel_data)=.{0,30}){0,3}", id in ".{0,30}") {
            if let Ok(wanted) = read(&target, Some(&id)) {
                for text in &wanted.subscriptions {
                    prop_assert!(Raw::new(text).is_ok(), "{text}");
                }
            }
        }
    }
}
