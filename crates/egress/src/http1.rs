//! One call at a time on an HTTP/1.1 connection.
//!
//! hyper's connection is driven by whoever makes the call and by whoever reads its answer: no task, no hop. Between calls nobody
//! drives it; [`Http1::alive`] looks whether it was closed.
//!
//! Invariants
//! - A connection goes back only when the answer was read to its end, the whole request was written, and both sides keep it.
//! - A connection that is dropped while it carries a call is closed, and its origin knows.

use std::error::Error as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::call::Written;
use crate::connect::{Birth, Connected};
use crate::errors::code;
use crate::origin::Origin;
use crate::relay::Relay;
use crate::repeat::Progress;
use crate::stream::{self, Stream, Traffic};
use crate::upload::{Upload, Watch};
use crate::{CallError, Interim, Reason};

/// Fields of an answer, at most. hyper's 100 are too few for some applications; libcurl counts bytes, as the buffer's limit does.
const FIELDS: usize = 256;
/// So much of an answer that nobody wants is read for the sake of its connection.
const REST: u64 = 64 << 10;
/// And so long.
const REST_TIME: Duration = Duration::from_secs(1);

type Interims = Arc<Mutex<Vec<(StatusCode, HeaderMap)>>>;

/// An HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Http1 {
    send: SendRequest<Upload>,
    /// `None`: it has ended.
    connection: Option<Connection<TokioIo<Stream>, Upload>>,
    traffic: Arc<Traffic>,
    interims: Interims,
    relay: Arc<Relay>,
    birth: Birth,
    born: Instant,
    kept_for: Option<Duration>,
    calls: u64,
    /// While it carries a call, or may.
    home: Option<Arc<Origin>>,
    _permit: OwnedSemaphorePermit,
}

/// A call that got no answer.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) error: CallError,
    pub(crate) progress: Progress,
}

impl Http1 {
    pub(crate) async fn new(
        connected: Connected,
        permit: OwnedSemaphorePermit,
    ) -> Result<Box<Self>, hyper::Error> {
        let traffic = connected.stream.traffic();
        let (send, connection) = Builder::new()
            .preserve_header_case(true)
            .title_case_headers(true)
            .max_headers(FIELDS)
            .handshake(TokioIo::new(connected.stream))
            .await?;
        Ok(Box::new(Self {
            send,
            connection: Some(connection),
            traffic,
            interims: Interims::default(),
            relay: Arc::new(Relay::new()),
            birth: connected.birth,
            born: Instant::now(),
            kept_for: None,
            calls: 0,
            home: None,
            _permit: permit,
        }))
    }

    pub(crate) fn birth(&self) -> Birth {
        self.birth
    }

    pub(crate) fn born(&self) -> Instant {
        self.born
    }

    /// What the origin's Keep-Alive said.
    pub(crate) fn kept_for(&self) -> Option<Duration> {
        self.kept_for
    }

    /// It has carried a call before.
    pub(crate) fn kept(&self) -> bool {
        self.calls > 0
    }

    /// From here on its origin is told when it is gone.
    pub(crate) fn leave(&mut self, home: Arc<Origin>) {
        self.home = Some(home);
    }

    /// Its origin, while it is away.
    pub(crate) fn home(&self) -> Option<Arc<Origin>> {
        self.home.clone()
    }

    /// Its origin has it again.
    pub(crate) fn come_home(&mut self) -> Option<Arc<Origin>> {
        self.relay.forget();
        self.home.take()
    }

    /// It can carry a call: the other end has not closed, as far as the kernel knows, and has not spoken unasked.
    pub(crate) fn alive(&mut self) -> bool {
        self.traffic.probe(true);
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.traffic.probe(false);
        self.ready()
    }

    fn ready(&self) -> bool {
        self.connection.is_some() && self.send.is_ready()
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.connection = None;
        }
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropped, the connection is closed.
    pub(crate) async fn exchange(
        mut self: Box<Self>,
        mut request: Request<Upload>,
        watch: Option<&Arc<Watch>>,
        interim: &mut (impl FnMut(Interim<'_>) + Send),
    ) -> Result<Response<Http1Body>, Broken> {
        self.calls += 1;
        self.traffic.begin();
        let (sent, received) = (self.traffic.sent(), self.traffic.received());
        let interims = Arc::clone(&self.interims);
        let gate = watch.cloned();
        hyper::ext::on_informational(&mut request, move |response| {
            if let Some(gate) = &gate
                && response.status() == StatusCode::CONTINUE
            {
                gate.open();
            }
            let interim = (response.status(), response.headers().clone());
            interims.lock().unwrap_or_else(PoisonError::into_inner).push(interim);
        });

        let mut answer = pin!(self.send.try_send_request(request));
        let relay = Arc::clone(&self.relay);
        let answered = std::future::poll_fn(|cx| {
            relay.poll(cx, |cx| {
                self.drive(cx);
                for (status, headers) in
                    self.interims.lock().unwrap_or_else(PoisonError::into_inner).drain(..)
                {
                    let head = self.traffic.next_head();
                    interim((status, &headers, head.as_deref()));
                }
                match answer.as_mut().poll(cx) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending if self.connection.is_none() => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
        });
        match answered.await {
            Some(Ok(mut response)) => {
                let written = self.traffic.next_head();
                if let Some(head) =
                    written.filter(|head| stream::status(head) == Some(response.status().as_u16()))
                {
                    response.extensions_mut().insert(Written(head));
                }
                let under_way = watch.is_some_and(|watch| {
                    watch.answered(response.status());
                    watch.under_way()
                });
                self.answered(response, under_way)
            }
            failed => {
                let written = self.traffic.sent() != sent;
                let returned = match &failed {
                    Some(Err(error)) => error.message().is_some(),
                    _ => false,
                };
                let came = self.traffic.received() != received;
                let progress = match (returned || !written, came) {
                    (true, _) => Progress::Unwritten,
                    (false, false) => Progress::Written,
                    (false, true) => Progress::Answered,
                };
                let error = match failed {
                    Some(Err(error)) => self.without_head(error.error(), came),
                    _ => CallError::empty(),
                };
                Err(Broken { error, progress })
            }
        }
    }

    fn answered(
        mut self: Box<Self>,
        response: Response<Incoming>,
        under_way: bool,
    ) -> Result<Response<Http1Body>, Broken> {
        let weird = |message: &str| {
            Err(Broken { error: CallError::weird(message), progress: Progress::Answered })
        };
        let headers = response.headers();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return weird("The origin switched to another protocol, unasked");
        }
        if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
            return weird("The answer has both Transfer-Encoding and Content-Length");
        }
        self.kept_for = kept_for(headers);
        let failed = response.status().as_u16() >= 400;
        Ok(response.map(|incoming| {
            let mut body = Http1Body::new(incoming, self, failed);
            if under_way {
                body.drive_elsewhere();
            }
            body
        }))
    }

    fn without_head(&self, error: &hyper::Error, came: bool) -> CallError {
        if error.is_user() {
            return CallError::abandoned();
        }
        if error.is_parse() {
            return if self.traffic.babble() {
                CallError::no_http()
            } else {
                CallError::weird(format!("Weird server reply: {error}"))
            };
        }
        match io_error(error) {
            Some(io) if io.kind() != io::ErrorKind::UnexpectedEof => CallError::broken(io),
            _ if self.traffic.babble() => CallError::no_http(),
            _ if came => CallError::failed(
                Reason::Reset,
                code::RECEIVE,
                "Recv failure: the connection was closed in the middle of the head",
            ),
            _ => CallError::empty(),
        }
    }

    /// Gives it back to its origin.
    fn put_back(self: Box<Self>) {
        if let Some(home) = self.home.clone() {
            home.put_back(self);
        }
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.lost();
        }
    }
}

/// `Keep-Alive: timeout=N` (RFC 2068, 19.7.1.1), less a second: the origin's clock runs since it sent the answer. `max=0`: not at all.
fn kept_for(headers: &HeaderMap) -> Option<Duration> {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    let mut kept = None;
    for parameter in headers.get(KEEP_ALIVE)?.to_str().ok()?.split(',') {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let Ok(value) = value.trim().parse::<u32>() else { continue };
        if name.trim().eq_ignore_ascii_case("timeout") {
            kept = Some(Duration::from_secs(u64::from(value.saturating_sub(1))));
        } else if name.trim().eq_ignore_ascii_case("max") && value == 0 {
            return Some(Duration::ZERO);
        }
    }
    kept
}

fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Some(io);
        }
        source = cause.source();
    }
    None
}

/// The body of an answer. It drives its connection, and gives it back at its end.
#[derive(Debug)]
pub(crate) struct Http1Body {
    incoming: Option<Incoming>,
    /// `None`: it is back, gone, or driven elsewhere.
    connection: Option<Box<Http1>>,
    /// Where the connection is driven elsewhere: the answer is over. Dropped before: nobody wants it.
    elsewhere: Option<oneshot::Sender<()>>,
    length: Option<u64>,
    received: u64,
    /// The origin has answered with an error: it does not want the rest of a body.
    failed: bool,
}

impl Http1Body {
    fn new(incoming: Incoming, connection: Box<Http1>, failed: bool) -> Self {
        let length = incoming.size_hint().exact();
        let mut body = Self {
            incoming: Some(incoming),
            connection: Some(connection),
            elsewhere: None,
            length,
            received: 0,
            failed,
        };
        body.settle();
        body
    }

    /// The request's body is still on its way: a task sends it, however slowly its answer is read.
    fn drive_elsewhere(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let Some(home) = connection.home.clone() else { return };
        let (tell, told) = oneshot::channel();
        self.elsewhere = Some(tell);
        home.spawn(async move {
            {
                let mut over = pin!(std::future::poll_fn(|cx| {
                    connection.drive(cx);
                    let over = connection.connection.is_none() || connection.ready();
                    if over { Poll::Ready(()) } else { Poll::Pending }
                }));
                tokio::select! {
                    () = &mut over => {}
                    told = told => {
                        if told.is_err() || tokio::time::timeout(REST_TIME, over).await.is_err() {
                            return;
                        }
                    }
                }
            }
            if connection.ready() {
                connection.put_back();
            }
        });
    }

    /// Gives the connection back if the answer is over.
    fn settle(&mut self) {
        if !self.incoming.as_ref().is_none_or(Body::is_end_stream) {
            return;
        }
        if let Some(elsewhere) = self.elsewhere.take()
            && !self.failed
        {
            let _nobody_listens = elsewhere.send(()).is_err();
        }
        let Some(mut connection) = self.connection.take() else { return };
        if !connection.ready() {
            connection.drive(&mut Context::from_waker(Waker::noop()));
        }
        if connection.ready() {
            connection.put_back();
        } else if connection.connection.is_some() && !self.failed {
            // The answer is here, and the request still on its way: the origin may be reading it.
            finish(connection, None);
        }
    }

    fn broken(&mut self, error: &hyper::Error) -> CallError {
        self.connection = None;
        self.elsewhere = None;
        match io_error(error) {
            Some(io) => match io.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => CallError::broken(io),
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => CallError::failed(
                    Reason::Rubbish,
                    code::RECEIVE,
                    "Illegal or missing hexadecimal sequence",
                ),
                _ => self.partial(),
            },
            None if error.is_user() => CallError::abandoned(),
            None => self.partial(),
        }
    }

    fn partial(&self) -> CallError {
        CallError::partial(self.length.map(|length| length.saturating_sub(self.received)))
    }
}

impl Body for Http1Body {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        let this = self.get_mut();
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        let polled = match &mut this.connection {
            None => Pin::new(incoming).poll_frame(cx),
            Some(connection) => {
                let relay = Arc::clone(&connection.relay);
                relay.poll(cx, |cx| {
                    // Being polled it says that it wants more: that is what the connection waits for.
                    let polled = Pin::new(&mut *incoming).poll_frame(cx);
                    if polled.is_ready() {
                        return polled;
                    }
                    connection.drive(cx);
                    Pin::new(&mut *incoming).poll_frame(cx)
                })
            }
        };
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => {
                this.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                this.settle();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.incoming = None;
                Poll::Ready(Some(Err(this.broken(&error))))
            }
            Poll::Ready(None) => {
                this.incoming = None;
                this.settle();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        self.settle();
        let (Some(connection), Some(incoming)) = (self.connection.take(), self.incoming.take())
        else {
            return;
        };
        // Nobody wants the rest. A little is quicker read than a connection is made.
        if incoming.size_hint().upper().is_some_and(|rest| rest <= REST) {
            finish(connection, Some(incoming));
        }
    }
}

/// Reads what is left of an answer, and writes what is left of a request, so that the connection can be used again.
fn finish(mut connection: Box<Http1>, mut incoming: Option<Incoming>) {
    let Some(home) = connection.home.clone() else { return };
    home.spawn(async move {
        let over = std::future::poll_fn(|cx| {
            loop {
                connection.drive(cx);
                let Some(body) = &mut incoming else { break };
                match Pin::new(body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => incoming = None,
                    Poll::Pending => break,
                }
            }
            if connection.connection.is_none() || (incoming.is_none() && connection.ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        if tokio::time::timeout(REST_TIME, over).await.is_ok() && connection.ready() {
            connection.put_back();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_is_believed_with_a_second_to_spare() {
        for (value, wanted) in [
            ("timeout=5", Some(4)),
            ("timeout=5, max=100", Some(4)),
            ("max=100,Timeout = 75", Some(74)),
            ("timeout=1", Some(0)),
            ("timeout=0", Some(0)),
            ("timeout=60, max=0", Some(0)),
            ("max=3", None),
            ("timeout=soon", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("keep-alive", value.parse().expect("a value"));
            assert_eq!(kept_for(&headers), wanted.map(Duration::from_secs), "{value:?}");
        }
    }
}
