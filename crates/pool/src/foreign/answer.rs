//! Passes a response from the task that reads it to the front that sends it.
//!
//! Invariants
//! - The task is at most [`PIECES`] pieces ahead of the client: back-pressure is this channel, then the program's
//!   socket or pipe.
//! - A response that is dropped without [`Answer::end`] is aborted.
//! - Dropping the [`Body`] (or the dispatch before there is one) tells the task that the client is gone.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::head::{BadHead, Dialect, HeadReader};
use crate::exchange::Failure;
use crate::worker::Head;

/// Capacity of the channel.
const PIECES: usize = 2;

/// A response whose head has arrived.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) head: Head,
    /// The whole body, if it arrived with the head.
    pub(crate) whole: Option<Bytes>,
}

/// The sending side of a response.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The head parser, until the head is complete.
    reader: Option<HeadReader>,
    /// The head, until it is sent.
    head: Option<Head>,
    tell: Option<oneshot::Sender<Result<Started, Failure>>>,
    /// Parts of the body that wait for [`Answer::flush`].
    pieces: Vec<Bytes>,
    /// The body's sender, until the end of the response.
    body: Option<mpsc::Sender<Bytes>>,
    end: Option<oneshot::Sender<Result<(), Failure>>>,
}

/// The receiving side, for the dispatch.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) started: oneshot::Receiver<Result<Started, Failure>>,
    pub(crate) body: Body,
}

/// The body of a response in progress.
#[derive(Debug)]
pub(crate) struct Body {
    pieces: mpsc::Receiver<Bytes>,
    end: oneshot::Receiver<Result<(), Failure>>,
    over: bool,
    _left: DropGuard,
}

/// Returns both sides, and a token that is cancelled when the client is gone.
pub(crate) fn answer(dialect: Dialect) -> (Answer, Waiting, CancellationToken) {
    let (tell, started) = oneshot::channel();
    let (body, pieces) = mpsc::channel(PIECES);
    let (end, ended) = oneshot::channel();
    let left = CancellationToken::new();
    let answer = Answer {
        reader: Some(HeadReader::new(dialect)),
        head: None,
        tell: Some(tell),
        pieces: Vec::new(),
        body: Some(body),
        end: Some(end),
    };
    let body = Body { pieces, end: ended, over: false, _left: left.clone().drop_guard() };
    (answer, Waiting { started, body }, left)
}

impl Answer {
    /// Adds the next bytes of the response.
    pub(crate) fn push(&mut self, data: Bytes) -> Result<(), BadHead> {
        let Some(reader) = &mut self.reader else {
            self.pieces.push(data);
            return Ok(());
        };
        if let Some((head, rest)) = reader.feed(&data)? {
            self.reader = None;
            self.head = Some(head);
            if !rest.is_empty() {
                self.pieces.push(rest);
            }
        }
        Ok(())
    }

    /// Sends what has arrived so far. Waits while the client has not read the previous pieces.
    pub(crate) async fn flush(&mut self) {
        if self.reader.is_some() {
            return;
        }
        if let (Some(head), Some(tell)) = (self.head.take(), self.tell.take()) {
            // The receiver is gone; the task is notified by the token.
            drop(tell.send(Ok(Started { head, whole: None })));
        }
        let Some(body) = &self.body else { return };
        for piece in self.pieces.drain(..) {
            if body.send(piece).await.is_err() {
                return;
            }
        }
    }

    /// Ends a complete response.
    pub(crate) async fn end(&mut self) -> Result<(), BadHead> {
        if self.reader.is_some() {
            return Err(BadHead::Incomplete);
        }
        if let (Some(head), Some(tell)) = (self.head.take(), self.tell.take()) {
            let whole = match &mut *self.pieces {
                [] => Bytes::new(),
                [one] => std::mem::take(one),
                several => {
                    let mut whole = BytesMut::new();
                    for piece in several {
                        whole.extend_from_slice(piece);
                    }
                    whole.freeze()
                }
            };
            drop(tell.send(Ok(Started { head, whole: Some(whole) })));
            return Ok(());
        }
        self.flush().await;
        self.body = None;
        if let Some(end) = self.end.take() {
            drop(end.send(Ok(())));
        }
        Ok(())
    }

    /// Aborts the response.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.body = None;
        match (self.tell.take(), self.end.take()) {
            (Some(tell), _) => drop(tell.send(Err(failure))),
            (None, Some(end)) => drop(end.send(Err(failure))),
            (None, None) => {}
        }
    }
}

impl Body {
    /// Returns the next piece; `None` when the response is complete. Cancel safe.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Some(piece) = ready!(self.pieces.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(piece)));
        }
        let end = ready!(Pin::new(&mut self.end).poll(cx));
        self.over = true;
        Poll::Ready(match end {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(Err(failure)),
            Err(_dropped) => Some(Err(Failure::Died { pid: 0, how: "its task ended".into() })),
        })
    }
}
