//! HTTP/1.1 by hand, so that every byte is the script's.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::script::{After, Body, Fields, Reply, Step, Turn, pattern};
use super::{End, Seen, Shared, hold};

/// How long unwanted bytes are still read, so that closing does not discard the answer.
const LINGER: Duration = Duration::from_secs(2);

/// Serves one connection.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    number: usize,
    shared: &Arc<Shared>,
) -> End {
    let mut wire = Wire { stream, received: Vec::new() };
    // The client has closed the connection: there is nothing to report.
    wire.serve(number, shared).await.unwrap_or(End::Close)
}

struct Wire<S> {
    stream: S,
    received: Vec<u8>,
}

/// How a request's body is framed.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length(u64),
    Chunked,
}

/// What is left of a body.
struct Incoming {
    framing: Framing,
    over: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    async fn serve(&mut self, connection: usize, shared: &Arc<Shared>) -> io::Result<End> {
        let mut phase = shared.phase.clone();
        // A connection that is to close while it answers closes after that.
        let closings = phase.borrow().closings;
        let mut dying = false;
        loop {
            let head = tokio::select! {
                biased;
                head = self.head() => head?,
                _ = phase.wait_for(|phase| phase.over || phase.closings != closings) => return Ok(End::Close),
            };
            let Some(head) = head else { return Ok(End::Close) };
            let Some(seen) = parsed(&head, connection) else {
                self.send(
                    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                )
                .await?;
                return Ok(End::Close);
            };
            let framing = framing(&seen);
            let over = matches!(framing, Framing::Length(0));
            let expects = seen
                .field("expect")
                .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
            let closes = seen.fields.iter().any(|(name, value)| {
                name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close")
            });
            let head_only = seen.method == "HEAD";
            let (number, turn) = shared.saw(seen);
            let mut body = Incoming { framing, over };
            if over {
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
                    if expects && !body.over && !reply.early {
                        self.send(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                    }
                    let after = reply.after;
                    let close = after == After::Close || closes || reply.early;
                    self.reply(reply, &mut body, number, shared, close, head_only).await?;
                    if !body.over {
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
        body: &mut Incoming,
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
        incoming: &mut Incoming,
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
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
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

    /// The next head without its end; `None` when the client has closed before one.
    async fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                return Ok(Some(self.received.drain(..end + 4).take(end).collect()));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// The next piece of a body; `None` at its end.
    async fn piece(
        &mut self,
        body: &mut Incoming,
        number: usize,
        shared: &Shared,
    ) -> io::Result<Option<Vec<u8>>> {
        if body.over {
            return Ok(None);
        }
        let piece = match &mut body.framing {
            Framing::Length(left) => {
                if self.received.is_empty() && !self.more().await? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(self.received.len());
                *left -= length as u64;
                body.over = *left == 0;
                let rest = self.received.split_off(length);
                std::mem::replace(&mut self.received, rest)
            }
            Framing::Chunked => {
                let line = self.line().await?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
                if size == 0 {
                    body.over = true;
                    loop {
                        let line = self.line().await?;
                        let Some((name, value)) = line.split_once(':') else { break };
                        let trailer = (name.to_owned(), value.trim().to_owned());
                        shared.update(number, |seen| seen.trailers.push(trailer));
                    }
                    Vec::new()
                } else {
                    while self.received.len() < size + 2 {
                        if !self.more().await? {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                    }
                    self.received.drain(..size + 2).take(size).collect()
                }
            }
        };
        shared.body(number, &piece);
        if body.over {
            shared.update(number, |seen| seen.complete = true);
            if piece.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(piece))
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).take(end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        self.received.reserve(16 << 10);
        Ok(self.stream.read_buf(&mut self.received).await? > 0)
    }
}

fn parsed(head: &[u8], connection: usize) -> Option<Seen> {
    // Bytes above 127 are one character each, as in no encoding.
    let head: String = head.iter().map(|byte| char::from(*byte)).collect();
    let mut lines = head.split("\r\n");
    let mut start = lines.next()?.split(' ');
    let (method, target, version) = (start.next()?, start.next()?, start.next()?);
    if !version.starts_with("HTTP/1.") {
        return None;
    }
    let fields: Fields = lines
        .map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().to_owned()))
        })
        .collect::<Option<_>>()?;
    let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let authority = host.map(|(_, value)| value.clone()).unwrap_or_default();
    Some(Seen {
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
    })
}

fn framing(seen: &Seen) -> Framing {
    if seen.field("transfer-encoding").is_some() {
        return Framing::Chunked;
    }
    let length = seen.field("content-length").and_then(|length| length.parse().ok());
    Framing::Length(length.unwrap_or(0))
}

fn head_bytes(status: u16, fields: &Fields) -> Vec<u8> {
    let reason = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Status");
    let mut head = format!("HTTP/1.1 {status} {reason}\r\n").into_bytes();
    push_fields(&mut head, fields);
    head
}

fn push_fields(out: &mut Vec<u8>, fields: &Fields) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
