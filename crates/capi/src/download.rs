//! The body of a response: decompressed, then collected or passed on piece by piece.
//!
//! Invariants
//! - A collected body never grows beyond its limit, however small it was on the wire.
//! - A piece that is passed on is taken before the next one is read.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{
    BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use bytes::{Bytes, BytesMut};
use egress::{AnswerBody, CallError};
use futures_util::stream;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Method};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio_util::io::StreamReader;

use crate::calls::{Flow, Seen};
use crate::error::{Failure, Kind};
use crate::gate::Gate;
use crate::in_flight::InFlight;
use crate::io::Io;
use crate::progress::Track;
use crate::response::Response;
use crate::run::aborted;
use crate::stats::Numbers;
use crate::sys::lock;

/// How much is decompressed at once.
const PIECE: usize = 32 << 10;
/// How much of an unwanted body is read to keep its connection.
const SMALL: u64 = 16 << 10;
/// The most encodings of one body.
const LAYERS: usize = 4;

/// Reads the body of the final response, whose head is in `so_far`.
pub(crate) async fn take(
    io: &Arc<Io>,
    in_flight: &Arc<InFlight>,
    so_far: &Mutex<Response>,
    track: &Arc<Track>,
    mut body: AnswerBody,
    asked_for_compression: bool,
    method: &Method,
) -> Result<(), Failure> {
    let so_far = || lock(so_far);
    let extras = in_flight.spec.extras.as_deref();
    let sink = extras.and_then(|extras| extras.sink);
    let limit = if sink.is_some() { None } else { in_flight.spec.settings.max_response_size };
    let length = body.size_hint().exact();
    let empty = body.is_end_stream() || *method == Method::HEAD;
    let encodings =
        if empty || !asked_for_compression { Vec::new() } else { encodings(&so_far().headers)? };
    track.to_receive(length.filter(|_| encodings.is_empty()));
    if let Some(head) = extras.and_then(|extras| extras.head) {
        let (response, caller) = (Arc::new(so_far().clone()), Arc::clone(in_flight));
        let threaded = in_flight.spec.threaded;
        let _held = track.hold();
        let said = io
            .runtime
            .callbacks
            .ask(threaded, move || head.call(caller.request().as_ref(), &response))
            .await;
        heed(said, in_flight, track).await?;
    }
    if empty {
        return Ok(());
    }
    let announced =
        || so_far().headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if encodings.is_empty()
        && let Some(limit) = limit
        && let Some(length) = length.or_else(announced)
        && length > limit
    {
        return Err(too_large(limit));
    }
    let rate = in_flight.spec.settings.receive_rate;
    body = match Gate::new(rate, Seen::DataIn, in_flight, track, None) {
        Some(gate) => AnswerBody::new(gate.through(body)),
        None => body,
    };
    if encodings.is_empty()
        && sink.is_none()
        && let Some(whole) = body.take_whole()
    {
        io.runtime.numbers.received.fetch_add(whole.len() as u64, Relaxed);
        track.received(whole.len());
        so_far().body = whole;
        return Ok(());
    }
    let mut taken = Taken { io, in_flight, track, sink, limit, first: None, more: BytesMut::new() };
    let trailers = if encodings.is_empty() {
        plain(&mut taken, body).await?
    } else {
        // Its length is that of the encoded body, which the caller does not see.
        if !in_flight.spec.settings.keep_encoding {
            so_far().headers.remove(CONTENT_ENCODING);
            so_far().headers.remove(CONTENT_LENGTH);
        }
        Box::pin(decoded(&mut taken, body, encodings)).await?
    };
    let collected = taken.collected();
    let mut so_far = so_far();
    so_far.body = collected;
    so_far.trailers = trailers.map(Box::new);
    Ok(())
}

/// Reads a small unwanted body, so that its connection can carry the next request.
pub(crate) async fn skip(mut body: AnswerBody) {
    const PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);

    if body.size_hint().upper().is_some_and(|size| size <= SMALL) {
        let read = async { while let Some(Ok(_)) = body.frame().await {} };
        let _in_time = tokio::time::timeout(PATIENCE, read).await.is_ok();
    }
}

fn too_large(limit: u64) -> Failure {
    Failure::new(Kind::TooLarge, format!("The body is longer than {limit} bytes"))
}

/// Applies the result of a callback.
async fn heed(said: Option<Flow>, in_flight: &Arc<InFlight>, track: &Track) -> Result<(), Failure> {
    match said {
        Some(Flow::Abort) => Err(aborted(in_flight)),
        Some(Flow::Pause) => {
            if let Some(pauses) = in_flight.pauses() {
                let _held = track.hold();
                pauses.down.wait().await;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The destination of the pieces.
struct Taken<'a> {
    io: &'a Arc<Io>,
    in_flight: &'a Arc<InFlight>,
    track: &'a Arc<Track>,
    sink: Option<crate::calls::Body>,
    limit: Option<u64>,
    /// Most bodies are one piece, which needs no copy.
    first: Option<Bytes>,
    more: BytesMut,
}

impl Taken<'_> {
    async fn take(&mut self, piece: Bytes) -> Result<(), Failure> {
        if piece.is_empty() {
            return Ok(());
        }
        self.track.received(piece.len());
        if let Some(sink) = self.sink {
            let caller = Arc::clone(self.in_flight);
            let threaded = self.in_flight.spec.threaded;
            // A callback that takes its time is not the origin's fault.
            let _held = self.track.hold();
            let said = self
                .io
                .runtime
                .callbacks
                .ask(threaded, move || sink.call(caller.request().as_ref(), &piece))
                .await;
            return heed(said, self.in_flight, self.track).await;
        }
        let before = self.first.as_ref().map_or(self.more.len(), Bytes::len);
        if let Some(limit) = self.limit
            && (before + piece.len()) as u64 > limit
        {
            return Err(too_large(limit));
        }
        if before == 0 {
            self.first = Some(piece);
            return Ok(());
        }
        if let Some(first) = self.first.take() {
            self.more.extend_from_slice(&first);
        }
        self.more.extend_from_slice(&piece);
        Ok(())
    }

    fn collected(self) -> Bytes {
        self.first.unwrap_or_else(|| self.more.freeze())
    }
}

async fn plain(taken: &mut Taken<'_>, mut body: AnswerBody) -> Result<Option<HeaderMap>, Failure> {
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(piece) => {
                taken.io.runtime.numbers.received.fetch_add(piece.len() as u64, Relaxed);
                taken.take(piece).await?;
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(trailers)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Encoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// The encodings, in the order in which they were applied.
fn encodings(headers: &HeaderMap) -> Result<Vec<Encoding>, Failure> {
    let mut found = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = value.to_str().unwrap_or("?");
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            found.push(match word.to_ascii_lowercase().as_str() {
                "identity" => continue,
                "gzip" | "x-gzip" => Encoding::Gzip,
                "deflate" => Encoding::Deflate,
                "br" => Encoding::Brotli,
                "zstd" => Encoding::Zstd,
                // The encoding was not requested: the caller gets the body unchanged.
                _ => return Ok(Vec::new()),
            });
        }
    }
    if found.len() > LAYERS {
        return Err(Failure::new(Kind::Decoding, "The body is encoded too many times"));
    }
    Ok(found)
}

/// A body that is read from within a decoder and after the decoder's end.
struct Coming {
    body: AnswerBody,
    over: bool,
    trailers: Option<HeaderMap>,
    error: Option<CallError>,
}

type Shared = Arc<Mutex<Coming>>;

impl Coming {
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        numbers: &Numbers,
    ) -> Poll<Option<io::Result<Bytes>>> {
        while !self.over {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                None => self.over = true,
                Some(Ok(Ok(piece))) => {
                    numbers.received.fetch_add(piece.len() as u64, Relaxed);
                    return Poll::Ready(Some(Ok(piece)));
                }
                Some(Ok(Err(frame))) => self.trailers = frame.into_trailers().ok(),
                Some(Err(error)) => {
                    let message = error.message.clone();
                    self.error = Some(error);
                    self.over = true;
                    return Poll::Ready(Some(Err(io::Error::other(message))));
                }
            }
        }
        Poll::Ready(None)
    }
}

async fn decoded(
    taken: &mut Taken<'_>,
    body: AnswerBody,
    encodings: Vec<Encoding>,
) -> Result<Option<HeaderMap>, Failure> {
    let coming = Coming { body, over: false, trailers: None, error: None };
    let coming: Shared = Arc::new(Mutex::new(coming));
    let (of_stream, io) = (Arc::clone(&coming), Arc::clone(taken.io));
    let pieces = stream::poll_fn(move |cx| lock(&of_stream).poll_piece(cx, &io.runtime.numbers));
    let mut reader: Reader = Box::new(StreamReader::new(pieces));
    let wrong = |error: io::Error| match lock(&coming).error.take() {
        Some(error) => error.into(),
        None => Failure::new(Kind::Decoding, format!("The body cannot be decompressed: {error}")),
    };
    // Of nothing there is nothing to undo, though it is no document of any encoding.
    if !reader.fill_buf().await.map_err(wrong)?.is_empty() {
        for encoding in encodings.into_iter().rev() {
            reader = layer(reader, encoding).await.map_err(wrong)?;
        }
        loop {
            let mut piece = BytesMut::with_capacity(PIECE);
            match reader.read_buf(&mut piece).await {
                Ok(0) => break,
                Ok(_) => taken.take(piece.freeze()).await?,
                Err(error) => return Err(wrong(error)),
            }
        }
    }
    // A decoder detects its own end. The end of the body, with its trailers, follows.
    let numbers = &taken.io.runtime.numbers;
    let mut more = 0;
    while let Some(piece) = poll_fn(|cx| lock(&coming).poll_piece(cx, numbers)).await {
        more += piece.map_err(wrong)?.len() as u64;
        if more > SMALL {
            break;
        }
    }
    let trailers = lock(&coming).trailers.take();
    Ok(trailers)
}

type Reader = Box<dyn AsyncBufRead + Send + Unpin>;

async fn layer(mut reader: Reader, encoding: Encoding) -> io::Result<Reader> {
    fn buffered(decoder: impl AsyncRead + Send + Unpin + 'static) -> Reader {
        Box::new(BufReader::with_capacity(PIECE, decoder))
    }
    Ok(match encoding {
        Encoding::Gzip => {
            let mut decoder = GzipDecoder::new(reader);
            decoder.multiple_members(true);
            buffered(decoder)
        }
        Encoding::Brotli => buffered(BrotliDecoder::new(reader)),
        Encoding::Zstd => buffered(ZstdDecoder::new(reader)),
        Encoding::Deflate => {
            // RFC 9110, 8.4.1.2: with zlib's frame. Some send it without, as browsers accept.
            let begin = reader.fill_buf().await?;
            let framed = match *begin {
                [first, second, ..] => {
                    first & 0x0f == 8 && u16::from_be_bytes([first, second]) % 31 == 0
                }
                [first] => first & 0x0f == 8,
                [] => true,
            };
            if framed {
                buffered(ZlibDecoder::new(reader))
            } else {
                buffered(DeflateDecoder::new(reader))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn encodings_are_decoded_in_order_up_to_unknown_ones() {
        use Encoding::{Brotli, Gzip, Zstd};
        for (text, expected) in [
            ("gzip", vec![Gzip]),
            ("X-GZIP, br", vec![Gzip, Brotli]),
            ("identity", vec![]),
            ("zstd,identity", vec![Zstd]),
            ("gzip, rot13", vec![]),
            ("", vec![]),
        ] {
            let headers =
                HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static(text))]);
            assert_eq!(encodings(&headers).expect("few"), expected, "{text}");
        }
        let many = HeaderMap::from_iter([(
            CONTENT_ENCODING,
            HeaderValue::from_static("gzip,gzip,gzip,gzip,gzip"),
        )]);
        assert_eq!(encodings(&many).expect_err("too many").kind, Kind::Decoding);
    }
}
