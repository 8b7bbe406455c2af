//! HTTP/2 with the crate `h2`: the streams of a connection run concurrently, each by its script.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use super::script::{Body, Fields, Reply, Turn, pattern};
use super::{End, Seen, Shared, hold};

/// Serves one connection. If `refuse` is true, it behaves as [`super::Greeting::GoAwayUnprocessed`].
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    number: usize,
    shared: &Arc<Shared>,
    refuse: bool,
) -> End {
    if refuse {
        // The client has disconnected: there is nothing to report.
        drop(go_away(stream, number, shared).await);
        return End::Close;
    }
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(shared.streams).initial_window_size(1 << 20);
    builder.initial_connection_window_size(1 << 22);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return End::Close };
    let mut streams = JoinSet::new();
    let mut phase = shared.phase.clone();
    loop {
        tokio::select! {
            _ = phase.wait_for(|phase| phase.over) => return End::Close,
            Some(_) = streams.join_next() => {}
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else { return End::Close };
                let shared = Arc::clone(shared);
                // The order of streams must not depend on the scheduler.
                let (body, seen) = seen(request, number);
                let (request, turn) = shared.saw(seen);
                streams.spawn(async move {
                    // The client has reset the stream: there is nothing to report.
                    drop(exchange(body, respond, request, turn, &shared).await);
                });
            }
        }
    }
}

fn seen(request: Request<RecvStream>, connection: usize) -> (RecvStream, Seen) {
    let (head, body) = request.into_parts();
    let fields = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let target = head.uri.path_and_query().map(|target| target.as_str().to_owned());
    let authority = head.uri.authority().map(|authority| authority.as_str().to_owned());
    let seen = Seen {
        number: 0,
        connection,
        method: head.method.as_str().to_owned(),
        target: target.unwrap_or_default(),
        authority: authority.unwrap_or_default(),
        version: 2,
        fields: fields.collect(),
        body: Vec::new(),
        length: 0,
        complete: false,
        trailers: Vec::new(),
    };
    (body, seen)
}

async fn exchange(
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    number: usize,
    turn: Turn,
    shared: &Shared,
) -> Result<(), h2::Error> {
    match turn {
        Turn::Reply(reply) => answer(reply, &mut body, &mut respond, number, shared).await,
        Turn::ResetStream(code) => {
            respond.send_reset(Reason::from(code));
            Ok(())
        }
        // Raw HTTP/1.1 bytes have no meaning here.
        Turn::Steps(_) => {
            respond.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
        Turn::Never => {
            poll_fn(|cx| respond.poll_reset(cx)).await?;
            Ok(())
        }
    }
}

async fn answer(
    reply: Reply,
    incoming: &mut RecvStream,
    respond: &mut SendResponse<Bytes>,
    number: usize,
    shared: &Shared,
) -> Result<(), h2::Error> {
    let echo = matches!(reply.body, Body::Echo);
    if !reply.early && !echo {
        while piece(incoming, number, shared).await?.is_some() {}
    }
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    for (status, fields) in &reply.interim {
        let mut interim = Response::new(());
        *interim.status_mut() = StatusCode::from_u16(*status).unwrap_or(StatusCode::EARLY_HINTS);
        *interim.headers_mut() = header_map(fields);
        respond.send_informational(interim)?;
    }
    let body = match reply.body {
        Body::Facts => Body::Bytes(shared.record().requests[number].facts()),
        other => other,
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    *response.headers_mut() = header_map(&reply.fields);
    let length = match &body {
        Body::Bytes(bytes) => Some(bytes.len() as u64),
        Body::Pattern(length) => Some(*length),
        _ => None,
    };
    if let Some(length) = length.filter(|_| !matches!(reply.status, 204 | 304)) {
        response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    }
    let head_only = shared.record().requests[number].method == "HEAD";
    let bodiless = head_only || matches!(reply.status, 204 | 304);
    let mut send = respond.send_response(response, bodiless)?;
    if bodiless {
        return Ok(());
    }
    match body {
        Body::Bytes(bytes) => write(&mut send, bytes.into(), reply.pause).await?,
        Body::Pieces(pieces) => {
            for piece in pieces {
                write(&mut send, piece.into(), reply.pause).await?;
            }
        }
        Body::Pattern(length) => {
            let mut at = 0;
            while at < length {
                let piece: Vec<u8> = (at..length.min(at + (64 << 10))).map(pattern).collect();
                at += piece.len() as u64;
                write(&mut send, piece.into(), reply.pause).await?;
            }
        }
        Body::Echo => {
            while let Some(bytes) = piece(incoming, number, shared).await? {
                write(&mut send, bytes, reply.pause).await?;
            }
        }
        Body::Facts => unreachable!("replaced above"),
    }
    if reply.trailers.is_empty() {
        send.send_data(Bytes::new(), true)?;
    } else {
        send.send_trailers(header_map(&reply.trailers))?;
    }
    // A reset now could overtake the response.
    while piece(incoming, number, shared).await?.is_some() {}
    Ok(())
}

async fn write(
    send: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    pause: std::time::Duration,
) -> Result<(), h2::Error> {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    while !bytes.is_empty() {
        send.reserve_capacity(bytes.len());
        let Some(room) = poll_fn(|cx| send.poll_capacity(cx)).await else {
            return Err(Reason::CANCEL.into());
        };
        let room = room?.min(bytes.len());
        send.send_data(bytes.split_to(room), false)?;
    }
    Ok(())
}

/// Reads the next piece of a request's body; `None` at its end.
async fn piece(
    body: &mut RecvStream,
    number: usize,
    shared: &Shared,
) -> Result<Option<Bytes>, h2::Error> {
    if let Some(bytes) = body.data().await {
        let bytes = bytes?;
        shared.body(number, &bytes);
        body.flow_control().release_capacity(bytes.len())?;
        return Ok(Some(bytes));
    }
    let trailers = body.trailers().await?;
    shared.update(number, |seen| {
        for (name, value) in trailers.iter().flatten() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            seen.trailers.push((name.as_str().to_owned(), value));
        }
        seen.complete = true;
    });
    Ok(None)
}

fn header_map(fields: &Fields) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a script names real fields");
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("and real values"));
    }
    map
}

/// Writes frames directly (RFC 9113, 4.1): GOAWAY with last stream 0 on the first HEADERS, then the end.
async fn go_away<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    connection: usize,
    shared: &Shared,
) -> std::io::Result<()> {
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const ACK: u8 = 1;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        match (head[3], head[4]) {
            (SETTINGS, flags) if flags & ACK == 0 => {
                stream.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]).await?;
            }
            (HEADERS, _) => {
                shared.record().connections[connection].requests += 1;
                let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                stream.write_all(&go_away).await?;
                stream.shutdown().await?;
                hold(&mut stream).await;
                return Ok(());
            }
            _ => {}
        }
    }
}
