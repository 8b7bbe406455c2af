//! Compression of PHP's responses.
//!
//! Invariants
//! - Flushed output reaches the client: whenever PHP pauses, everything compressed so far is sent.
//! - A response that PHP has encoded, ranged or marked `no-transform` is passed on unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_compression::Level;
use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZstdEncoder};
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::io::AsyncWrite;

use crate::encoding::{Accepted, Coding};

/// Responses known to be smaller are not compressed.
const MIN_SIZE: u64 = 1024;

/// Output is passed on in batches of this size.
const BATCH: usize = 16 << 10;

/// Returns whether bodies of this type are worth compressing.
pub(crate) fn is_compressible(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let Some((kind, subtype)) = essence.split_once('/') else { return false };
    if kind.eq_ignore_ascii_case("text") {
        return true;
    }
    let subtype = subtype.to_ascii_lowercase();
    match kind.to_ascii_lowercase().as_str() {
        "application" => {
            subtype.ends_with("+json")
                || subtype.ends_with("+xml")
                || subtype.ends_with("+text")
                || matches!(
                    subtype.as_str(),
                    "json"
                        | "javascript"
                        | "x-javascript"
                        | "ecmascript"
                        | "xml"
                        | "wasm"
                        | "x-ndjson"
                        | "manifest+json"
                        | "vnd.ms-fontobject"
                        | "x-sh"
                        | "graphql"
                        | "sql"
                        | "rtf"
                )
        }
        "image" => matches!(subtype.as_str(), "svg+xml" | "bmp" | "x-icon" | "vnd.microsoft.icon"),
        "font" => matches!(subtype.as_str(), "ttf" | "otf" | "collection"),
        _ => false,
    }
}

/// Selects a coding for a response of PHP and adapts its head. `None` means to pass it on unchanged.
pub(crate) fn choose(
    accept_encoding: Option<&HeaderValue>,
    answer: &mut Parts,
    size: Option<u64>,
) -> Option<Coding> {
    let headers = &answer.headers;
    let fits = answer.status != StatusCode::PARTIAL_CONTENT
        && !headers.contains_key(header::CONTENT_ENCODING)
        && !headers.contains_key(header::CONTENT_RANGE)
        && size.is_none_or(|size| size >= MIN_SIZE)
        && headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(is_compressible)
        && !headers.get_all(header::CACHE_CONTROL).iter().any(|value| {
            value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("no-transform"))
        });
    if !fits {
        return None;
    }
    add_vary(&mut answer.headers);
    let coding = Accepted::of(accept_encoding)
        .ranked([Coding::Zstd, Coding::Brotli, Coding::Gzip])
        .next()?;
    let headers = &mut answer.headers;
    headers.insert(header::CONTENT_ENCODING, coding.value());
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::ACCEPT_RANGES);
    // The digest of RFC 1864 belongs to the uncompressed bytes.
    headers.remove("content-md5");
    if let Some(etag) = headers.get(header::ETAG)
        && etag.as_bytes().starts_with(b"\"")
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat())
    {
        headers.insert(header::ETAG, weak);
    }
    Some(coding)
}

fn add_vary(headers: &mut HeaderMap) {
    let has = headers.get_all(header::VARY).iter().any(|value| {
        value.to_str().is_ok_and(|text| {
            text.split(',')
                .map(str::trim)
                .any(|name| name == "*" || name.eq_ignore_ascii_case("accept-encoding"))
        })
    });
    if !has {
        headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
}

/// Compresses a body chunk by chunk in memory.
pub(crate) struct Encoder {
    stream: Stream,
    /// Bytes were written since the last flush.
    unflushed: bool,
}

// Levels for responses compressed while a client waits: zstd 3, brotli 4 and gzip 5 take 2 to 6 ns a byte.
enum Stream {
    Zstd(Box<ZstdEncoder<Vec<u8>>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Gzip(Box<GzipEncoder<Vec<u8>>>),
}

impl Encoder {
    pub(crate) fn new(coding: Coding) -> Self {
        let stream = match coding {
            Coding::Zstd => {
                Stream::Zstd(Box::new(ZstdEncoder::with_quality(Vec::new(), Level::Precise(3))))
            }
            Coding::Brotli => {
                Stream::Brotli(Box::new(BrotliEncoder::with_quality(Vec::new(), Level::Precise(4))))
            }
            Coding::Gzip => {
                Stream::Gzip(Box::new(GzipEncoder::with_quality(Vec::new(), Level::Precise(5))))
            }
        };
        Self { stream, unflushed: false }
    }

    /// Compresses a whole body.
    pub(crate) fn whole(coding: Coding, body: &[u8]) -> io::Result<Bytes> {
        let mut encoder = Self::new(coding);
        let mut coded = bytes::BytesMut::new();
        coded.extend(encoder.write(body)?.into_iter().flatten());
        coded.extend(encoder.finish()?.into_iter().flatten());
        Ok(coded.freeze())
    }

    /// Compresses a chunk; returns output once a batch is complete.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<Option<Bytes>> {
        self.unflushed |= !bytes.is_empty();
        while !bytes.is_empty() {
            let taken = self.drive(|stream, cx| Pin::new(stream).poll_write(cx, bytes))?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(if self.output().len() >= BATCH { self.take() } else { None })
    }

    /// Returns all output for the bytes written so far.
    pub(crate) fn flush(&mut self) -> io::Result<Option<Bytes>> {
        if self.unflushed {
            self.unflushed = false;
            self.drive(|stream, cx| Pin::new(stream).poll_flush(cx))?;
        }
        Ok(self.take())
    }

    /// Returns the end of the coded stream.
    pub(crate) fn finish(&mut self) -> io::Result<Option<Bytes>> {
        self.drive(|stream, cx| Pin::new(stream).poll_shutdown(cx))?;
        Ok(self.take())
    }

    fn drive<T>(
        &mut self,
        step: impl FnOnce(&mut (dyn AsyncWrite + Unpin), &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let stream: &mut (dyn AsyncWrite + Unpin) = match &mut self.stream {
            Stream::Zstd(stream) => &mut **stream,
            Stream::Brotli(stream) => &mut **stream,
            Stream::Gzip(stream) => &mut **stream,
        };
        match step(stream, &mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(io::Error::other("memory is always ready to be written")),
        }
    }

    fn output(&mut self) -> &mut Vec<u8> {
        match &mut self.stream {
            Stream::Zstd(stream) => stream.get_mut(),
            Stream::Brotli(stream) => stream.get_mut(),
            Stream::Gzip(stream) => stream.get_mut(),
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let output = std::mem::take(self.output());
        (!output.is_empty()).then(|| Bytes::from(output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        request: Option<&str>,
        answer: &[(&'static str, &str)],
        size: Option<u64>,
    ) -> (Option<Coding>, HeaderMap) {
        let accept = request.map(|value| HeaderValue::from_str(value).unwrap());
        let mut response = http::Response::new(());
        for (name, value) in answer {
            response.headers_mut().append(*name, value.parse().unwrap());
        }
        let (mut parts, ()) = response.into_parts();
        let coding = choose(accept.as_ref(), &mut parts, size);
        (coding, parts.headers)
    }

    #[test]
    fn only_compressible_responses_are_compressed() {
        let takes = Some("gzip");
        let html = ("content-type", "text/html; charset=UTF-8");
        assert_eq!(chosen(takes, &[html], None).0, Some(Coding::Gzip));
        assert_eq!(chosen(takes, &[html], Some(1023)).0, None);
        assert_eq!(chosen(takes, &[("content-type", "image/png")], None).0, None);
        assert_eq!(chosen(takes, &[], None).0, None);
        assert_eq!(chosen(takes, &[html, ("content-encoding", "br")], None).0, None);
        assert_eq!(chosen(takes, &[html, ("cache-control", "public, No-Transform")], None).0, None);
        assert_eq!(chosen(takes, &[html, ("content-range", "bytes 0-1/2")], None).0, None);
    }

    #[test]
    fn the_head_describes_the_compression() {
        let (_, headers) = chosen(
            Some("br"),
            &[
                ("content-type", "application/json"),
                ("etag", "\"a\""),
                ("content-length", "4000"),
                ("vary", "Cookie"),
            ],
            Some(4000),
        );
        assert_eq!(headers["content-encoding"], "br");
        assert_eq!(headers["etag"], "W/\"a\"");
        assert!(!headers.contains_key("content-length"));
        assert_eq!(headers.get_all("vary").iter().count(), 2);
        let (coding, headers) = chosen(None, &[("content-type", "text/html")], None);
        assert_eq!(
            (coding, &headers["vary"]),
            (None, &HeaderValue::from_static("accept-encoding"))
        );
    }

    #[test]
    fn a_flush_gives_the_client_everything_so_far() {
        for coding in [Coding::Zstd, Coding::Brotli, Coding::Gzip] {
            let mut encoder = Encoder::new(coding);
            assert!(encoder.write(b"event: tick\n\n").unwrap().is_none());
            assert!(encoder.flush().unwrap().is_some_and(|bytes| bytes.len() > 4), "{coding:?}");
            assert!(encoder.flush().unwrap().is_none());
            assert!(encoder.finish().unwrap().is_some());
        }
    }
}
