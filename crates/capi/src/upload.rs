//! The body of a request, from memory, a file or the caller's source.
//!
//! Invariants
//! - At most [`PIECE`] bytes of a file or a source are read ahead of the connection.
//! - A body with a stated length has that length, or the request fails.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use egress::CallBody;
use futures_util::stream;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, StreamBody};
use tokio::io::AsyncReadExt;

use crate::calls::{Flow, Seen, Source};
use crate::error::{Failure, Kind};
use crate::gate::Gate;
use crate::in_flight::InFlight;
use crate::progress::Track;
use crate::request::Payload;

/// How much is read at once.
const PIECE: usize = 32 << 10;
/// How much of memory is passed on at once.
const SLICE: usize = 64 << 10;

/// A body and its length; `None`: unknown.
pub(crate) struct Upload {
    pub(crate) body: CallBody,
    pub(crate) length: Option<u64>,
}

/// No body.
pub(crate) fn empty() -> Upload {
    Upload { body: Empty::new().map_err(|never| match never {}).boxed_unsync(), length: Some(0) }
}

enum From {
    File(tokio::fs::File),
    Source(Source),
}

struct Sending {
    from: From,
    in_flight: Arc<InFlight>,
    track: Arc<Track>,
    /// The remaining bytes, if the length was stated.
    left: Option<u64>,
    trailers: Option<HeaderMap>,
    over: bool,
    paused: bool,
    /// False once another try has the body.
    reading: Arc<AtomicBool>,
}

/// The body of a request, from its beginning.
pub(crate) async fn body(
    payload: &Payload,
    trailers: &HeaderMap,
    in_flight: &Arc<InFlight>,
    track: &Arc<Track>,
    reading: Arc<AtomicBool>,
) -> Result<Upload, Failure> {
    let source = |why: &dyn std::fmt::Display| {
        Failure::new(Kind::Source, format!("The body cannot be read: {why}"))
    };
    let (from, length) = match payload {
        Payload::None => return Ok(empty()),
        Payload::Bytes(bytes) => {
            let length = Some(bytes.len() as u64);
            track.to_send(length);
            // Trailers follow a body in chunks alone.
            let trailers = (!trailers.is_empty()).then(|| trailers.clone());
            let length = length.filter(|_| trailers.is_none());
            let body = Slices { rest: bytes.clone(), trailers }.boxed_unsync();
            return Ok(Upload { body: passing(body, in_flight, track, &reading), length });
        }
        Payload::File(path) => {
            let (file, length) = open(path.clone()).await.map_err(|error| source(&error))?;
            (From::File(file), Some(length))
        }
        Payload::Source(of_caller) => (From::Source(*of_caller), of_caller.length),
    };
    let trailers = (!trailers.is_empty()).then(|| trailers.clone());
    track.to_send(length);
    let sending = Sending {
        from,
        in_flight: Arc::clone(in_flight),
        track: Arc::clone(track),
        left: length,
        over: length == Some(0),
        paused: false,
        reading: Arc::clone(&reading),
        trailers: trailers.clone(),
    };
    let body = StreamBody::new(stream::unfold(sending, next)).boxed_unsync();
    let body = passing(body, in_flight, track, &reading);
    Ok(Upload { body, length: length.filter(|_| trailers.is_none()) })
}

/// A body in memory, slice by slice: a connection takes a slice as a whole, and a taken slice counts as sent.
struct Slices {
    rest: Bytes,
    trailers: Option<HeaderMap>,
}

impl Body for Slices {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let size = self.rest.len().min(SLICE);
        let frame = match size {
            0 => self.trailers.take().map(Frame::trailers),
            _ => Some(Frame::data(self.rest.split_to(size))),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.trailers.is_none()
    }
}

/// Passes the gate, and is counted behind it.
fn passing(
    body: CallBody,
    in_flight: &Arc<InFlight>,
    track: &Arc<Track>,
    reading: &Arc<AtomicBool>,
) -> CallBody {
    let rate = in_flight.spec.settings.send_rate;
    let body = match Gate::new(rate, Seen::DataOut, in_flight, track, Some(reading)) {
        Some(gate) => gate.through(body),
        None => body,
    };
    let (runtime, track, reading) = (in_flight.runtime(), Arc::clone(track), Arc::clone(reading));
    let counted = body.map_frame(move |frame| {
        let sent = frame.data_ref().map_or(0, Bytes::len);
        // Data written after an early answer do not belong to the next try.
        if reading.load(Relaxed) {
            track.sent(sent);
        }
        if let Some(runtime) = &runtime {
            runtime.numbers.sent.fetch_add(sent as u64, Relaxed);
        }
        frame
    });
    counted.boxed_unsync()
}

async fn open(path: PathBuf) -> io::Result<(tokio::fs::File, u64)> {
    let file = tokio::fs::File::open(path).await?;
    let facts = file.metadata().await?;
    if !facts.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    Ok((file, facts.len()))
}

async fn next(mut sending: Sending) -> Option<(io::Result<Frame<Bytes>>, Sending)> {
    if sending.over {
        let trailers = sending.trailers.take()?;
        return Some((Ok(Frame::trailers(trailers)), sending));
    }
    let piece = piece(&mut sending).await;
    let piece = piece.and_then(|piece| {
        let Some(left) = sending.left else { return Ok(piece) };
        match left.checked_sub(piece.len() as u64) {
            Some(0) => sending.over = true,
            Some(_) if sending.over => return Err(io::Error::other("it is shorter than was said")),
            Some(_) => {}
            None => return Err(io::Error::other("it is longer than was said")),
        }
        sending.left = Some(left - piece.len() as u64);
        Ok(piece)
    });
    match piece {
        Ok(piece) if piece.is_empty() => {
            let trailers = sending.trailers.take()?;
            Some((Ok(Frame::trailers(trailers)), sending))
        }
        Ok(piece) => Some((Ok(Frame::data(piece)), sending)),
        Err(error) => {
            if sending.reading.load(Relaxed) {
                sending.track.fail(&error);
            }
            sending.over = true;
            sending.trailers = None;
            Some((Err(error), sending))
        }
    }
}

/// Returns the next piece; an empty one, or the last, sets `over`.
async fn piece(sending: &mut Sending) -> io::Result<Bytes> {
    match &mut sending.from {
        From::File(file) => {
            let mut piece = Vec::with_capacity(PIECE);
            let room = sending.left.unwrap_or(u64::MAX).min(PIECE as u64);
            (&mut *file).take(room).read_to_end(&mut piece).await?;
            sending.over = piece.is_empty();
            Ok(piece.into())
        }
        From::Source(source) => {
            let source = *source;
            // While the source is called or has no data, the program is the reason for the pause.
            let track = Arc::clone(&sending.track);
            let _held = track.hold();
            loop {
                let in_flight = Arc::clone(&sending.in_flight);
                if std::mem::take(&mut sending.paused)
                    && let Some(pauses) = in_flight.pauses()
                {
                    pauses.up.wait().await;
                }
                if !sending.reading.load(Relaxed) {
                    return Err(io::Error::other("another try reads it"));
                }
                sending.track.begin();
                let runtime =
                    in_flight.runtime().ok_or_else(|| io::Error::other("there is no engine"))?;
                let threaded = in_flight.spec.threaded;
                let caller = Arc::clone(&in_flight);
                let asked = runtime.callbacks.ask(threaded, move || {
                    let mut buffer = vec![0; PIECE];
                    let (flow, written) = source.call(caller.request().as_ref(), &mut buffer);
                    buffer.truncate(written);
                    (flow, Bytes::from(buffer))
                });
                let (flow, piece) =
                    asked.await.ok_or_else(|| io::Error::other("the engine ends"))?;
                match flow {
                    Flow::Abort => {
                        in_flight.abort();
                        return Err(io::Error::other("the source broke off"));
                    }
                    Flow::End => {
                        sending.over = true;
                        return Ok(piece);
                    }
                    Flow::Continue | Flow::Pause => {
                        sending.paused = piece.is_empty() || flow == Flow::Pause;
                        if !piece.is_empty() {
                            return Ok(piece);
                        }
                    }
                }
            }
        }
    }
}
