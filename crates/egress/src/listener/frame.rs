//! The frame listener: calls over a connection that a process keeps (docs/internals/egress.md, "The frame listener").
//!
//! Invariants
//! - Each connection has one task and one call at a time. Closing it, or ABORT, cancels the call.
//! - A call starts only when everything that its caller sends unasked was read. So a caller knows what a broken
//!   connection means.
//! - Each call that was read gets exactly one END, DECLINED or FAILED, or the connection ends.
//! - Memory per caller is bounded: one frame in each direction and a piece of a body; between calls a small buffer.

pub(super) mod heads;
mod link;

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty, Full};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use unix_stream::Stream;
use wire::{AnswerHead, CallBody as Coming, NoAnswer};

use self::link::{Asked, Gone, Link, Out, Upload};
use super::control::{self, Control};
use super::prepare::{Counted, HEAD_TIMEOUT, Listener, final_answer};
use super::refusal::Refusal;
use super::target;
use super::trace::CallSpan;
use crate::request::Spelled;
use crate::{Answer, AnswerBody, Call, CallBody, Fate, Timing};

/// The bytes of a response that are collected before they are written.
const GATHERED: usize = 64 << 10;

/// How long a connection above the limit may be without a call.
const CROWDED: Duration = Duration::from_millis(500);

/// Counts a connection while it exists.
struct Kept<'a>(&'a Listener);

impl<'a> Kept<'a> {
    fn new(listener: &'a Listener) -> Self {
        listener.kept.fetch_add(1, Ordering::Relaxed);
        Self(listener)
    }

    /// Returns whether the limit of connections without a call is reached.
    fn crowded(&self) -> bool {
        self.0.kept.load(Ordering::Relaxed) > self.0.shared.options.callers / 2
    }

    /// Waits until a connection above the limit has been without a call for too long. A call that comes in time costs no look at
    /// the clock.
    async fn outstays(&self) {
        if self.crowded() {
            tokio::time::sleep(CROWDED).await;
        } else {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection to its end. `read`: the bytes that were already read.
pub(super) async fn serve(
    listener: Arc<Listener>,
    stream: UnixStream,
    read: BytesMut,
    uid: u32,
    drain: CancellationToken,
) {
    let kept = Kept::new(&listener);
    let stream = match stream.into_std().and_then(Stream::new) {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(%error, "connection cannot be watched"),
    };
    let link = Arc::new(Link::new(stream, read));
    let authentic = tokio::select! {
        biased;
        opened = tokio::time::timeout(HEAD_TIMEOUT, link.opening()) => match opened {
            Ok(Ok(token)) => str::from_utf8(&token).is_ok_and(|token| listener.token.is(token)),
            _ => return,
        },
        () = drain.cancelled() => return,
    };
    let mut caller = Caller {
        listener: &listener,
        link: &link,
        uid,
        authentic,
        known: None,
        out: Out::default(),
        address: None,
    };
    loop {
        let asked = tokio::select! {
            biased;
            asked = link.asked() => asked,
            () = drain.cancelled() => return,
            // It was made before its first call, as a worker does at its start, and stands in the way of calls.
            () = kept.outstays() => return,
        };
        let served = match asked {
            Ok(asked) => {
                let uploads = asked.coming == Coming::Asked;
                tokio::select! {
                    biased;
                    served = caller.serve(asked) => served,
                    // Its body may never be read.
                    () = link.stream().closed(), if uploads => Err(Gone::Left),
                }
            }
            Err(gone) => Err(gone),
        };
        if let Err(gone) = served {
            if let Gone::Malformed(why) = gone {
                tracing::debug!(%why, "caller sent a malformed frame");
            }
            return;
        }
        if drain.is_cancelled() || kept.crowded() {
            return;
        }
    }
}

/// One connection with its state.
struct Caller<'a> {
    listener: &'a Listener,
    link: &'a Arc<Link>,
    uid: u32,
    /// Whether OPEN had the right token.
    authentic: bool,
    /// The last options, because most calls have the same.
    known: Option<(Bytes, Control)>,
    /// The buffer of the last response.
    out: Out,
    /// The address of the last response and its text, because most calls go to the same.
    address: Option<(IpAddr, String)>,
}

impl Caller<'_> {
    async fn serve(&mut self, asked: Asked) -> Result<(), Gone> {
        let listener = self.listener;
        let counted = Counted::new(&listener.shared.counters);
        let mut origin = String::new();
        let called = match self.prepare(asked, &counted, &mut origin).await {
            Ok((call, span)) => self.call(call, span).await,
            Err(refusal) => Ok(Err(refusal)),
        };
        let done = match called {
            Ok(Ok(answer)) => {
                let mut out = std::mem::take(&mut self.out);
                let done = self.pass_on(answer, &mut out).await;
                out.clear();
                self.out = out;
                done
            }
            Ok(Err(refusal)) => {
                listener.shared.counters.refused(&origin, &refusal);
                let mut out = Out::default();
                self.link.take_later(&mut out.frames);
                put_refusal(&mut out.frames, &refusal);
                self.link.write(&mut out).await
            }
            Err(gone) => Err(gone),
        };
        let done = match done {
            Err(Gone::Aborted) => {
                let mut out = Out::default();
                self.link.take_later(&mut out.frames);
                let why = NoAnswer { reason: b"body", message: b"given up", ..Default::default() };
                wire::send::no_answer_at_all(&mut out.frames, true, &why);
                self.link.write(&mut out).await
            }
            other => other,
        };
        self.link.end_call();
        done
    }

    async fn prepare(
        &mut self,
        asked: Asked,
        counted: &Counted<'_>,
        origin: &mut String,
    ) -> Result<(Call, CallSpan), Refusal> {
        let facts = self.listener.admit(&asked.head, self.uid, counted)?;
        if !self.authentic {
            return Err(Refusal::token());
        }
        let Some(mut head) = ::http1::to_parts(&asked.head, facts.fields) else {
            target::check(facts.target)?;
            return Err(Refusal::request("the head is no request"));
        };
        head.extensions.insert(Spelled(asked.head.clone()));
        let body = self.body(&asked, &head.headers)?;
        let options = asked.control;
        let control = match &self.known {
            Some((known, control)) if *known == options => control.clone(),
            _ => {
                let control = control::options(&options)?;
                // Its own copy: the frame's would keep the whole buffer.
                self.known = Some((Bytes::copy_from_slice(&options), control.clone()));
                control
            }
        };
        let options = |_fields: &HeaderMap| Ok(control);
        let (call, _control, span) =
            self.listener.prepare(head, body, self.uid, facts.target, options, origin).await?;
        Ok((call, span))
    }

    /// Returns the body that the head announces.
    fn body(&self, asked: &Asked, fields: &HeaderMap) -> Result<CallBody, Refusal> {
        let length = match fields.get(CONTENT_LENGTH) {
            None => None,
            Some(value) => match value.to_str().map(str::parse::<u64>) {
                Ok(Ok(length)) => Some(length),
                _ => return Err(Refusal::request("Content-Length is no number")),
            },
        };
        let chunked = fields.contains_key(TRANSFER_ENCODING);
        let other = || Refusal::request("the body is not what the head announces");
        match (asked.coming, length, chunked) {
            (Coming::None, None | Some(0), false) => Ok(never(Empty::new())),
            (Coming::Whole, _, _) => {
                let whole = asked.body.clone();
                let fits = chunked || length.is_some_and(|length| whole.len() as u64 == length);
                if fits { Ok(never(Full::new(whole))) } else { Err(other()) }
            }
            (Coming::Asked, Some(_), false) | (Coming::Asked, None, true) => {
                Ok(Upload::new(Arc::clone(self.link), length).boxed_unsync())
            }
            _ => Err(other()),
        }
    }

    async fn call(&self, call: Call, span: CallSpan) -> Result<Result<Answer, Refusal>, Gone> {
        let link = self.link;
        let interim = |(status, fields, written): crate::Interim<'_>| {
            // Over HTTP/2 nothing is written as text.
            let head = heads::answer(status, fields, written, written.is_none());
            link.later(|out| wire::send::interim(out, &head));
        };
        let mut call = Box::pin(self.listener.engine.call(call, interim));
        let answer = poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Ok(answer)),
            Poll::Pending => link.poll_beside(cx).map(Err),
        });
        let outcome = match answer.await {
            Ok(Ok(answer)) => final_answer(answer),
            // Its body broke off since the caller said so.
            Ok(Err(_)) if link.was_given_up() => return Err(Gone::Aborted),
            Ok(Err(error)) => Err(Refusal::from(error)),
            Err(gone) => return Err(gone),
        };
        Ok(match outcome {
            Ok(answer) => Ok(span.answered(answer)),
            Err(refusal) => {
                span.refused(&refusal);
                Err(refusal)
            }
        })
    }

    /// Passes on the response as it arrives: all available bytes in one write.
    async fn pass_on(&mut self, answer: Answer, out: &mut Out) -> Result<(), Gone> {
        self.link.take_later(&mut out.frames);
        let mut ended = !put_answer(&mut out.frames, &answer, &mut self.address);
        let mut body = answer.response.into_body();
        let passed = poll_fn(|cx| {
            loop {
                if out.is_empty() {
                    // First of all: some of it may be written already.
                    self.link.take_later(&mut out.frames);
                }
                while !ended && out.frames.len() < GATHERED {
                    match gather(&mut body, &mut out.frames, cx) {
                        Poll::Ready(more) => ended = !more,
                        Poll::Pending => break,
                    }
                }
                if out.is_empty() {
                    return if ended {
                        Poll::Ready(Ok(()))
                    } else {
                        self.link.poll_beside(cx).map(Err)
                    };
                }
                match self.link.poll_write(cx, out) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(gone)) => return Poll::Ready(Err(gone)),
                    Poll::Pending => return self.link.poll_left(cx).map(Err),
                }
            }
        })
        .await;
        if matches!(passed, Err(Gone::Aborted)) {
            // A started frame is written to its end, so that frames stay whole.
            self.link.write(out).await?;
        }
        passed
    }
}

fn never<B>(body: B) -> CallBody
where
    B: http_body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + 'static,
{
    body.map_err(|never| match never {}).boxed_unsync()
}

/// Encodes a refusal as a frame.
pub(super) fn refusal(refusal: &Refusal) -> Vec<u8> {
    let mut frame = Vec::new();
    put_refusal(&mut frame, refusal);
    frame
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    let message: String = refusal.message.chars().take(500).collect();
    let address = refusal.address.map(|address| address.ip().to_string()).unwrap_or_default();
    let why = NoAnswer {
        errno: refusal.curl,
        port: refusal.address.map_or(0, |address| address.port()),
        reason: refusal.word.as_bytes(),
        address: address.as_bytes(),
        message: message.as_bytes(),
    };
    let lost = refusal.fate == Fate::Failed;
    wire::send::no_answer_at_all(out, lost, &why);
}

/// Writes the head of the response. Returns false if it does not fit; FAILED is written instead.
fn put_answer(out: &mut Vec<u8>, answer: &Answer, known: &mut Option<(IpAddr, String)>) -> bool {
    let response = &answer.response;
    let Timing { resolved, connected, secured, first_byte, reused, http2, address, .. } =
        answer.timing;
    let written = answer.written.as_deref();
    let head = heads::answer(response.status(), response.headers(), written, http2);
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let ip = match address.map(|address| address.ip()) {
        None => "",
        Some(ip) => {
            if known.as_ref().is_none_or(|(last, _)| *last != ip) {
                *known = Some((ip, ip.to_string()));
            }
            known.as_ref().map_or("", |(_, text)| text)
        }
    };
    let answer = AnswerHead {
        resolved: micros(resolved),
        connected: micros(connected),
        secured: micros(secured),
        first_byte: micros(first_byte),
        protocol: match response.version() {
            _ if http2 => 20,
            http::Version::HTTP_10 => 10,
            _ => 11,
        },
        reused,
        port: address.map_or(0, |address| address.port()),
        address: ip.as_bytes(),
        head: &head,
    };
    let fits = wire::send::answer_head(out, &answer).is_ok();
    if !fits {
        let message = b"Too large response headers";
        let why = NoAnswer { errno: 56, reason: b"rubbish", message, ..Default::default() };
        wire::send::no_answer_at_all(out, true, &why);
    }
    fits
}

/// Collects one more piece of the body. Returns false at its end.
fn gather(body: &mut AnswerBody, out: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<bool> {
    let polled = std::task::ready!(Pin::new(body).poll_frame(cx));
    let more = match polled {
        Some(Ok(frame)) => {
            match frame.into_data() {
                Ok(data) => wire::send::response_body(out, &data),
                Err(frame) => {
                    let fields = frame.into_trailers().unwrap_or_default();
                    wire::send::trailers(out, &heads::fields(&fields));
                }
            }
            true
        }
        Some(Err(error)) => {
            put_refusal(out, &Refusal::from(error));
            false
        }
        None => {
            wire::send::done(out);
            false
        }
    };
    Poll::Ready(more)
}
