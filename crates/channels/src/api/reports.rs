//! Implements the queries `GET /apps/ID/channels`, `…/channels/NAME`, `…/channels/NAME/users` and `…/connections`.

use super::{Info, Refused, SignedRequest};
use crate::json::push_string;
use crate::name::Access;

pub(super) fn channels(asked: &SignedRequest<'_>) -> Result<String, Refused> {
    let prefix = asked.parameter("filter_by_prefix").unwrap_or_default();
    let info = Info::read(&asked.parameter("info").unwrap_or_default())?;
    if info.user_count && !prefix.starts_with("presence-") {
        return Err(Refused::bad(
            "user_count may only be requested for presence channels: please supply filter_by_prefix beginning with presence-",
        ));
    }
    if info.cache {
        return Err(Refused::bad("cache may only be requested for one channel"));
    }
    let mut reports = asked.channels.registry().channels(asked.app, &prefix);
    reports.sort_unstable_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
    let mut out = String::from(r#"{"channels":{"#);
    for (number, report) in reports.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        push_string(&mut out, report.name.as_str());
        out.push_str(":{");
        out.push_str(&info.members(&report.name, Some(report)).join(","));
        out.push('}');
    }
    out.push_str("}}");
    Ok(out)
}

pub(super) fn channel(asked: &SignedRequest<'_>, name: &str) -> Result<String, Refused> {
    let name = asked.name(name)?;
    let info = Info::read(&asked.parameter("info").unwrap_or_default())?;
    if info.user_count && name.access() != Access::Presence {
        return Err(Refused::bad("user_count may only be requested for presence channels"));
    }
    if info.cache && !name.is_cache() {
        return Err(Refused::bad("cache may only be requested for cache channels"));
    }
    let report = asked.channels.registry().channel(asked.app, name.as_str(), asked.now);
    let occupied = report.as_ref().is_some_and(crate::registry::ChannelReport::is_occupied);
    let mut members = vec![format!(r#""occupied":{occupied}"#)];
    members.extend(info.members(&name, report.as_ref()));
    Ok(format!("{{{}}}", members.join(",")))
}

pub(super) fn users(asked: &SignedRequest<'_>, name: &str) -> Result<String, Refused> {
    let name = asked.name(name)?;
    if name.access() != Access::Presence {
        return Err(Refused::bad("users may only be requested for presence channels"));
    }
    let mut members = asked.channels.registry().members(asked.app, name.as_str(), asked.now);
    members.sort_unstable();
    let mut out = String::from(r#"{"users":["#);
    for (number, id) in members.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str(r#"{"id":"#);
        push_string(&mut out, id);
        out.push('}');
    }
    out.push_str("]}");
    Ok(out)
}

/// Answers `…/connections`, which is an addition of Reverb to Pusher's API. Laravel Pulse uses it.
pub(super) fn connections(asked: &SignedRequest<'_>) -> String {
    let counters = asked.channels.statistics().of(&asked.app.id);
    format!(r#"{{"connections":{}}}"#, counters.connections.get())
}
