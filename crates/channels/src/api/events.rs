//! Implements `POST /apps/ID/events` and `POST /apps/ID/batch_events`.

use std::borrow::Cow;

use super::{Info, Refused, SignedRequest, text_of};
use crate::auth;
use crate::json::{Invalid, Kind, Raw, push_string, quoted};
use crate::name::{Access, ChannelName};
use crate::registry::{Author, Publication, PublishRefused};
use crate::socket_id::SocketId;

/// An event that is validated and not yet published.
struct Event<'a> {
    name: Cow<'a, str>,
    data: Cow<'a, str>,
    channels: Vec<ChannelName>,
    except: Option<SocketId>,
    info: Option<Info>,
}

pub(super) fn publish(asked: &SignedRequest<'_>) -> Result<String, Refused> {
    let from_query;
    let body = if asked.call.body.is_empty() {
        from_query = query_as_json(asked);
        object(Raw::new(&from_query))?
    } else {
        object(Raw::from_bytes(asked.call.body))?
    };
    let event = Event::read(body, asked, false)?;
    publish_all(asked, event.publications())?;
    let Some(info) = event.info else { return Ok(String::from("{}")) };
    let mut out = String::from(r#"{"channels":{"#);
    for (number, channel) in event.channels.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        push_string(&mut out, channel.as_str());
        out.push(':');
        out.push_str(&info.object(asked, channel));
    }
    out.push_str("}}");
    Ok(out)
}

pub(super) fn publish_batch(asked: &SignedRequest<'_>) -> Result<String, Refused> {
    let body = object(Raw::from_bytes(asked.call.body))?;
    let batch = body.get("batch").filter(|batch| batch.kind() == Kind::Array);
    let batch = batch.ok_or_else(|| Refused::bad("batch must be an array of events"))?;
    let limit = asked.app.limits.batch;
    if batch.elements().take(limit + 1).count() > limit {
        return Err(Refused::bad(format!("a batch has at most {limit} events")));
    }
    let events = batch.elements().enumerate().map(|(index, event)| {
        let within = |refused: Refused| Refused {
            why: format!("event {index} of the batch: {}", refused.why),
            ..refused
        };
        Event::read(event, asked, true).map_err(within)
    });
    let events = events.collect::<Result<Vec<_>, _>>()?;
    publish_all(asked, events.iter().flat_map(Event::publications))?;
    if events.iter().all(|event| event.info.is_none()) {
        return Ok(String::from("{}"));
    }
    let infos = events.iter().map(|event| match (event.info, event.channels.first()) {
        (Some(info), Some(channel)) => info.object(asked, channel),
        _ => String::from("{}"),
    });
    Ok(format!(r#"{{"batch":[{}]}}"#, infos.collect::<Vec<_>>().join(",")))
}

fn publish_all<'a>(
    asked: &SignedRequest<'_>,
    publications: impl Iterator<Item = Publication<'a>>,
) -> Result<(), Refused> {
    let publications: Vec<_> = publications.collect();
    let published = asked.channels.registry().publish_all(asked.app, &publications, asked.now);
    let ticket = published.map_err(|(channel, why)| {
        let status = match why {
            PublishRefused::NotStored => 503,
            PublishRefused::TooLarge => 413,
            PublishRefused::TooOften { .. } => 429,
        };
        Refused::new(status, format!("{}: {why}", channel.as_str()))
    })?;
    asked.ticket.set(ticket);
    Ok(())
}

fn object(body: Result<Raw<'_>, Invalid>) -> Result<Raw<'_>, Refused> {
    let raw =
        body.map_err(|invalid| Refused::bad(format!("the body cannot be parsed: {invalid}")))?;
    if raw.kind() == Kind::Object {
        Ok(raw)
    } else {
        Err(Refused::bad("the body must be a JSON object"))
    }
}

/// Returns the query parameters as JSON, for a request without a body: "For POST requests, parameters MAY be
/// submitted in the query string".
fn query_as_json(asked: &SignedRequest<'_>) -> String {
    let single = ["name", "data", "channel", "socket_id", "info"];
    let single = single.into_iter().filter_map(|name| {
        let value = asked.parameter(name)?;
        Some(format!("{}:{}", quoted(name), quoted(&value)))
    });
    let channels = auth::parameters(asked.call.query).filter(|(name, _)| name == "channels[]");
    let channels: Vec<_> = channels.map(|(_, value)| quoted(&value)).collect();
    let list = (!channels.is_empty()).then(|| format!(r#""channels":[{}]"#, channels.join(",")));
    format!("{{{}}}", single.chain(list).collect::<Vec<_>>().join(","))
}

impl<'a> Event<'a> {
    fn read(event: Raw<'a>, asked: &SignedRequest<'_>, of_batch: bool) -> Result<Self, Refused> {
        let limits = &asked.app.limits;
        let name = text_of(event, "name")?
            .filter(|name| !name.is_empty())
            .ok_or_else(|| Refused::bad("name is missing"))?;
        if name.chars().nth(limits.event_name).is_some() {
            return Err(Refused::bad(format!("name has at most {} characters", limits.event_name)));
        }
        let data = event
            .get("data")
            .and_then(Raw::present)
            .ok_or_else(|| Refused::bad("data is missing"))?;
        if is_longer(data, limits.data) {
            let why = format!(
                "The data content of this event exceeds the allowed maximum ({} bytes)",
                limits.data
            );
            return Err(Refused::new(413, why));
        }
        // Data that is not a string is still sent to clients as one, because many clients read nothing else.
        let data = if data.kind() == Kind::String {
            Cow::Borrowed(data.text())
        } else {
            Cow::Owned(quoted(data.text()))
        };
        let socket = text_of(event, "socket_id")?;
        let except = socket.map_or(Ok(None), |socket| except(&socket))?;
        let info = text_of(event, "info")?.map(|info| Info::read(&info)).transpose()?;
        let channels = Self::channels(event, asked, of_batch)?;
        Ok(Self { name, data, channels, except, info })
    }

    fn channels(
        event: Raw<'a>,
        asked: &SignedRequest<'_>,
        of_batch: bool,
    ) -> Result<Vec<ChannelName>, Refused> {
        if let Some(channel) = text_of(event, "channel")? {
            return Ok(vec![asked.name(&channel)?]);
        }
        let list = event.get("channels").and_then(Raw::present).filter(|_| !of_batch);
        let Some(list) = list else { return Err(Refused::bad("channel is missing")) };
        if list.kind() != Kind::Array {
            return Err(Refused::bad("channels must be an array of names"));
        }
        let limit = asked.app.limits.channels_per_event;
        let mut channels: Vec<ChannelName> = Vec::new();
        for (index, element) in list.elements().enumerate() {
            if index >= limit {
                return Err(Refused::bad(format!("an event goes to at most {limit} channels")));
            }
            let text = element
                .string()
                .ok_or_else(|| Refused::bad("channels must be an array of names"))?;
            let channel = asked.name(&text)?;
            if !channels.contains(&channel) {
                channels.push(channel);
            }
        }
        if channels.is_empty() {
            return Err(Refused::bad("channels is empty"));
        }
        // Each encrypted channel has its own key, so one text cannot be meant for two of them.
        if channels.len() > 1
            && channels.iter().any(|channel| channel.access() == Access::Encrypted)
        {
            return Err(Refused::bad("an event for an encrypted channel goes to no other channel"));
        }
        Ok(channels)
    }

    fn publications(&self) -> impl Iterator<Item = Publication<'_>> {
        self.channels.iter().map(|channel| Publication {
            channel,
            event: &self.name,
            data: &self.data,
            author: Author::Server { except: self.except },
        })
    }
}

/// Returns whether the unescaped value is longer than `limit` bytes.
fn is_longer(data: Raw<'_>, limit: usize) -> bool {
    if data.kind() != Kind::String {
        return data.text().len() > limit;
    }
    // An escape is never shorter than the character it stands for.
    let written = data.text().len() - 2;
    written > limit && data.string().map_or(written, |text| text.len()) > limit
}

/// Parses the socket id to exclude. Every Pusher library checks its form; an id that was never issued excludes no
/// socket.
fn except(socket: &str) -> Result<Option<SocketId>, Refused> {
    let number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match socket.split_once('.') {
        Some((one, other)) if number(one) && number(other) => Ok(socket.parse().ok()),
        _ => Err(Refused::bad("socket_id must be two numbers with a point between")),
    }
}
