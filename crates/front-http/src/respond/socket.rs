//! Opens WebSockets that the application handles: it is asked first, and its answer decides.
//!
//! Invariants
//! - A client that may not connect gets a status and never a WebSocket: from the origin check, a limit or the
//!   application.
//! - The connection counts, and its id is valid, before the application is asked.

use std::sync::Arc;

use bytes::Bytes;
use channels::websocket::Upgrade;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use pool::Script;

use super::send::drop_hop_by_hop;
use super::{Answer, Exchange};
use crate::answers::Page;
use crate::application::Application;
use crate::protocol::Protocol;
use crate::realtime::{self, Grant};
use crate::release::Part;
use crate::route::CleanPath;
use crate::websocket::events::{self, Event, Failed, Fields, Visitor};
use crate::websocket::session::Accepted;
use crate::websocket::{self, NoSeat, WebSocketRoute};

/// The name of the only application.
const MAIN: &str = "main";

impl<A: Application> Exchange<'_, A> {
    /// Answers a request for a WebSocket of the application, if it is one.
    pub(super) async fn socket(
        &self,
        part: &Part,
        parts: &Parts,
        path: &CleanPath<'_>,
    ) -> Option<Answer<A::Body>> {
        if Protocol::of(parts.version) != Protocol::Http11 || parts.method != Method::GET {
            return None;
        }
        let route = part.websockets.route(path.as_bytes())?;
        let limits = part.websockets.limits;
        let fields = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        match Upgrade::read(fields, limits.deflate.is_some()) {
            Ok(upgrade) => {
                let upgrade = upgrade?;
                if let Some(rules) = &self.current.release.rules
                    && self.user.is_none()
                    && let Err(page) = self.within_rate(rules, parts, path.as_bytes())
                {
                    return Some(self.page(page, &parts.headers));
                }
                Some(self.ask(part, parts, route, upgrade).await)
            }
            Err(error) => Some(self.page(realtime::malformed(error), &parts.headers)),
        }
    }

    async fn ask(
        &self,
        part: &Part,
        parts: &Parts,
        route: &WebSocketRoute,
        upgrade: Upgrade,
    ) -> Answer<A::Body> {
        let page = |status, says| self.page(Page::new(status, says), &parts.headers);
        let name = part.name.clone().unwrap_or_else(|| Arc::from(MAIN));
        let sockets = &self.front.websockets;
        let host = self
            .forwarded
            .host
            .as_deref()
            .or_else(|| parts.headers.get(header::HOST)?.to_str().ok());
        let origin = parts.headers.get(header::ORIGIN);
        if !websocket::allows(&part.websockets.origins, origin, host.unwrap_or_default()) {
            sockets.refused(&name);
            return page(StatusCode::FORBIDDEN, "Pages of this origin may not connect here.");
        }
        let limits = part.websockets.limits;
        let known = self.forwarded.client.is_some() || !self.connection.trusted;
        let client = known.then(|| self.remote.ip());
        let seat = match sockets.seat(&name, client, &limits) {
            Ok(seat) => seat,
            Err(NoSeat::Full) => return self.page(Page::busy(), &parts.headers),
            Err(NoSeat::Client) => {
                let says = "This client has as many connections as it may have.";
                return page(StatusCode::TOO_MANY_REQUESTS, says);
            }
        };
        let handler = route.handler().unwrap_or_else(|| parts.uri.path()).to_owned();
        // Each event has its own script.
        let script = Script {
            filename: Arc::from(std::path::Path::new("")),
            name: Arc::from(""),
            path_info: Arc::from(""),
            document_root: Arc::from(std::path::Path::new("")),
        };
        let mut visitor = Visitor {
            id: seat.id(),
            uri: events::target(&parts.uri),
            handler,
            fields: Fields::of(&parts.headers),
            forwarded: self.forwarded.clone(),
            context: self.context(script, &parts.headers, None, None),
            protocol: None,
            limits,
        };
        // The application may accept even if the client leaves meanwhile.
        self.grant(Some(Grant::Asked));
        let outcome = events::call(self.front, &seat, &visitor, Event::Connect).await;
        self.grant(None);
        let response = match outcome {
            Ok(response) => response,
            Err(Failed::Dispatch(error)) => {
                return self.page(Page::dispatch_failed(&error), &parts.headers);
            }
            Err(Failed::Busy) => return self.page(Page::busy(), &parts.headers),
            Err(_failed) => {
                return page(StatusCode::INTERNAL_SERVER_ERROR, "The application failed.");
            }
        };
        let (mut head, body) = response.into_parts();
        drop_hop_by_hop(&mut head.headers);
        if !head.status.is_success() {
            sockets.refused(&name);
            // A redirection is an answer like any other; browsers follow none here.
            return Answer::whole(Response::from_parts(head, body));
        }
        visitor.protocol = protocol(&mut head.headers, parts, &visitor.id);
        if let (Some(size), true) = (limits.deflate, upgrade.deflate()) {
            seat.deflate_from(size);
        }
        let deflate = upgrade.deflate();
        self.grant(Some(Grant::Application(Box::new(Accepted { visitor, seat, deflate }))));
        let mut switching = realtime::switching(&upgrade);
        let own = |name: &HeaderName| {
            *name == header::CONTENT_LENGTH
                || *name == header::CONTENT_TYPE
                || *name == header::SEC_WEBSOCKET_ACCEPT
                || *name == header::SEC_WEBSOCKET_EXTENSIONS
        };
        for (name, value) in &head.headers {
            if !own(name) {
                switching.headers_mut().append(name.clone(), value.clone());
            }
        }
        Answer::whole(switching.map(|()| Bytes::new()))
    }

    fn grant(&self, grant: Option<Grant>) {
        *self.connection.grant.lock().expect("no holder panics") = grant;
    }
}

/// Returns the subprotocol that the application chose. One that the client did not offer is removed: browsers would close.
fn protocol(headers: &mut header::HeaderMap, parts: &Parts, id: &str) -> Option<HeaderValue> {
    let chosen = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?;
    // Copied: it would hold the buffer of the whole answer.
    let chosen = HeaderValue::from_bytes(chosen.as_bytes()).ok()?;
    let offered = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut offered = offered.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if offered.any(|one| one.trim_ascii() == chosen.as_bytes()) {
        return Some(chosen);
    }
    tracing::warn!(
        socket.id = id,
        "the application chose a WebSocket subprotocol that was not offered"
    );
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    None
}
