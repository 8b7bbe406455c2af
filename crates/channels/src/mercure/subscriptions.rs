//! The subscription API: which subscribers there are, on all nodes, as JSON-LD.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::authorization::{self, Unauthorized};
use super::hub::{Mercure, unix};
use super::selector;
use super::state::EARLIEST;
use super::token::Claims;
use super::{Answer, Body, PATH, Request};
use crate::json::push_string;

/// One subscription of a subscriber.
#[derive(Clone, Debug)]
pub(super) struct Subscription<'a> {
    pub(super) topic: &'a str,
    pub(super) subscriber: &'a str,
    pub(super) active: bool,
    pub(super) payload: Option<&'a str>,
}

const CONTEXT: &str = r#""@context":"https://mercure.rocks/","#;

/// Characters to encode in a path segment: all but unreserved ones (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a path segment.
fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

impl Subscription<'_> {
    /// Path of the subscription, which is also the topic of its events.
    pub(super) fn id(&self) -> String {
        format!("{}/subscriptions/{}/{}", PATH, escaped(self.topic), escaped(self.subscriber))
    }

    /// Writes the subscription as JSON; `alone` if it is not in a list.
    pub(super) fn json(&self, alone: bool) -> String {
        let mut text = format!("{{{}\"id\":", if alone { CONTEXT } else { "" });
        push_string(&mut text, &self.id());
        text.push_str(r#","type":"Subscription","subscriber":"#);
        push_string(&mut text, self.subscriber);
        text.push_str(r#","topic":"#);
        push_string(&mut text, self.topic);
        text.push_str(if self.active { r#","active":true"# } else { r#","active":false"# });
        if let Some(payload) = self.payload {
            text.push_str(r#","payload":"#);
            text.push_str(payload);
        }
        text.push('}');
        text
    }
}

/// Writes a list of subscriptions.
fn list(path: &str, last: &str, subscriptions: &[String]) -> String {
    let mut text = format!("{{{CONTEXT}\"id\":");
    push_string(&mut text, path);
    text.push_str(r#","type":"Subscriptions","lastEventID":"#);
    push_string(&mut text, last);
    text.push_str(r#","subscriptions":["#);
    text.push_str(&subscriptions.join(","));
    text.push_str("]}");
    text
}

impl Mercure {
    /// Returns the claims of a subscriber; empty ones if it needs none.
    pub(super) fn reader(&self, request: &Request<'_>) -> Result<Claims, Unauthorized> {
        let options = &self.options;
        let claims = authorization::claims(request, options, options.subscriber.as_ref(), unix())?;
        match claims {
            Some(claims) => Ok(claims),
            None if options.anonymous => Ok(Claims::default()),
            None => Err(Unauthorized),
        }
    }

    /// Answers `/subscriptions[/TOPIC[/SUBSCRIBER]]`.
    pub(super) fn subscriptions(&self, request: &Request<'_>, path: &str) -> Answer {
        let Some(rest) =
            path.strip_prefix(PATH).and_then(|rest| rest.strip_prefix("/subscriptions"))
        else {
            return Answer::text(404, "Not Found");
        };
        let allowed = self.reader(request).map(|claims| claims.subscribe);
        if !allowed.is_ok_and(|allowed| selector::any(&allowed, &[path.to_owned()])) {
            return Answer::text(401, "Unauthorized");
        }
        let parts: Vec<&str> = rest.split('/').skip(1).collect();
        let state = self.lock();
        let mut found = Vec::new();
        for subscription in state.directory.iter().flat_map(|one| one.subscriptions(true)) {
            let same = match parts[..] {
                [] => true,
                [topic] => escaped(subscription.topic) == topic,
                [topic, subscriber] => {
                    escaped(subscription.topic) == topic
                        && escaped(subscription.subscriber) == subscriber
                }
                _ => false,
            };
            if same {
                found.push(subscription.json(parts.len() == 2));
            }
        }
        let last = if state.newest.is_empty() { EARLIEST } else { &state.newest };
        let body = match (parts.len(), found.pop()) {
            (2, Some(one)) => one,
            (2, None) => return Answer::text(404, "Not Found"),
            (_, one) => {
                found.extend(one);
                list(path, last, &found)
            }
        };
        let fields = vec![
            ("content-type", String::from("application/ld+json")),
            ("etag", format!("\"{}\"", escaped(last))),
            ("last-event-id", last.to_owned()),
        ];
        drop(state);
        Answer { status: 200, fields, body: Body::Whole(body) }
    }
}
