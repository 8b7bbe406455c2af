//! Event streams: sessions whose clients only receive. The hub sends the subscribe messages on their behalf.

use super::super::adopted::AdoptedStream;
use super::super::connection::{Asking, Connection, Fate, Stage};
use super::super::event_stream::{self, Epochs, StreamRequest, StreamSubscription};
use super::super::figures::Reason;
use super::super::queue::Form;
use super::EventLoop;
use crate::app::App;
use crate::apps::{AppRef, Found};
use crate::close::Close;
use crate::delivery::Seat;
use crate::hello::Hello;
use crate::moment::UnixTime;
use crate::session::{Out, Session};
use crate::socket_id::SocketId;
use crate::stream_id;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

impl EventLoop {
    /// Adds a socket whose event stream request another front has read.
    pub(super) fn adopt_stream(&mut self, adopted: AdoptedStream) {
        let AdoptedStream { stream, tls, answered, beside, secure, .. } = adopted;
        let Some(mut connection) = self.connection(stream, tls, secure) else { return };
        connection.beside = beside;
        self.add_socket(connection, |this, seat, connection| {
            let asked = StreamRequest {
                target: &adopted.target,
                origin: adopted.origin.as_deref(),
                site: adopted.site.as_deref(),
                last_event_id: adopted.last_event_id.as_deref(),
            };
            this.stream(seat, connection, &asked, answered);
            Fate::Stays
        });
    }

    /// Starts an event stream. `answered` says that the response head has been written.
    pub(super) fn stream(
        &mut self,
        seat: Seat,
        connection: &mut Connection,
        asked: &StreamRequest<'_>,
        answered: bool,
    ) {
        let origin = asked.origin;
        self.figures.upgraded.add(1);
        connection.form = Form::EventStream;
        connection.epochs = Some(Box::new(Epochs::default()));
        let wanted = match StreamSubscription::read(asked) {
            Ok(wanted) => wanted,
            Err(close) => return self.refuse_stream(connection, close, origin, answered),
        };
        if self.sockets.load(Ordering::Relaxed) > self.options.sockets {
            return self.refuse_stream(connection, Close::OVER_CAPACITY, origin, answered);
        }
        match self.channels.apps().find(AppRef::Key(&wanted.key)) {
            Found::App(app) => self.open_stream(seat, connection, app, &wanted, origin, answered),
            Found::None => self.refuse_stream(connection, Close::NO_SUCH_APP, origin, answered),
            Found::Unknown => {
                let key = wanted.key.clone();
                let origin = origin.map(str::to_owned);
                let asking = Asking { origin, stream: Some((wanted, answered)), read: Vec::new() };
                self.send(seat, connection, &key, asking);
            }
        }
    }

    pub(super) fn open_stream(
        &mut self,
        seat: Seat,
        connection: &mut Connection,
        app: Arc<App>,
        wanted: &StreamSubscription,
        origin: Option<&str>,
        answered: bool,
    ) {
        connection.limit(&app.limits);
        let hello = Hello { tls: connection.secure, origin, without_origin: wanted.own_page };
        if wanted.only_id {
            return match hello.check(&app) {
                Ok(()) => self.respond_with_id(connection, &app, origin),
                Err(close) => self.refuse_stream(connection, close, origin, answered),
            };
        }
        let socket = match wanted.socket {
            Some(socket)
                if !stream_id::is_issued(
                    &app.secret,
                    socket,
                    UnixTime::from(SystemTime::now()),
                ) =>
            {
                return self.refuse_stream(connection, Close::OTHER_ID, origin, answered);
            }
            Some(socket) => socket,
            None => SocketId::from_random(self.random.next()),
        };
        let room = connection.queue.room(connection.bound);
        let mut out = Out { room, ..Out::default() };
        let session = Session::open(app, seat, socket, &hello, &self.channels, self.now, &mut out);
        let Some(mut session) = session else {
            let close = out.close.unwrap_or(Close::OVER_CAPACITY);
            return self.refuse_stream(connection, close, origin, answered);
        };
        for text in &wanted.subscriptions {
            session.text(text, &self.channels, self.now, &mut out);
        }
        if out.joined.is_empty() {
            session.closed(&self.channels, self.now);
            return self.refuse_stream(connection, NOTHING_TO_HEAR, origin, answered);
        }
        self.open += 1;
        connection.socket = Some(socket);
        connection.stage = Stage::Open(session);
        if !answered {
            connection.queue.push_head(event_stream::head(origin));
        }
        self.apply(seat, connection, &mut out);
    }

    /// Responds with a socket id for which a client can have its channels signed.
    fn respond_with_id(&mut self, connection: &mut Connection, app: &App, origin: Option<&str>) {
        let socket =
            stream_id::issue(&app.secret, self.random.next(), UnixTime::from(SystemTime::now()));
        connection.queue.push_last([], Some(event_stream::id(socket, origin)));
        connection.stage =
            Stage::Closing { reason: Reason::Client, discard_input: true, done: false };
        connection.until = self.now + self.options.close_timeout;
    }

    /// Rejects an event stream, with a status if the response head has not been written.
    pub(super) fn refuse_stream(
        &mut self,
        connection: &mut Connection,
        close: Close,
        origin: Option<&str>,
        answered: bool,
    ) {
        if answered {
            return self.refuse(connection, close, Reason::Refused);
        }
        connection.queue.push_last([], Some(event_stream::refusal(close, origin)));
        connection.stage =
            Stage::Closing { reason: Reason::Refused, discard_input: true, done: false };
        connection.until = self.now + self.options.close_timeout;
    }
}

/// The request names no channel, or only channels that are not permitted.
const NOTHING_TO_HEAR: Close = Close { code: 4009, reason: "no channel to hear" };
