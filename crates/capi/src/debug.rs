//! Events for debugging: heads as they are on the wire, the outcome of TLS, bodies.
//!
//! Invariants
//! - Values of secret fields are shown only to callers that have asked for them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use egress::{Secured, Sight, Tap, TlsVersion};

use crate::calls::{Debug, Seen};
use crate::in_flight::InFlight;
use crate::peer;
use crate::progress::{Held, Track};
use crate::runtime::Runtime;
use crate::sys::lock;

/// Fields with secret values, in lower case.
const SECRET: [&[u8]; 6] = [
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"authentication-info",
    b"proxy-authentication-info",
];

impl InFlight {
    /// Reports a piece of a body to the observer.
    pub(crate) async fn show(self: &Arc<Self>, seen: Seen, piece: Bytes) {
        let (Some(debug), Some(runtime)) = (self.debug(), self.runtime()) else { return };
        let caller = Arc::clone(self);
        let shown = move || debug.call(caller.request().as_ref(), seen, &piece);
        let _over = runtime.callbacks.ask(self.spec.threaded, shown).await;
    }

    fn debug(&self) -> Option<Debug> {
        self.spec.extras.as_ref()?.debug
    }
}

/// Observes one try: for the debug callback, and for the idle clock.
pub(crate) struct Watcher<'a> {
    runtime: &'a Arc<Runtime>,
    in_flight: &'a Arc<InFlight>,
    debug: Option<Debug>,
    track: &'a Track,
    /// Whether the call waits for a connection.
    waits: Mutex<Option<Held<'a>>>,
}

impl<'a> Watcher<'a> {
    /// Creates an observer; `None` without a callback and a clock.
    pub(crate) fn new(
        runtime: &'a Arc<Runtime>,
        in_flight: &'a Arc<InFlight>,
        track: &'a Track,
    ) -> Option<Self> {
        let debug = in_flight.debug();
        let wanted = debug.is_some() || in_flight.spec.settings.idle_timeout.is_some();
        wanted.then(|| Self { runtime, in_flight, debug, track, waits: Mutex::default() })
    }

    /// The time that a try waits for a connection does not count as idle.
    fn waits(&self, held: Option<Held<'a>>) {
        *lock(&self.waits) = held;
    }

    fn report(&self, seen: Seen, bytes: Vec<u8>) {
        let Some(debug) = self.debug else { return };
        let caller = Arc::clone(self.in_flight);
        self.runtime.callbacks.notify(self.in_flight.spec.threaded, move || {
            debug.call(caller.request().as_ref(), seen, &bytes);
        });
    }

    /// Reports a line of the library's own.
    pub(crate) fn text(&self, line: &str) {
        self.report(Seen::Text, format!("{line}\n").into_bytes());
    }

    fn head(&self, seen: Seen, head: &[u8]) {
        let secrets = self.debug.is_some_and(|debug| debug.secrets);
        let shown = if secrets { head.to_vec() } else { redacted(head) };
        self.report(seen, shown);
    }

    fn secured(&self, secured: &Secured) {
        let version = match secured.version {
            TlsVersion::V1_2 => "1.2",
            TlsVersion::V1_3 => "1.3",
        };
        self.text(&format!("TLS {version}, {}", secured.cipher));
        for certificate in &secured.chain {
            let facts = peer::Facts::of(certificate);
            self.text(&format!(
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
                self.text(&format!("{what} to {to}, {version}"));
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

/// A head without its secrets. The scheme of an authentication (`Basic`) stays.
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
    fn debug_output_hides_only_secrets() {
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
