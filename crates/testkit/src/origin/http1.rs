//! HTTP/1.1 without a library, so that the script controls every byte.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http1::{Decoder, EMPTY_FIELD, Piece, put_chunk_size, put_field, put_status_line, strict_end};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::script::{After, Body, Fields, Reply, Step, Turn, pattern};
use super::{End, Seen, Shared, hold};

/// Time limit for reading unwanted bytes, so that closing does not discard the response.
const LINGER: Duration = Duration::from_secs(2);

/// Serves one connection.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    number: usize,
    shared: &Arc<Shared>,
) -> End {
    let mut wire = Wire { stream, received: BytesMut::new() };
    // The client has closed the connection: there is nothing to report.
    wire.serve(number, shared).await.unwrap_or(End::Close)
}

struct Wire<S> {
    stream: S,
    received: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    async fn serve(&mut self, connection: usize, shared: &Arc<Shared>) -> io::Result<End> {
        let mut phase = shared.phase.clone();
        // A connection that is asked to close during a response closes after it.
        let closings = phase.borrow().closings;
        let mut dying = false;
        loop {
            let head = tokio::select! {
                biased;
                head = self.head() => head?,
                _ = phase.wait_for(|phase| phase.over || phase.closings != closings) => return Ok(End::Close),
            };
            let Some(head) = head else { return Ok(End::Close) };
            let Some((seen, mut body)) = parsed(&head, connection) else {
                self.send(
                    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                )
                .await?;
                return Ok(End::Close);
            };
            let expects = seen
                .field("expect")
                .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
            let closes = seen.fields.iter().any(|(name, value)| {
                name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close")
            });
            let head_only = seen.method == "HEAD";
            let (number, turn) = shared.saw(seen);
            if body.is_over() {
                shared.update(number, |seen| seen.complete = true);
            }
            if dying {
                return Ok(End::Close);
            }
            match turn {
                Turn::Steps(steps) => return self.steps(steps, &mut body, number, shared).await,
                Turn::ResetStream(_) => return Ok(End::Reset),
                Turn::Never => {
                    hold(&mut self.stream).await;
                    return Ok(End::Close);
                }
                Turn::Reply(reply) => {
                    if expects && !body.is_over() && !reply.early {
                        self.send(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                    }
                    let after = reply.after;
                    let close = after == After::Close || closes || reply.early;
                    self.reply(reply, &mut body, number, shared, close, head_only).await?;
                    if !body.is_over() {
                        self.stream.shutdown().await?;
                        drop(tokio::time::timeout(LINGER, hold(&mut self.stream)).await);
                        return Ok(End::Close);
                    }
                    match after {
                        _ if close => return Ok(End::Close),
                        After::CloseSilently => return Ok(End::Close),
                        After::CloseAtNext => dying = true,
                        After::Keep | After::Close => {}
                    }
                }
            }
        }
    }

    async fn steps(
        &mut self,
        steps: Vec<Step>,
        body: &mut Decoder,
        number: usize,
        shared: &Shared,
    ) -> io::Result<End> {
        for step in steps {
            match step {
                Step::ReadBody => while self.piece(body, number, shared).await?.is_some() {},
                Step::Send(bytes) => self.send(&bytes).await?,
                Step::Drip(bytes, pause) => {
                    for byte in bytes {
                        tokio::time::sleep(pause).await;
                        self.send(&[byte]).await?;
                    }
                }
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Notified(notify) => notify.notified().await,
                Step::Hold => {
                    hold(&mut self.stream).await;
                    return Ok(End::Close);
                }
                Step::Close => {
                    self.stream.shutdown().await?;
                    drop(tokio::time::timeout(LINGER, hold(&mut self.stream)).await);
                    return Ok(End::Close);
                }
                Step::Reset => return Ok(End::Reset),
            }
        }
        self.stream.shutdown().await?;
        Ok(End::Close)
    }

    async fn reply(
        &mut self,
        reply: Reply,
        incoming: &mut Decoder,
        number: usize,
        shared: &Shared,
        close: bool,
        head_only: bool,
    ) -> io::Result<()> {
        let echo = matches!(reply.body, Body::Echo);
        if !reply.early && !echo {
            while self.piece(incoming, number, shared).await?.is_some() {}
        }
        if !reply.delay.is_zero() {
            tokio::time::sleep(reply.delay).await;
        }
        for (status, fields) in &reply.interim {
            self.send(&head_bytes(*status, fields)).await?;
        }
        let body = match reply.body {
            Body::Facts => Body::Bytes(shared.record().requests[number].facts()),
            other => other,
        };
        let length = match &body {
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Pattern(length) => Some(*length),
            _ => None,
        };
        let bodiless = head_only || matches!(reply.status, 204 | 304);
        let mut fields = reply.fields;
        let chunked = length.is_none() || !reply.trailers.is_empty();
        match length {
            _ if reply.status == 204 || reply.status == 304 => {}
            Some(length) if !chunked => fields.push(("Content-Length".into(), length.to_string())),
            _ => fields.push(("Transfer-Encoding".into(), "chunked".into())),
        }
        if close {
            fields.push(("Connection".into(), "close".into()));
        }
        self.send(&head_bytes(reply.status, &fields)).await?;
        if bodiless {
            return Ok(());
        }
        match body {
            Body::Bytes(bytes) => self.write_piece(&bytes, chunked, reply.pause).await?,
            Body::Pieces(pieces) => {
                for piece in pieces {
                    self.write_piece(&piece, chunked, reply.pause).await?;
                }
            }
            Body::Pattern(length) => {
                let mut at = 0;
                while at < length {
                    let piece: Vec<u8> = (at..length.min(at + (64 << 10))).map(pattern).collect();
                    at += piece.len() as u64;
                    self.write_piece(&piece, chunked, reply.pause).await?;
                }
            }
            Body::Echo => {
                while let Some(piece) = self.piece(incoming, number, shared).await? {
                    self.write_piece(&piece, chunked, reply.pause).await?;
                }
            }
            Body::Facts => unreachable!("replaced above"),
        }
        if chunked {
            let mut end = b"0\r\n".to_vec();
            push_fields(&mut end, &reply.trailers);
            self.send(&end).await?;
        }
        Ok(())
    }

    async fn write_piece(
        &mut self,
        bytes: &[u8],
        chunked: bool,
        pause: Duration,
    ) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        if chunked {
            let mut chunk = Vec::with_capacity(bytes.len() + 20);
            put_chunk_size(&mut chunk, bytes.len());
            chunk.extend_from_slice(bytes);
            chunk.extend_from_slice(b"\r\n");
            self.send(&chunk).await
        } else {
            self.send(bytes).await
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Reads the next head; `None` if the client has closed before one.
    async fn head(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(end) = strict_end(&self.received, 0).map_err(io::Error::other)? {
                return Ok(Some(self.received.split_to(end).freeze()));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Reads the next piece of a body; `None` at its end.
    async fn piece(
        &mut self,
        body: &mut Decoder,
        number: usize,
        shared: &Shared,
    ) -> io::Result<Option<Bytes>> {
        if body.is_over() {
            return Ok(None);
        }
        let piece = loop {
            match body.take(&mut self.received).map_err(io::Error::other)? {
                Piece::Data(data) => break Some(data),
                Piece::End => break None,
                Piece::Trailers(trailers) => {
                    let text = |value: &http::HeaderValue| latin1(value.as_bytes());
                    let list = trailers.iter().map(|(name, value)| (name.to_string(), text(value)));
                    shared.update(number, |seen| seen.trailers.extend(list));
                    break None;
                }
                Piece::More if self.more().await? => {}
                Piece::More => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        };
        if let Some(piece) = &piece {
            shared.body(number, piece);
        }
        if body.is_over() {
            shared.update(number, |seen| seen.complete = true);
        }
        Ok(piece)
    }

    async fn more(&mut self) -> io::Result<bool> {
        self.received.reserve(16 << 10);
        Ok(self.stream.read_buf(&mut self.received).await? > 0)
    }
}

/// Maps each byte to one character (ISO 8859-1).
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn parsed(head: &[u8], connection: usize) -> Option<(Seen, Decoder)> {
    let mut fields = vec![EMPTY_FIELD; 5000];
    let request = http1::parse(head, &mut fields).ok()??;
    let body = Decoder::new(request.framing()?);
    let (method, target) = (request.method, request.target);
    let fields: Fields =
        request.fields.iter().map(|field| (field.name.to_owned(), latin1(field.value))).collect();
    let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let authority = host.map(|(_, value)| value.clone()).unwrap_or_default();
    let seen = Seen {
        number: 0,
        connection,
        method: method.into(),
        target: target.into(),
        authority,
        version: 1,
        fields,
        body: Vec::new(),
        length: 0,
        complete: false,
        trailers: Vec::new(),
    };
    Some((seen, body))
}

fn head_bytes(status: u16, fields: &Fields) -> Vec<u8> {
    let reason = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Status");
    let mut head = Vec::new();
    put_status_line(&mut head, &status.to_string(), reason);
    push_fields(&mut head, fields);
    head
}

fn push_fields(out: &mut Vec<u8>, fields: &Fields) {
    for (name, value) in fields {
        put_field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}
