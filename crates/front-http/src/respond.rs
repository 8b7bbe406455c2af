//! Turns a request into a response: checks, routing, the application. `send` has what HTTP requires of a response.
//!
//! Invariants
//! - Every request gets exactly one response.
//! - The front's own responses reveal no paths, processes or internal errors.
//! - A request without a body, routed to PHP, accesses the disk at most once and starts no task and no timer.

mod cached;
mod client;
mod pages;
mod receive;
mod rules;
mod send;
mod socket;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use pool::{CompleteBody, HintSender, RequestContext, RequestId, ResponseObserver, Script};
use tokio::time::Instant;
use tokio_util::either::Either;
use traces::Carried;
use tracing::Instrument;

use crate::answer_body::{Account, AnswerBody, Source};
use crate::answers::Page;
use crate::application::Application;
use crate::claims::Unclaimed;
use crate::files::{self, FileBody};
use crate::forwarded::{self, ForwardedInfo};
use crate::front::Shared;
use crate::phase::PhaseCell;
use crate::realtime::{self, CallBody, EventStream, Grant, GrantCell, Realtime};
use crate::release::Current;
use crate::request_body::{RequestBody, Verdict};
use crate::request_head::{self, Stop};
use crate::request_id;
use crate::route::{self, Decision, Disk};
use crate::tls::VerifiedClient;
use crate::trace;
use crate::trusted_headers::TrustedHeader;

pub(crate) use self::client::Host;
use self::pages::add_slash;
use self::send::{About, Kept, drop_hop_by_hop, finish};

/// State shared by all requests of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Address of the peer, or the one stated by the PROXY protocol.
    pub(crate) peer: SocketAddr,
    /// Local address.
    pub(crate) local: SocketAddr,
    pub(crate) tls: bool,
    /// The peer is a trusted proxy.
    pub(crate) trusted: bool,
    /// The listener redirects every request to https.
    pub(crate) redirect: bool,
    /// Phase of an HTTP/1.1 connection.
    pub(crate) phase: Option<Arc<PhaseCell>>,
    /// The parsed host of the first request, which nearly all further requests share.
    pub(crate) host: OnceLock<Host>,
    /// The client, if it was asked for a certificate.
    pub(crate) client: Option<VerifiedClient>,
    /// An accepted WebSocket handshake, which ends HTTP on the connection.
    pub(crate) grant: GrantCell,
}

/// A response before the final HTTP fields are set.
struct Answer<B> {
    head: http::response::Parts,
    source: Source<B>,
}

impl<B> Answer<B> {
    fn whole(response: Response<Bytes>) -> Self {
        let (head, bytes) = response.into_parts();
        let source = if bytes.is_empty() { Source::Empty } else { Source::Whole(bytes) };
        Self { head, source }
    }

    fn file(response: Response<FileBody>) -> Self {
        let (head, body) = response.into_parts();
        Self { head, source: Source::File(body) }
    }
}

/// Answers one request. A connection keeps room for this future, and moves it once for each request.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its parameters twice")]
pub(crate) fn respond<A: Application>(
    front: &Shared<A>,
    connection: &Connection,
    request: Request<RequestBody>,
    hints: Option<HintSender>,
) -> impl Future<Output = Response<AnswerBody<A::Body>>> + Send {
    async move {
        let started = Instant::now();
        let (mut parts, body) = request.into_parts();
        let chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
        let mut stop = request_head::normalise(&mut parts, &front.limits).err();

        let believed = front.trusted_headers;
        let forwarded = if connection.trusted {
            forwarded::take(&mut parts.headers, believed, &front.trusted).unwrap_or_else(|error| {
                let refused = error.refuse(connection.peer);
                stop.get_or_insert(refused);
                ForwardedInfo::default()
            })
        } else {
            ForwardedInfo::default()
        };
        let names = connection.trusted && believed.has(TrustedHeader::XRequestId);
        let id = if names { request_id::given(&parts.headers) } else { None };
        let id = id.unwrap_or_else(|| front.ids.next());
        let remote = forwarded.client.unwrap_or(connection.peer);
        let secure = forwarded.secure.unwrap_or(connection.tls);

        let trace = front.tracer.as_ref().map(|tracer| {
            let about = trace::About { connection, remote, secure, id: &id };
            trace::begin(tracer, &mut parts, &about)
        });
        let (context, carried) = match &trace {
            Some(begun) => (Some(begun.context), Some(begun.carried())),
            None => (None, None),
        };
        let mut account = Account {
            started,
            method: parts.method.clone(),
            status: gone(),
            metrics: Arc::clone(&front.metrics),
            entry: front.log.as_ref().map(|log| {
                let target = realtime::logged_target(front.realtime.as_deref(), &parts.uri);
                log.entry(&parts, target, remote.ip(), id.clone(), context)
            }),
            phase: connection.phase.clone(),
            sent: 0,
            cut: false,
            span: trace.and_then(|begun| begun.span),
        };
        let method = parts.method.clone();
        let version = parts.version;
        let span = tracing::debug_span!(
            "request",
            http.request.method = %method,
            url.path = parts.uri.path(),
            client.address = %remote.ip(),
            request.id = &*id.0,
        );

        let mut fields = None;
        let answer = match stop {
            Some(Stop::AboutServer) => {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = StatusCode::NO_CONTENT;
                let allow =
                    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
                response.headers_mut().insert(header::ALLOW, allow);
                Answer::whole(response)
            }
            Some(Stop::Refused(page)) => Answer::whole(page.render(&parts.headers, &id.0)),
            None => {
                let current = front.switch.current();
                let chosen = front.choose(&current, &forwarded, &parts);
                if let Ok(number) = chosen {
                    account.of(current.release.part(number).name.as_ref());
                }
                let exchange = Exchange {
                    front,
                    current,
                    chosen,
                    connection,
                    forwarded,
                    remote,
                    id: &id,
                    trace: carried,
                    user: None,
                    observer: None,
                };
                let early = exchange
                    .for_authorities(&parts)
                    .or_else(|| exchange.redirect_to_https(&parts))
                    .or_else(|| exchange.redirect(&parts));
                if let Some(rules) = &exchange.current.release.rules {
                    fields = exchange.fields(rules, &parts);
                }
                match early {
                    Some(answer) => answer,
                    // Without a span the future is not moved into another one.
                    None if span.is_none() => exchange.route(parts, body, hints).await,
                    None => Box::pin(exchange.route(parts, body, hints)).instrument(span).await,
                }
            }
        };
        let about = About {
            method: &method,
            version,
            chunked,
            secure,
            id: &id,
            alternative: front.alternative(connection, version),
            fields,
        };
        finish(front, &about, answer, &mut account).map(|source| AnswerBody::new(source, account))
    }
}

/// Returns the status that is counted for a request whose client disconnected before the response: nginx's 499.
fn gone() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

/// A request's body with its limits, and how reading it has ended.
type Limited = (RequestBody, Option<Verdict>);

/// One request in progress.
struct Exchange<'x, A> {
    front: &'x Shared<A>,
    /// The release, from the request's routing on.
    current: Arc<Current<A>>,
    /// The application in the release.
    chosen: Result<usize, Unclaimed>,
    connection: &'x Connection,
    forwarded: ForwardedInfo,
    remote: SocketAddr,
    id: &'x RequestId,
    /// Trace context for the application.
    trace: Option<Carried>,
    /// The user whose password was right.
    user: Option<Arc<str>>,
    /// Learns of the application's response.
    observer: Option<Arc<dyn ResponseObserver>>,
}

impl<A: Application> Exchange<'_, A> {
    /// Answers an HTTP-01 challenge of a certificate authority (RFC 8555, section 8.3).
    fn for_authorities(&self, parts: &Parts) -> Option<Answer<A::Body>> {
        let answer = self.front.tls.as_ref()?.answer_to(parts.uri.path())?;
        let mut response = Response::new(Bytes::from(answer));
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Some(Answer::whole(response))
    }

    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its parameters twice")]
    fn route(
        mut self,
        parts: Parts,
        mut body: RequestBody,
        hints: Option<HintSender>,
    ) -> impl Future<Output = Answer<A::Body>> + Send {
        async move {
            let path = parts.uri.path();
            let mut counted = false;
            if let Some(rules) = &self.current.release.rules {
                match Box::pin(self.admit(rules, &parts)).await {
                    Ok(Some(user)) => (self.user, counted) = (Some(user), true),
                    Ok(None) => {}
                    Err(page) => return self.page(page, &parts.headers),
                }
            }
            if let Some(realtime) = &self.front.realtime {
                let secure = self.forwarded.secure.unwrap_or(self.connection.tls);
                match realtime::upgrade(realtime, &parts, secure) {
                    Some(Ok((response, granted))) => {
                        *self.connection.grant.lock().expect("no holder panics") =
                            Some(Grant::Channels(granted));
                        return Answer::whole(response);
                    }
                    Some(Err(page)) => return self.page(page, &parts.headers),
                    None if realtime.takes(path) => {
                        return Box::pin(self.call(realtime.as_ref(), &parts, body)).await;
                    }
                    None if realtime.streams(path) && parts.method == Method::GET => {
                        return Box::pin(self.events(realtime.as_ref(), &parts, secure)).await;
                    }
                    None => {}
                }
            }
            let Ok(clean) = route::clean(path) else {
                let page = Page::new(StatusCode::BAD_REQUEST, "The request's path is not valid.");
                return self.page(page, &parts.headers);
            };
            let number = match self.chosen {
                Ok(number) => number,
                Err(Unclaimed::Host) => return self.page(Page::misdirected(), &parts.headers),
                Err(Unclaimed::Path) => return self.page(Page::not_found(), &parts.headers),
            };
            let part = self.current.release.part(number);
            if parts.headers.contains_key(header::UPGRADE)
                && !part.websockets.routes.is_empty()
                && let Some(answer) = Box::pin(self.socket(part, &parts, &clean)).await
            {
                return answer;
            }
            match part.router.decide(&clean, &Disk) {
                Decision::Script(script) => {
                    if let Some(rules) = &self.current.release.rules
                        && !counted
                        && let Err(page) = self.within_rate(rules, &parts, clean.as_bytes())
                    {
                        return self.page(page, &parts.headers);
                    }
                    drop(clean);
                    let limits = &self.front.limits;
                    let body = match body.limit(limits.max_body, limits.pace) {
                        Ok(verdict) => (body, verdict),
                        Err(error) => {
                            return self.page(Page::body_failed(error.status()), &parts.headers);
                        }
                    };
                    if let Some(cache) = &self.front.cache {
                        return Box::pin(self.cached(cache, number, script, parts, body, hints))
                            .await;
                    }
                    self.pass_on(number, script, parts, body, hints).await
                }
                Decision::File(_) if !is_read(&parts.method) => {
                    self.page(Page::method_not_allowed("GET, HEAD"), &parts.headers)
                }
                Decision::File(file) => {
                    let outcome = files::answer(&file, &parts.method, &parts.headers, &part.files);
                    match outcome.and_then(|response| self.spared(response)) {
                        Ok(response) => Answer::file(response),
                        Err(refused) => self.refused(refused, &parts.headers),
                    }
                }
                Decision::AddSlash => self.page(add_slash(&parts), &parts.headers),
                Decision::Nothing => self.page(Page::not_found(), &parts.headers),
            }
        }
    }

    /// Passes a request on to the application, its body received before if that is configured.
    fn pass_on(
        self,
        number: usize,
        script: Script,
        parts: Parts,
        body: Limited,
        hints: Option<HintSender>,
    ) -> impl Future<Output = Answer<A::Body>> + Send {
        if !body.0.is_end_stream() && self.front.request_buffering.applies(&parts.headers) {
            Either::Left(Box::pin(self.receive(number, script, parts, body, hints)))
        } else {
            Either::Right(self.dispatch(number, script, parts, body, hints))
        }
    }

    /// Answers an event stream of channels.
    async fn events(
        &self,
        realtime: &dyn Realtime,
        parts: &Parts,
        secure: bool,
    ) -> Answer<A::Body> {
        match realtime::event_stream(realtime, parts, secure).await {
            Ok(response) => {
                let (mut head, events) = response.into_parts();
                drop_hop_by_hop(&mut head.headers);
                Answer { head, source: Source::Events(events) }
            }
            Err(error) => {
                tracing::debug!(%error, "event stream not answered");
                let page =
                    Page::new(StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down.");
                self.page(page.closing(), &parts.headers)
            }
        }
    }

    /// Answers a request of realtime's HTTP API.
    async fn call(
        &self,
        realtime: &dyn Realtime,
        parts: &Parts,
        mut body: RequestBody,
    ) -> Answer<A::Body> {
        if let Err(error) = body.limit(realtime.body_limit(), self.front.limits.pace) {
            return self.page(Page::body_failed(error.status()), &parts.headers);
        }
        match realtime::call(realtime, parts, body).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                match body {
                    CallBody::Whole(bytes) => Answer::whole(Response::from_parts(head, bytes)),
                    CallBody::Stream(socket) => {
                        Answer { head, source: Source::Events(EventStream::new(socket)) }
                    }
                }
            }
            Err(error) => self.page(Page::body_failed(error.status()), &parts.headers),
        }
    }

    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its parameters twice")]
    fn dispatch(
        mut self,
        number: usize,
        script: Script,
        parts: Parts,
        (body, verdict): Limited,
        hints: Option<HintSender>,
    ) -> impl Future<Output = Answer<A::Body>> + Send {
        async move {
            let trace = self.trace.take();
            let traced = trace.is_some();
            // Values needed after the request has moved to the application; they are cheap to keep, because they share
            // their bytes.
            let part = self.current.release.part(number);
            let kept = Kept::of(&parts, !part.sendfile.is_empty());
            let context = self.context(script, &parts.headers, hints, trace);
            let request = with_context(parts, body, context);
            let outcome = self.current.applications[number].call(request).await;
            if !is_read(&kept.method) {
                part.router.files_may_have_changed();
            }
            match outcome {
                Ok(response) => {
                    // An application that could not read the whole body may have responded anyway. Its response is used,
                    // unless the body exceeded the size limit: the client must then get 413.
                    if let Some(StatusCode::PAYLOAD_TOO_LARGE) =
                        verdict.as_ref().and_then(Verdict::failure)
                    {
                        let page = Page::body_failed(StatusCode::PAYLOAD_TOO_LARGE);
                        return self.page(page, &kept.accept_fields());
                    }
                    self.answered(response, part, &kept, None).await
                }
                Err(error) => self.not_answered(&error, verdict, &kept, traced),
            }
        }
    }

    /// Returns what the pool learns of a request beside its head.
    fn context(
        &self,
        script: Script,
        headers: &HeaderMap,
        hints: Option<HintSender>,
        trace: Option<Carried>,
    ) -> RequestContext {
        let client = self.client(headers);
        let certified = self.connection.client.as_ref();
        RequestContext {
            script,
            remote: client.remote,
            local: self.connection.local,
            scheme: client.scheme,
            server_name: client.server_name,
            server_port: client.server_port,
            remote_user: self.user.clone(),
            id: self.id.clone(),
            hints,
            observer: self.observer.clone(),
            deadline: None,
            trace,
            variables: certified.map(VerifiedClient::variables).unwrap_or_default(),
        }
    }
}

/// Returns the request as the application gets it.
fn with_context(parts: Parts, body: RequestBody, context: RequestContext) -> Request<RequestBody> {
    let arrived = body.has_arrived();
    let mut request = Request::from_parts(parts, body);
    if arrived {
        request.extensions_mut().insert(CompleteBody);
    }
    request.extensions_mut().insert(context);
    request
}

fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}
