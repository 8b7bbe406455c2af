//! The subscription API: which subscribers there are on this node, as JSON-LD.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

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

/// What is encoded in a path segment: everything but unreserved characters (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a path segment.
pub(super) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

impl Subscription<'_> {
    /// Path of the subscription, which is also the topic of its events.
    pub(super) fn id(&self) -> String {
        format!(
            "{}/subscriptions/{}/{}",
            super::PATH,
            escaped(self.topic),
            escaped(self.subscriber)
        )
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
pub(super) fn list(path: &str, last: &str, subscriptions: &[String]) -> String {
    let mut text = format!("{{{CONTEXT}\"id\":");
    push_string(&mut text, path);
    text.push_str(r#","type":"Subscriptions","lastEventID":"#);
    push_string(&mut text, last);
    text.push_str(r#","subscriptions":["#);
    text.push_str(&subscriptions.join(","));
    text.push_str("]}");
    text
}
