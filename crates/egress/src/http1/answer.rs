//! The body of a response as its reader gets it. It drives its connection, and returns it at the end.
//!
//! A response may arrive while its request's body is being sent. Then a task sends the body, however slowly the
//! response is read: the two share the connection, one for each direction.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http1::Piece;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::oneshot;

use super::Http1;
use super::transfer::Cut;
use crate::errors::code;
use crate::{CallError, Reason};

/// The bytes of an unwanted response that are read to keep its connection.
const REST: u64 = 64 << 10;
/// The time that they may take.
const REST_TIME: Duration = Duration::from_secs(1);

/// The body of a response.
#[derive(Debug)]
pub(crate) struct Http1Body {
    connection: Place,
    length: Option<u64>,
    received: u64,
    /// True if the origin has answered with an error and therefore does not read the rest of the body.
    failed: bool,
}

/// The owner of the connection.
#[derive(Debug)]
enum Place {
    Here(Box<Http1>),
    /// The task that sends the request's body owns it too. `over` is sent when the response ends, and dropped earlier
    /// if the response is not wanted.
    Shared {
        shared: Arc<Shared>,
        over: oneshot::Sender<()>,
    },
    /// The response has ended or was aborted.
    Gone,
}

#[derive(Debug)]
struct Shared(Mutex<Both>);

#[derive(Debug)]
struct Both {
    /// `None`: the connection was returned, or sending has failed.
    connection: Option<Box<Http1>>,
    reader: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        match &mut self.lock().connection {
            Some(connection) => connection.poll_send(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Sending has failed, so reading ends too.
    fn fail(&self) {
        let (connection, reader) = {
            let mut both = self.lock();
            (both.connection.take(), both.reader.take())
        };
        drop(connection);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Http1Body {
    /// Creates the body. `under_way`: more of the request is to be sent.
    pub(super) fn new(connection: Box<Http1>, failed: bool, under_way: bool) -> Self {
        let length = connection.body.left();
        let mut body = Self { connection: Place::Here(connection), length, received: 0, failed };
        if under_way {
            body.share();
        }
        body.settle();
        body
    }

    /// Takes the body if its length is known and all of it has arrived. `behind`: a copy of what came with its head.
    pub(crate) fn whole(&mut self, mut behind: Bytes) -> Option<Bytes> {
        let length = self.length?;
        let connection = match &mut self.connection {
            Place::Gone => return Some(Bytes::new()),
            Place::Here(connection) if connection.all_sent() => connection,
            Place::Here(_) | Place::Shared { .. } => return None,
        };
        if (connection.input.len() as u64) < length {
            return None;
        }
        let copied = usize::try_from(length).ok().filter(|length| *length <= behind.len());
        let whole = match copied {
            Some(length) if connection.body.skip_rest(&mut connection.input) => {
                behind.truncate(length);
                behind
            }
            _ => match connection.body.take(&mut connection.input) {
                Ok(Piece::Data(data)) => data,
                _ => return None,
            },
        };
        self.received = length;
        self.settle();
        Some(whole)
    }

    /// Starts a task that sends the rest of the request's body, however slowly the response is read.
    fn share(&mut self) {
        let Place::Here(connection) = std::mem::replace(&mut self.connection, Place::Gone) else {
            return;
        };
        let Some(home) = connection.home() else { return };
        let (over, told) = oneshot::channel();
        let both = Both { connection: Some(connection), reader: None };
        let shared = Arc::new(Shared(Mutex::new(both)));
        home.spawn(send(Arc::clone(&shared), told));
        self.connection = Place::Shared { shared, over };
    }

    /// Returns the connection if the response has ended.
    fn settle(&mut self) {
        if !self.is_over() {
            return;
        }
        match std::mem::replace(&mut self.connection, Place::Gone) {
            // It may all be written in a moment.
            Place::Here(mut connection) => {
                if !connection.all_sent() {
                    let _later = connection.poll_send(&mut Context::from_waker(Waker::noop()));
                }
                if connection.ready() {
                    connection.put_back();
                } else if connection.keeps && !connection.all_sent() && !self.failed {
                    // The answer is here, and the request still on its way: the origin may be reading it.
                    finish(connection);
                }
            }
            Place::Shared { shared, over } => {
                // At once if nothing is to be sent any more, so that the next call finds it.
                let ready = {
                    let connection = &mut shared.lock().connection;
                    connection.take_if(|connection| connection.ready())
                };
                match ready {
                    Some(connection) => connection.put_back(),
                    None if self.failed => {}
                    None => drop(over.send(())),
                }
            }
            Place::Gone => {}
        }
    }

    fn is_over(&self) -> bool {
        match &self.connection {
            Place::Here(connection) => connection.body.is_over(),
            Place::Shared { shared, .. } => shared
                .lock()
                .connection
                .as_ref()
                .is_some_and(|connection| connection.body.is_over()),
            Place::Gone => true,
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, CallError>>> {
        let polled = match &mut self.connection {
            Place::Gone => return Poll::Ready(None),
            Place::Here(connection) => {
                if !connection.all_sent()
                    && let Poll::Ready(Err(error)) = connection.poll_send(cx)
                {
                    return Poll::Ready(Some(Err(error)));
                }
                connection.poll_piece(cx)
            }
            Place::Shared { shared, .. } => {
                let mut both = shared.lock();
                let Some(connection) = &mut both.connection else {
                    return Poll::Ready(Some(Err(CallError::abandoned())));
                };
                let polled = connection.poll_piece(cx);
                if polled.is_pending() {
                    both.reader = Some(cx.waker().clone());
                }
                polled
            }
        };
        polled.map(|piece| Some(piece.map_err(|cut| self.broken(&cut))))
    }

    fn broken(&self, cut: &Cut) -> CallError {
        let rubbish = || {
            let message = "Illegal or missing hexadecimal sequence";
            CallError::failed(Reason::Rubbish, code::RECEIVE, message)
        };
        match cut {
            Cut::Malformed => rubbish(),
            Cut::Io(error) => match error.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    CallError::broken(error)
                }
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => rubbish(),
                _ => self.partial(),
            },
            Cut::End => self.partial(),
        }
    }

    fn partial(&self) -> CallError {
        CallError::partial(self.length.map(|length| length.saturating_sub(self.received)))
    }
}

impl http_body::Body for Http1Body {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        let this = self.get_mut();
        let frame = match std::task::ready!(this.poll_piece(cx)) {
            None | Some(Ok(Piece::End | Piece::More)) => None,
            Some(Ok(Piece::Data(data))) => {
                this.received += data.len() as u64;
                Some(Ok(Frame::data(data)))
            }
            Some(Ok(Piece::Trailers(trailers))) => Some(Ok(Frame::trailers(trailers))),
            Some(Err(error)) => {
                this.connection = Place::Gone;
                Some(Err(error))
            }
        };
        this.settle();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.connection, self.length) {
            (Place::Gone, _) => SizeHint::with_exact(0),
            (_, Some(length)) => SizeHint::with_exact(length.saturating_sub(self.received)),
            (_, None) => SizeHint::default(),
        }
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        self.settle();
        let Place::Here(connection) = std::mem::replace(&mut self.connection, Place::Gone) else {
            return;
        };
        // The rest is not wanted. Reading a little is faster than opening a connection.
        if connection.body.left().is_some_and(|rest| rest <= REST) {
            finish(connection);
        }
    }
}

/// Reads the rest of a response and writes the rest of a request, so that the connection can be reused.
fn finish(mut connection: Box<Http1>) {
    let Some(home) = connection.home() else { return };
    home.spawn(async move {
        let over = std::future::poll_fn(|cx| {
            let sent = connection.poll_send(cx)?;
            while !connection.body.is_over() {
                match connection.poll_piece(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(CallError::empty())),
                }
            }
            sent.map(Ok)
        });
        let over = tokio::time::timeout(REST_TIME, over).await;
        if matches!(over, Ok(Ok(()))) && connection.ready() {
            connection.put_back();
        }
    });
}

/// Sends the rest of a request while its response is read, and for a short time afterwards.
async fn send(shared: Arc<Shared>, mut told: oneshot::Receiver<()>) {
    {
        let mut sent = pin!(std::future::poll_fn(|cx| shared.poll_send(cx)));
        let sent = tokio::select! {
            sent = &mut sent => sent,
            over = &mut told => {
                let in_time = match over {
                    Ok(()) => tokio::time::timeout(REST_TIME, sent).await,
                    // It is not wanted.
                    Err(_) => return shared.fail(),
                };
                match in_time {
                    Ok(Ok(())) => return put_back(&shared),
                    Ok(Err(_)) | Err(_) => return shared.fail(),
                }
            }
        };
        if sent.is_err() {
            return shared.fail();
        }
    }
    match told.await {
        Ok(()) => put_back(&shared),
        Err(_) => shared.fail(),
    }
}

fn put_back(shared: &Shared) {
    let connection = shared.lock().connection.take();
    if let Some(connection) = connection.filter(|connection| connection.ready()) {
        connection.put_back();
    }
}
