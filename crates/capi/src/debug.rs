//! What a program that looks for a fault wants to see: the heads as they go over the wire, what TLS has come to, bodies.
//!
//! Invariants
//! - Values of fields that hold secrets are seen only by who has asked for them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use egress::{Secured, Sight, Tap, TlsVersion};

use crate::calls::{Debug, Seen};
use crate::flight::Flight;
use crate::life::Life;
use crate::peer;
use crate::progress::{Held, Track};

/// Fields whose values are secrets, in lower case.
const SECRET: [&[u8]; 6] = [
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"authentication-info",
    b"proxy-authentication-info",
];

impl Flight {
    /// A piece of a body, to whoever wants to see it.
    pub(crate) async fn show(self: &Arc<Self>, seen: Seen, piece: Bytes) {
        let (Some(debug), Some(life)) = (self.debug(), &self.life) else { return };
        let caller = Arc::clone(self);
        let shown = move || debug.call(caller.request.as_ref(), seen, &piece);
        let _over = life.ask(self.spec.threaded, shown).await;
    }

    fn debug(&self) -> Option<Debug> {
        self.spec.extras.as_ref()?.debug
    }
}

/// Watches one try: for whoever wants to see it, and for its clock.
pub(crate) struct Watcher<'a> {
    life: &'a Arc<Life>,
    flight: &'a Arc<Flight>,
    debug: Option<Debug>,
    track: &'a Track,
    /// It has no connection yet.
    waits: Mutex<Option<Held<'a>>>,
}

impl<'a> Watcher<'a> {
    /// `None`: nobody wants to see anything, and no clock runs.
    pub(crate) fn new(
        life: &'a Arc<Life>,
        flight: &'a Arc<Flight>,
        track: &'a Track,
    ) -> Option<Self> {
        let debug = flight.debug();
        let wanted = debug.is_some() || flight.spec.settings.idle_timeout.is_some();
        wanted.then(|| Self { life, flight, debug, track, waits: Mutex::default() })
    }

    /// That nothing moves while it waits for a connection is nobody's fault.
    fn waits(&self, held: Option<Held<'a>>) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    fn tell(&self, seen: Seen, bytes: Vec<u8>) {
        let Some(debug) = self.debug else { return };
        let caller = Arc::clone(self.flight);
        self.life.tell(self.flight.spec.threaded, move || {
            debug.call(caller.request.as_ref(), seen, &bytes);
        });
    }

    /// A line of ours.
    pub(crate) fn say(&self, line: &str) {
        self.tell(Seen::Text, format!("{line}\n").into_bytes());
    }

    fn head(&self, seen: Seen, head: &[u8]) {
        let secrets = self.debug.is_some_and(|debug| debug.secrets);
        let shown = if secrets { head.to_vec() } else { redacted(head) };
        self.tell(seen, shown);
    }

    fn secured(&self, secured: &Secured) {
        let version = match secured.version {
            TlsVersion::V1_2 => "1.2",
            TlsVersion::V1_3 => "1.3",
        };
        self.say(&format!("TLS {version}, {}", secured.cipher));
        for certificate in &secured.chain {
            let facts = peer::Facts::of(certificate);
            self.say(&format!(
                "Certificate: subject {}; issuer {}; names {}",
                facts.subject, facts.issuer, facts.names
            ));
        }
    }
}

impl Tap for Watcher<'_> {
    fn see(&self, sight: Sight<'_>) {
        match sight {
            Sight::Waiting => self.waits(Some(self.track.hold())),
            Sight::Connection { address, kept, http2, secured } => {
                self.waits(None);
                if self.debug.is_none() {
                    return;
                }
                let to = address.map_or_else(|| "a unix socket".to_owned(), |to| to.to_string());
                let what = if kept { "Kept connection" } else { "Connected" };
                let version = if http2 { "HTTP/2" } else { "HTTP/1.1" };
                self.say(&format!("{what} to {to}, {version}"));
                if let Some(secured) = secured.filter(|_| !kept) {
                    self.secured(secured);
                }
            }
            Sight::Request(head) => self.head(Seen::HeadOut, head),
            Sight::Answer(head) => self.head(Seen::HeadIn, head),
        }
    }

    fn heads(&self) -> bool {
        self.debug.is_some()
    }
}

/// A head without its secrets. A scheme of authentication (`Basic`) stays.
fn redacted(head: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(head.len());
    let mut hidden = false;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        // A line that goes on with the one before (RFC 9112, 5.2).
        if hidden && line.first().is_some_and(|byte| b" \t".contains(byte)) {
            continue;
        }
        hidden = false;
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            shown.extend_from_slice(line);
            continue;
        };
        let (name, value) = line.split_at(colon);
        if !SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret)) {
            shown.extend_from_slice(line);
            continue;
        }
        hidden = true;
        shown.extend_from_slice(name);
        shown.extend_from_slice(b": ");
        if name.to_ascii_lowercase().ends_with(b"authorization") {
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            if let Some(scheme) = value.split(|byte| *byte == b' ').next()
                && scheme.len() < value.len()
            {
                shown.extend_from_slice(scheme);
                shown.push(b' ');
            }
        }
        shown.extend_from_slice(b"***\r\n");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else_is_changed() {
        let head =
            b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nAUTHORIZATION: Bearer t\r\nCookie: a=1; b=2\r\n\
            proxy-authorization:Basic eDp5\r\nX-Cookie: c\r\n\r\n";
        let wanted =
            b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nAUTHORIZATION: Bearer ***\r\nCookie: ***\r\n\
            proxy-authorization: Basic ***\r\nX-Cookie: c\r\n\r\n";
        assert_eq!(redacted(head).as_slice(), wanted.as_slice());
        let head = b"HTTP/1.1 200 OK\r\nset-cookie: s=1;\r\n Path=/\r\nAuthorization: whole\r\nage: 1\r\n\r\n";
        let wanted = b"HTTP/1.1 200 OK\r\nset-cookie: ***\r\nAuthorization: ***\r\nage: 1\r\n\r\n";
        assert_eq!(redacted(head).as_slice(), wanted.as_slice());
    }
}
