//! A request for a program that must know the body's length in advance (RFC 3875 section 4.1.2).
//!
//! Invariants
//! - A body of unknown length is read to its end first: small ones into memory, others into a file without a name.
//! - Consumed parts of the body are never returned again: [`Body::is_whole`] says whether it can still be sent.

use std::borrow::Cow;
use std::io::SeekFrom;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::context::RequestContext;
use crate::exchange::{BoxBody, BoxError};
use crate::variables::{self, Sink};

/// Maximum number of bytes of a body of unknown length that are kept in memory.
const IN_MEMORY: usize = 256 * 1024;
/// Number of bytes read from a file at once.
const PIECE: usize = 64 * 1024;

/// The request for a worker.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) parts: Parts,
    pub(crate) context: RequestContext,
    pub(crate) body: Body,
    /// Length of the body in bytes; `None` if there is none.
    pub(crate) length: Option<u64>,
}

impl Request {
    /// Creates a request; `length` is what the client has declared. `folder` takes a large body of unknown length.
    pub(crate) async fn new(
        parts: Parts,
        context: RequestContext,
        body: Option<BoxBody>,
        length: Option<u64>,
        folder: &Path,
    ) -> Result<Self, BoxError> {
        let (body, length) = match (body, length) {
            (None, _) => (Body::whole(Source::Empty), None),
            (Some(body), Some(length)) => (Body::whole(Source::Live(body)), Some(length)),
            (Some(body), None) => {
                let (source, length) = spool(body, folder).await?;
                (Body::whole(source), Some(length))
            }
        };
        Ok(Self { parts, context, body, length })
    }

    /// Writes the CGI variables.
    pub(crate) fn write_variables(&self, sink: &mut impl Sink) {
        let length = self.content_length().unwrap_or_default();
        variables::write_variables(sink, &self.parts, &self.context, length.as_bytes());
    }

    /// Returns the text of `CONTENT_LENGTH`. A client without a body may still have sent the field.
    pub(crate) fn content_length(&self) -> Option<Cow<'_, str>> {
        match self.length {
            Some(length) => Some(length.to_string().into()),
            None => self.parts.headers.get(CONTENT_LENGTH)?.to_str().ok().map(Cow::from),
        }
    }
}

/// The body of a request.
#[derive(Debug)]
pub(crate) struct Body {
    source: Source,
    whole: bool,
}

enum Source {
    Empty,
    Live(BoxBody),
    Memory(Bytes),
    File(tokio::fs::File),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Live(_) => "Live",
            Self::Memory(_) => "Memory",
            Self::File(_) => "File",
        })
    }
}

impl Body {
    fn whole(source: Source) -> Self {
        Self { source, whole: true }
    }

    /// Returns whether nothing of it was consumed.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the next piece, never empty; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        self.whole &= matches!(self.source, Source::Empty);
        let next = match &mut self.source {
            Source::Empty => None,
            Source::Live(body) => next_piece(body).await,
            Source::Memory(bytes) => Some(Ok(std::mem::take(bytes))),
            Source::File(file) => {
                let mut piece = BytesMut::with_capacity(PIECE);
                match file.read_buf(&mut piece).await {
                    Ok(0) => None,
                    Ok(_) => Some(Ok(piece.freeze())),
                    Err(error) => Some(Err(error.into())),
                }
            }
        };
        if matches!(self.source, Source::Memory(_)) || !matches!(next, Some(Ok(_))) {
            self.source = Source::Empty;
        }
        next
    }
}

async fn next_piece(body: &mut BoxBody) -> Option<Result<Bytes, BoxError>> {
    loop {
        match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            // CGI has no trailers.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if !data.is_empty() => return Some(Ok(data)),
                _ => {}
            },
            Some(Err(error)) => return Some(Err(error)),
            None => return None,
        }
    }
}

/// Reads a body to its end.
async fn spool(mut body: BoxBody, folder: &Path) -> Result<(Source, u64), BoxError> {
    let mut memory = BytesMut::new();
    while let Some(piece) = next_piece(&mut body).await.transpose()? {
        memory.extend_from_slice(&piece);
        if memory.len() > IN_MEMORY {
            return spool_file(body, memory, folder).await;
        }
    }
    let length = memory.len() as u64;
    let source = if memory.is_empty() { Source::Empty } else { Source::Memory(memory.freeze()) };
    Ok((source, length))
}

async fn spool_file(
    mut body: BoxBody,
    begun: BytesMut,
    folder: &Path,
) -> Result<(Source, u64), BoxError> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = tokio::fs::File::from_std(file.into());
    let mut length = begun.len() as u64;
    file.write_all(&begun).await?;
    drop(begun);
    while let Some(piece) = next_piece(&mut body).await.transpose()? {
        length += piece.len() as u64;
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    file.seek(SeekFrom::Start(0)).await?;
    Ok((Source::File(file), length))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    /// A body of this many pieces of 10,000 bytes.
    struct Pieces(usize);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let left = self.0.checked_sub(1);
            Poll::Ready(left.map(|left| {
                self.0 = left;
                let byte = b'a' + u8::try_from(left % 26).unwrap();
                Ok(Frame::data(Bytes::from(vec![byte; 10_000])))
            }))
        }
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_is_the_same_afterwards_and_its_length_known() {
        let folder = std::env::temp_dir();
        for pieces in [0, 1, 25, 26, 27, 300] {
            let (source, length) = spool(Box::pin(Pieces(pieces)), &folder).await.unwrap();
            let in_file = matches!(source, Source::File(_));
            assert_eq!((length, in_file), (pieces as u64 * 10_000, pieces * 10_000 > IN_MEMORY));
            let mut body = Body::whole(source);
            let mut all = Vec::new();
            while let Some(piece) = body.next().await {
                all.extend_from_slice(&piece.unwrap());
            }
            let mut expected = Vec::new();
            let mut same: BoxBody = Box::pin(Pieces(pieces));
            while let Some(piece) = next_piece(&mut same).await {
                expected.extend_from_slice(&piece.unwrap());
            }
            assert!(all == expected, "{pieces} pieces");
            assert_eq!(body.is_whole(), pieces == 0);
        }
    }
}
