//! The HTTP API through which an application's servers publish events and query channels. Takes a parsed request and
//! returns a status and JSON (Pusher Channels: "HTTP API reference").
//!
//! Invariants
//! - A request that is not signed with the application's secret changes nothing and reveals nothing, and its body need
//!   not be received.
//! - A request is validated as a whole before its first event is published.
//! - The data of an event is sent to clients as the JSON string that was received, byte for byte.
//! - Every error explains the problem, as `{"error":"…"}`.

mod events;
mod reports;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use crate::app::App;
use crate::apps::{AppRef, Found};
use crate::auth::{self, CallRefused};
use crate::channels::Channels;
use crate::json::{Raw, push_string};
use crate::moment::{Moment, UnixTime};
use crate::name::{ChannelName, InvalidName};
use crate::registry::ChannelReport;
use crate::shared_log::Ticket;

pub use crate::auth::Call;

/// The response to an API request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Response body, `application/json`.
    pub body: String,
    /// Value of `Allow` with status 405: the supported method.
    pub allow: Option<&'static str>,
    /// The published events wait to be stored in the shared log; the response is true once they are.
    pub ticket: Option<Ticket>,
}

impl Answer {
    fn ok(body: String) -> Self {
        Self { status: 200, body, allow: None, ticket: None }
    }

    fn error(status: u16, why: &str) -> Self {
        let mut body = String::from(r#"{"error":"#);
        push_string(&mut body, why);
        body.push('}');
        Self { status, body, allow: None, ticket: None }
    }
}

/// An API error: status and message.
#[derive(Debug)]
struct Refused {
    status: u16,
    why: String,
}

impl Refused {
    fn new(status: u16, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    fn bad(why: impl Into<String>) -> Self {
        Self::new(400, why)
    }
}

impl From<InvalidName> for Refused {
    fn from(invalid: InvalidName) -> Self {
        Self::bad(invalid.to_string())
    }
}

/// The resource that a path names.
#[derive(Debug, PartialEq, Eq)]
enum Resource<'a> {
    Events,
    BatchEvents,
    Channels,
    Channel(Cow<'a, str>),
    Users(Cow<'a, str>),
    Terminate(Cow<'a, str>),
    Connections,
}

impl<'a> Resource<'a> {
    /// Returns the application id and the resource. `None` if the path is not part of this API.
    fn read(path: &'a str) -> Option<(Cow<'a, str>, Self)> {
        let path = path.strip_prefix("/apps/")?;
        let mut segments = path.split('/').map(|segment| auth::unescaped(segment, false));
        let app = segments.next().filter(|app| !app.is_empty())?;
        let rest: Vec<_> = segments.collect();
        let rest: Vec<&str> = rest.iter().map(AsRef::as_ref).collect();
        let own = |text: &str| Cow::Owned(text.to_owned());
        let resource = match *rest {
            ["events"] => Self::Events,
            ["batch_events"] => Self::BatchEvents,
            ["channels"] => Self::Channels,
            ["channels", channel] if !channel.is_empty() => Self::Channel(own(channel)),
            ["channels", channel, "users"] => Self::Users(own(channel)),
            ["users", user, "terminate_connections"] if !user.is_empty() => {
                Self::Terminate(own(user))
            }
            ["connections"] => Self::Connections,
            _ => return None,
        };
        Some((app, resource))
    }

    fn method(&self) -> &'static str {
        match self {
            Self::Events | Self::BatchEvents | Self::Terminate(_) => "POST",
            Self::Channels | Self::Channel(_) | Self::Users(_) | Self::Connections => "GET",
        }
    }
}

/// Returns the id of the application in a path; `None` if the path is not part of this API.
pub fn app_id(path: &str) -> Option<Cow<'_, str>> {
    Resource::read(path).map(|(app, _)| app)
}

/// Answers a request. An application that must be looked up ([`Found::Unknown`]) is treated as missing; a caller that
/// can wait looks it up first and calls [`answer_for`].
pub fn answer(channels: &Channels, call: &Call<'_>, now: Moment, unix: UnixTime) -> Answer {
    let found = match app_id(call.path) {
        Some(id) => channels.apps().find(AppRef::Id(&id)),
        None => Found::None,
    };
    let app = match found {
        Found::App(app) => Some(app),
        Found::None | Found::Unknown => None,
    };
    answer_for(app.as_ref(), channels, call, now, unix)
}

/// Rejects a request before its body has been received; [`Call::body`] is ignored. Returns `None` if the body is
/// needed: then the application has signed the request, and [`answer_for`] verifies the body.
pub fn refuse_head(
    app: Option<&Arc<App>>,
    channels: &Channels,
    call: &Call<'_>,
    unix: UnixTime,
) -> Option<Answer> {
    permit(app, channels, call, |app| auth::call_head(app, call, unix)).err()
}

/// Answers a request for this application, the one that [`app_id`] names; `None` if it does not exist.
pub fn answer_for(
    app: Option<&Arc<App>>,
    channels: &Channels,
    call: &Call<'_>,
    now: Moment,
    unix: UnixTime,
) -> Answer {
    let permitted = permit(app, channels, call, |app| auth::call(app, call, unix));
    let (app, resource) = match permitted {
        Ok(permitted) => permitted,
        Err(answer) => return answer,
    };
    let asked = SignedRequest { channels, app, call, now, ticket: Cell::default() };
    let done = match resource {
        Resource::Events => events::publish(&asked),
        Resource::BatchEvents => events::publish_batch(&asked),
        Resource::Channels => reports::channels(&asked),
        Resource::Channel(name) => reports::channel(&asked, &name),
        Resource::Users(name) => reports::users(&asked, &name),
        Resource::Terminate(user) => {
            channels.terminate(app, &user);
            Ok(String::from("{}"))
        }
        Resource::Connections => Ok(reports::connections(&asked)),
    };
    match done {
        Ok(body) => Answer { ticket: asked.ticket.take(), ..Answer::ok(body) },
        Err(Refused { status, why }) => Answer::error(status, &why),
    }
}

/// Returns the application and the resource of a request that `verify` accepts, or the answer that rejects it.
fn permit<'a, 'p>(
    app: Option<&'a Arc<App>>,
    channels: &Channels,
    call: &Call<'p>,
    verify: impl FnOnce(&App) -> Result<(), CallRefused>,
) -> Result<(&'a Arc<App>, Resource<'p>), Answer> {
    let Some((_, resource)) = Resource::read(call.path) else {
        return Err(Answer::error(404, "there is nothing at this path"));
    };
    if call.method != resource.method() {
        let method = resource.method();
        return Err(Answer {
            allow: Some(method),
            ..Answer::error(405, &format!("this path is for {method}"))
        });
    }
    let Some(app) = app else { return Err(Answer::error(404, "application does not exist")) };
    if let Err(refused) = verify(app) {
        channels.statistics().of(&app.id).refuse_signature(
            &app.id,
            "call of the HTTP API",
            &refused,
        );
        return Err(Answer::error(401, &refused.to_string()));
    }
    if !app.rights.enabled {
        return Err(Answer::error(403, "application disabled"));
    }
    Ok((app, resource))
}

/// A request with a valid signature, and its context.
struct SignedRequest<'a> {
    channels: &'a Channels,
    app: &'a Arc<App>,
    call: &'a Call<'a>,
    now: Moment,
    /// Set when events were published that wait to be stored.
    ticket: Cell<Option<Ticket>>,
}

impl SignedRequest<'_> {
    /// Returns a query parameter.
    fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        auth::parameters(self.call.query).find(|(found, _)| found == name).map(|(_, value)| value)
    }

    fn name(&self, text: &str) -> Result<ChannelName, Refused> {
        Ok(ChannelName::new(text, self.app.limits.channel_name)?)
    }
}

/// The channel attributes requested by `info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Info {
    user_count: bool,
    subscription_count: bool,
    cache: bool,
}

impl Info {
    /// Parses a comma-separated list of names.
    fn read(text: &str) -> Result<Self, Refused> {
        let mut info = Self::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "user_count" => info.user_count = true,
                "subscription_count" => info.subscription_count = true,
                "cache" => info.cache = true,
                _ => {
                    return Err(Refused::bad(format!(
                        "info has no attribute {name}: user_count, subscription_count, cache"
                    )));
                }
            }
        }
        Ok(info)
    }

    /// Returns the attributes that the channel has, as members of a JSON object.
    fn members(self, name: &ChannelName, report: Option<&ChannelReport>) -> Vec<String> {
        let mut members = Vec::new();
        if self.user_count && name.access() == crate::name::Access::Presence {
            members.push(format!(
                r#""user_count":{}"#,
                report.and_then(|report| report.user_count).unwrap_or(0)
            ));
        }
        if self.subscription_count {
            members.push(format!(
                r#""subscription_count":{}"#,
                report.map_or(0, |report| report.subscription_count)
            ));
        }
        if self.cache && name.is_cache() {
            members.push(match report.and_then(|report| report.cache.as_ref()) {
                Some(cache) => format!(
                    r#""cache":{{"data":{},"ttl":{}}}"#,
                    cache.data,
                    cache.remaining.as_secs()
                ),
                None => String::from(r#""cache":null"#),
            });
        }
        members
    }

    /// Returns the same attributes as a JSON object.
    fn object(self, asked: &SignedRequest<'_>, name: &ChannelName) -> String {
        let report = asked.channels.registry().channel(asked.app, name.as_str(), asked.now);
        format!("{{{}}}", self.members(name, report.as_ref()).join(","))
    }
}

/// Returns the value of a member, or of the query parameter instead: "for POST requests, parameters may be submitted
/// in the query string".
fn text_of<'a>(object: Raw<'a>, name: &str) -> Result<Option<Cow<'a, str>>, Refused> {
    match object.get(name).and_then(Raw::present) {
        None => Ok(None),
        Some(value) => {
            value.string().map(Some).ok_or_else(|| Refused::bad(format!("{name} must be a string")))
        }
    }
}

#[cfg(test)]
mod tests;
