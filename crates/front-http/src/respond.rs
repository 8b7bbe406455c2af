//! Turns a request into a response: checks, routing, the application, and the response fields of HTTP.
//!
//! Invariants
//! - Every request gets exactly one response.
//! - The front's own responses reveal no paths, processes or internal errors.
//! - A request without a body, routed to PHP, accesses the disk at most once and starts no task and no timer.

mod receive;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use pool::{DispatchError, HintSender, RequestContext, RequestId, Scheme, Script};
use tokio::time::Instant;
use traces::Carried;
use tracing::Instrument;

use crate::answer_body::{Account, AnswerBody, Source};
use crate::answers::Page;
use crate::application::Application;
use crate::buffered_body::BufferedBody;
use crate::claims::Unclaimed;
use crate::compress::{self, Encoder};
use crate::date;
use crate::files::{self, FileBody, FileOptions, Refused};
use crate::forwarded::{self, Told};
use crate::front::Shared;
use crate::metrics::ClientLimit;
use crate::phase::PhaseCell;
use crate::realtime::{self, GrantCell, Realtime};
use crate::release::{Current, Part};
use crate::request_body::{BodyError, RequestBody, Verdict};
use crate::request_head::{self, Stop};
use crate::request_id;
use crate::route::{self, Decision, Disk};
use crate::site::Site;
use crate::trace;
use crate::trusted_headers::TrustedHeader;

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
    /// An accepted WebSocket handshake, which ends HTTP on the connection.
    pub(crate) grant: GrantCell,
}

/// A parsed Host field.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    field: HeaderValue,
    name: Arc<str>,
    port: Option<u16>,
}

/// The client, according to trusted proxies.
struct Client {
    remote: SocketAddr,
    scheme: Scheme,
    server_name: Arc<str>,
    server_port: u16,
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

/// Answers one request.
pub(crate) async fn respond<A: Application>(
    front: &Shared<A>,
    connection: &Connection,
    request: Request<RequestBody>,
    hints: Option<HintSender>,
) -> Response<AnswerBody<A::Body>> {
    let started = Instant::now();
    let (mut parts, body) = request.into_parts();
    let chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
    let mut stop = request_head::normalise(&mut parts, &front.limits).err();

    let believed = front.trusted_headers;
    let told = if connection.trusted {
        forwarded::take(&mut parts.headers, believed, &front.trusted).unwrap_or_else(|error| {
            let refused = error.refuse(connection.peer);
            stop.get_or_insert(refused);
            Told::default()
        })
    } else {
        Told::default()
    };
    let names = connection.trusted && believed.has(TrustedHeader::XRequestId);
    let id = if names { request_id::given(&parts.headers) } else { None };
    let id = id.unwrap_or_else(|| front.ids.next());
    let remote = told.client.unwrap_or(connection.peer);
    let secure = told.secure.unwrap_or(connection.tls);

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
            let target = target(front.realtime.as_deref(), &parts.uri);
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

    let answer = match stop {
        Some(Stop::AboutServer) => {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::NO_CONTENT;
            let allow = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            response.headers_mut().insert(header::ALLOW, allow);
            Answer::whole(response)
        }
        Some(Stop::Refused(page)) => Answer::whole(page.render(&parts.headers, &id.0)),
        None => {
            let current = front.switch.current();
            let chosen = front.choose(&current, &told, &parts);
            if let Ok(number) = chosen {
                account.of(current.release.part(number).name.as_ref());
            }
            let exchange = Exchange {
                front,
                current,
                chosen,
                connection,
                told,
                remote,
                id: &id,
                trace: carried,
            };
            match exchange.for_authorities(&parts).or_else(|| exchange.elsewhere(&parts)) {
                Some(answer) => answer,
                None => exchange.route(parts, body, hints).instrument(span).await,
            }
        }
    };
    let about = About { method: &method, version, chunked, secure, id: &id };
    finish(front, &about, answer, &mut account).map(|source| AnswerBody::new(source, account))
}

/// Returns the target for logs; for an event stream without its signatures.
fn target(realtime: Option<&dyn Realtime>, uri: &Uri) -> String {
    if realtime.is_some_and(|realtime| realtime.streams(uri.path())) {
        realtime::without_signatures(&uri.to_string())
    } else {
        uri.to_string()
    }
}

/// Returns the status that is counted for a request whose client disconnected before the response: nginx's 499.
fn gone() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

/// One request in progress.
struct Exchange<'x, A> {
    front: &'x Shared<A>,
    /// The release, from the request's routing on.
    current: Arc<Current<A>>,
    /// The application in the release.
    chosen: Result<usize, Unclaimed>,
    connection: &'x Connection,
    told: Told,
    remote: SocketAddr,
    id: &'x RequestId,
    /// Trace context for the application.
    trace: Option<Carried>,
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

    /// Redirects to https, on a listener that does not answer in the clear.
    fn elsewhere(&self, parts: &Parts) -> Option<Answer<A::Body>> {
        if !self.connection.redirect || self.told.secure.unwrap_or(self.connection.tls) {
            return None;
        }
        let (host, _port) = match (&self.told.host, parts.headers.get(header::HOST)) {
            (Some(host), _) => request_head::split_host(host),
            (None, Some(host)) => request_head::split_host(host.to_str().unwrap_or_default()),
            (None, None) => ("", None),
        };
        let port = match self.front.https_port {
            443 => String::new(),
            port => format!(":{port}"),
        };
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let known = !host.is_empty() && request_head::is_valid_host(host.as_bytes());
        let location = HeaderValue::try_from(format!("https://{host}{port}{path}"));
        let page = match location {
            Ok(location) if known => {
                Page::new(StatusCode::PERMANENT_REDIRECT, "This is answered over https.")
                    .with(header::LOCATION, location)
            }
            // HTTP/1.0 without a host cannot be redirected.
            _ => Page::new(StatusCode::BAD_REQUEST, "This is answered over https."),
        };
        Some(self.page(page, &parts.headers))
    }

    async fn route(
        self,
        parts: Parts,
        body: RequestBody,
        hints: Option<HintSender>,
    ) -> Answer<A::Body> {
        let path = parts.uri.path();
        if let Some(realtime) = &self.front.realtime {
            let secure = self.told.secure.unwrap_or(self.connection.tls);
            match realtime::upgrade(realtime, &parts, secure) {
                Some(Ok((response, granted))) => {
                    *self.connection.grant.lock().expect("no holder panics") = Some(granted);
                    return Answer::whole(response);
                }
                Some(Err(page)) => return self.page(page, &parts.headers),
                None if realtime.takes(path) => {
                    return self.call(realtime.as_ref(), &parts, body).await;
                }
                None if realtime.streams(path) && parts.method == Method::GET => {
                    return self.events(realtime.as_ref(), &parts, secure).await;
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
        match part.router.decide(&clean, &Disk) {
            Decision::Script(script) => {
                drop(clean);
                if !body.is_end_stream() && self.front.request_buffering.applies(&parts.headers) {
                    return self.receive(number, script, parts, body, hints).await;
                }
                self.dispatch(number, script, parts, body, hints).await
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
        let limit = realtime.body_limit();
        if body.size_hint().lower() > limit {
            return self.page(Page::body_failed(StatusCode::PAYLOAD_TOO_LARGE), &parts.headers);
        }
        // The verdict is not needed, because reading the body returns its error.
        drop(body.limit(limit, self.front.limits.pace));
        match realtime::call(realtime, parts, body).await {
            Ok(response) => Answer::whole(response),
            Err(error) => self.page(Page::body_failed(error.status()), &parts.headers),
        }
    }

    fn page(&self, page: Page, headers: &HeaderMap) -> Answer<A::Body> {
        // A 408 of the application is not a page of the front: this one is for a slow body.
        if page.status == StatusCode::REQUEST_TIMEOUT {
            self.front.metrics.limited(ClientLimit::SlowBody);
        }
        Answer::whole(page.render(headers, &self.id.0))
    }

    /// Returns the response, unless the server needs its file's descriptor itself.
    fn spared(&self, response: Response<FileBody>) -> Result<Response<FileBody>, Refused> {
        let descriptor = response.body().descriptor();
        if descriptor.is_none_or(|descriptor| self.front.connections.may_have(descriptor)) {
            Ok(response)
        } else {
            Err(Refused::Scarce)
        }
    }

    fn refused(&self, refused: Refused, headers: &HeaderMap) -> Answer<A::Body> {
        let page = match refused {
            Refused::Missing => Page::not_found(),
            Refused::Forbidden => {
                Page::new(StatusCode::FORBIDDEN, "This file may not be read by the server.")
            }
            Refused::Scarce => {
                self.front.metrics.limited(ClientLimit::Descriptors);
                self.front.connections.make_room();
                Page::busy()
            }
            Refused::Failed(error) => {
                tracing::warn!(error = %error, "file cannot be read");
                Page::new(StatusCode::INTERNAL_SERVER_ERROR, "The file could not be read.")
            }
        };
        self.page(page, headers)
    }

    async fn dispatch(
        mut self,
        number: usize,
        script: Script,
        parts: Parts,
        mut body: RequestBody,
        hints: Option<HintSender>,
    ) -> Answer<A::Body> {
        let limits = &self.front.limits;
        if body.size_hint().lower() > limits.max_body {
            return self.page(Page::body_failed(StatusCode::PAYLOAD_TOO_LARGE), &parts.headers);
        }
        let verdict = body.limit(limits.max_body, limits.pace);
        let traced = self.trace.is_some();
        let client = self.client(&parts.headers);
        // Values needed after the request has moved to the application; they are cheap to keep, because they share
        // their bytes.
        let part = self.current.release.part(number);
        let kept = Kept::of(&parts, !part.sendfile.is_empty());

        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(RequestContext {
            script,
            remote: client.remote,
            local: self.connection.local,
            scheme: client.scheme,
            server_name: client.server_name,
            server_port: client.server_port,
            remote_user: None,
            id: self.id.clone(),
            hints,
            deadline: None,
            trace: self.trace.take(),
            variables: Vec::new(),
        });
        match self.current.applications[number].call(request).await {
            Ok(response) => {
                // An application that could not read the whole body may have responded anyway. Its response is used,
                // unless the body exceeded the size limit: the client must then get 413.
                if let Some(StatusCode::PAYLOAD_TOO_LARGE) =
                    verdict.as_ref().and_then(Verdict::failure)
                {
                    let page = Page::body_failed(StatusCode::PAYLOAD_TOO_LARGE);
                    return self.page(page, &kept.wishes());
                }
                self.answered(response, part, &kept).await
            }
            Err(error) => {
                let page = self.failed(&error, verdict);
                let mut answer = self.page(page, &kept.wishes());
                if traced {
                    answer.head.extensions.insert(trace::Why(error.to_string()));
                }
                answer
            }
        }
    }

    /// Processes PHP's response.
    async fn answered(
        &self,
        response: Response<A::Body>,
        part: &Part,
        kept: &Kept,
    ) -> Answer<A::Body> {
        let (mut head, body) = response.into_parts();
        drop_hop_by_hop(&mut head.headers);
        let size = body.size_hint().exact();
        settle_length(&mut head, size.filter(|_size| kept.method != Method::HEAD));
        if let Some(conditions) = &kept.conditions
            && let Some(path) = part.sendfile.take(&mut head.headers)
            && !is_bodyless(head.status)
        {
            drain(body).await;
            return self.send_file(path, head, conditions, (kept, &part.files));
        }
        if kept.method == Method::HEAD || is_bodyless(head.status) {
            // The body is read to its end, so that PHP does not see a disconnected client.
            drain(body).await;
            return Answer { head, source: Source::Empty };
        }
        let body = BufferedBody::new(body, &self.front.buffers, self.site());
        if self.front.compression
            && let Some(coding) = compress::choose(kept.accept_encoding.as_ref(), &mut head, size)
        {
            return Answer { head, source: Source::Encoded(Some(body), Encoder::new(coding)) };
        }
        Answer { head, source: Source::Application(body) }
    }

    /// Returns the client's address, unless it is a trusted proxy that named none.
    fn site(&self) -> Option<Site> {
        let known = self.told.client.is_some() || !self.connection.trusted;
        known.then(|| Site::of(self.remote.ip()))
    }

    /// Handles `X-Sendfile` and `X-Accel-Redirect`: sends the file in place of PHP's body, with PHP's fields.
    fn send_file(
        &self,
        path: Result<PathBuf, Refused>,
        mut head: http::response::Parts,
        conditions: &HeaderMap,
        (kept, files): (&Kept, &FileOptions),
    ) -> Answer<A::Body> {
        // An error page has no ranges and no versions.
        let none = HeaderMap::new();
        let conditions = if head.status == StatusCode::OK { conditions } else { &none };
        let outcome = path
            .and_then(|path| files::answer_for_application(&path, &kept.method, conditions, files))
            .and_then(|response| self.spared(response));
        match outcome {
            Ok(response) => {
                let (file_head, body) = response.into_parts();
                head.headers.remove(header::CONTENT_LENGTH);
                for (name, value) in &file_head.headers {
                    let own = *name == header::CONTENT_LENGTH || *name == header::CONTENT_RANGE;
                    if own || !head.headers.contains_key(name) {
                        head.headers.insert(name.clone(), value.clone());
                    }
                }
                if head.status == StatusCode::OK && file_head.status != StatusCode::OK {
                    head.status = file_head.status;
                    head.extensions.clear();
                }
                Answer { head, source: Source::File(body) }
            }
            Err(refused) => {
                tracing::warn!(
                    request.id = &*self.id.0,
                    "application named a file that cannot be sent"
                );
                self.refused(refused, &kept.wishes())
            }
        }
    }

    fn failed(&self, error: &DispatchError, verdict: Option<Verdict>) -> Page {
        if let DispatchError::RequestBody(cause) = error {
            let status = cause
                .downcast_ref::<BodyError>()
                .map(BodyError::status)
                .or_else(|| verdict.and_then(|verdict| verdict.failure()))
                .unwrap_or(StatusCode::BAD_REQUEST);
            return Page::body_failed(status);
        }
        tracing::debug!(error = %error, request.id = &*self.id.0, "request got no answer from PHP");
        Page::dispatch_failed(error)
    }

    fn client(&self, headers: &HeaderMap) -> Client {
        let connection = self.connection;
        let secure = self.told.secure.unwrap_or(connection.tls);
        let scheme = if secure { Scheme::Https } else { Scheme::Http };
        let told_host = self
            .told
            .host
            .as_deref()
            .filter(|host| request_head::is_valid_host(host.as_bytes()))
            .map(request_head::split_host);
        let (server_name, host_port) = if let Some((name, port)) = told_host {
            (Arc::from(name), port)
        } else {
            let host = self.host(headers);
            (host.name, host.port)
        };
        // Without a proxy the port is the local one; a proxy's port is the stated one, or follows from the host or
        // scheme.
        let server_port = if self.told == Told::default() {
            connection.local.port()
        } else {
            self.told.port.or(host_port).unwrap_or(match scheme {
                Scheme::Https => 443,
                Scheme::Http => 80,
            })
        };
        Client { remote: self.remote, scheme, server_name, server_port }
    }

    fn host(&self, headers: &HeaderMap) -> Host {
        let connection = self.connection;
        let field = headers.get(header::HOST);
        if let Some(known) = connection.host.get()
            && field.is_some_and(|field| *field == known.field)
        {
            return known.clone();
        }
        let field = field.cloned().unwrap_or_else(|| HeaderValue::from_static(""));
        let (name, port) = request_head::split_host(field.to_str().unwrap_or(""));
        let name = if name.is_empty() {
            Arc::from(request_head::name_of(connection.local.ip()))
        } else {
            Arc::from(name)
        };
        let host = Host { field, name, port };
        connection.host.get_or_init(|| host.clone());
        host
    }
}

/// What a response needs of its request once PHP has it. Values share their bytes, so keeping them costs no copy.
struct Kept {
    method: Method,
    accept: Option<HeaderValue>,
    accept_encoding: Option<HeaderValue>,
    /// Conditions and range; kept only if PHP may name a file.
    conditions: Option<HeaderMap>,
}

impl Kept {
    fn of(parts: &Parts, files: bool) -> Self {
        let headers = &parts.headers;
        Self {
            method: parts.method.clone(),
            accept: headers.get(header::ACCEPT).cloned(),
            accept_encoding: joined(headers, &header::ACCEPT_ENCODING),
            conditions: files.then(|| {
                let names = [
                    header::RANGE,
                    header::IF_RANGE,
                    header::IF_NONE_MATCH,
                    header::IF_MODIFIED_SINCE,
                    header::IF_MATCH,
                    header::IF_UNMODIFIED_SINCE,
                ];
                let kept = names
                    .into_iter()
                    .filter_map(|name| Some((name.clone(), joined(headers, &name)?)));
                kept.collect()
            }),
        }
    }

    /// Returns the `Accept` fields, for a page of the front.
    fn wishes(&self) -> HeaderMap {
        self.accept.iter().map(|value| (header::ACCEPT, value.clone())).collect()
    }
}

/// Joins all values of a field.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_none() {
        return Some(first.clone());
    }
    let all: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).ok()
}

fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

fn is_bodyless(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

fn is_length(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty() && bytes.len() < 20 && bytes.iter().all(u8::is_ascii_digit)
}

/// Keeps one valid `Content-Length` of PHP's; `size` is that of the body, if known. Without the field, the framing
/// marks the end of the body.
fn settle_length(head: &mut http::response::Parts, size: Option<u64>) {
    let mut said = head.headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = said.next() else { return };
    let several = said.next().is_some();
    let one = !several || head.headers.get_all(header::CONTENT_LENGTH).iter().all(|v| v == first);
    let fits = match size {
        // A 204 has no Content-Length (RFC 9110, section 8.6); a 304 has that of the body that it does not send.
        _ if head.status == StatusCode::NO_CONTENT => false,
        Some(size) if head.status != StatusCode::NOT_MODIFIED => {
            first.as_bytes() == size.to_string().as_bytes()
        }
        _ => is_length(first),
    };
    if !(one && fits) {
        head.headers.remove(header::CONTENT_LENGTH);
    } else if several {
        let first = first.clone();
        head.headers.insert(header::CONTENT_LENGTH, first);
    }
}

async fn drain<B: Body + Unpin>(mut body: B) {
    while let Some(Ok(_)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
}

/// Removes hop-by-hop fields, which the front sends itself (RFC 9110, section 7.6.1).
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    // One pass over the names instead of eight look-ups: PHP sends few fields.
    let is_hop = |name: &HeaderName| {
        *name == header::CONNECTION
            || *name == header::TRANSFER_ENCODING
            || *name == header::UPGRADE
            || *name == header::TRAILER
            || *name == header::TE
            || name == "keep-alive"
            || name == "proxy-connection"
    };
    if headers.keys().any(is_hop) {
        let names: Vec<HeaderName> = headers.keys().filter(|name| is_hop(name)).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

fn add_slash(parts: &Parts) -> Page {
    let path = parts.uri.path();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // Exactly one leading slash: `//host/` would be another site.
    let location = format!("/{}/{query}", path.trim_start_matches('/'));
    let status = if is_read(&parts.method) {
        StatusCode::MOVED_PERMANENTLY
    } else {
        StatusCode::PERMANENT_REDIRECT
    };
    let page = Page::new(status, "This is a directory: its address ends with a slash.");
    match HeaderValue::try_from(location) {
        Ok(location) => page.with(header::LOCATION, location),
        Err(_) => Page::not_found(),
    }
}

/// What a response needs to know about its request.
struct About<'r> {
    method: &'r Method,
    version: Version,
    /// The request has `Transfer-Encoding`.
    chunked: bool,
    /// The client uses TLS, to this server or to a trusted proxy.
    secure: bool,
    id: &'r RequestId,
}

/// Sets the fields that every response gets.
fn finish<A: Application>(
    front: &Shared<A>,
    about: &About<'_>,
    answer: Answer<A::Body>,
    account: &mut Account,
) -> Response<Source<A::Body>> {
    let Answer { mut head, mut source } = answer;
    let About { method, version, chunked, secure, id } = *about;
    head.version = version;
    account.status = head.status;
    if let Some(span) = &mut account.span {
        trace::answered(span, &mut head);
    }
    // HTTP/2 has no reason phrases (RFC 9113, section 8.3.2).
    if let Some(pool::Reason(reason)) = head.extensions.remove::<pool::Reason>()
        && version != Version::HTTP_2
        && let Ok(reason) = hyper::ext::ReasonPhrase::try_from(reason)
    {
        head.extensions.insert(reason);
    }
    if *method == Method::HEAD && !matches!(source, Source::Empty) {
        if let Source::Whole(bytes) = &source {
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        }
        source = Source::Empty;
    }
    if front.server_header {
        head.headers.entry(header::SERVER).or_insert(HeaderValue::from_static("Hearth"));
    }
    head.headers.entry(header::DATE).or_insert_with(date::now);
    // Never over plain HTTP (RFC 6797, section 7.2).
    if secure && let Some(hsts) = &front.hsts {
        head.headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert(hsts.clone());
    }
    if front.request_id_header
        && let Ok(id) = HeaderValue::from_str(&id.0)
    {
        head.headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    if version == Version::HTTP_2 {
        head.headers.remove(header::CONNECTION);
    } else if chunked {
        // A request with both Transfer-Encoding and Content-Length may be a smuggling attempt. hyper keeps only the
        // former, so the two cases cannot be distinguished here; RFC 9112 (section 6.1) requires closing the
        // connection for it.
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Response::from_parts(head, source)
}
