//! One connection to the Runtime API, on which invocations are served one after the other.
//!
//! Invariants
//! - Between `next` and its response only PHP and the API are awaited.
//! - When the only lane requests `next`, PHP has finished its work after the response, and a lost worker's successor has
//!   booted: from then on the environment may be frozen. Several lanes do not wait for each other's workers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use pool::{Pool, RequestContext, RequestId, ResponseBody, Scheme, Script};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traces::Carried;
use tracing::{Instrument, debug, error, error_span, info, warn};

use super::answer::{MAX_RESPONSE, chain, failure, next_piece, too_large, whole};
use super::client::{ApiError, Call, Client};
use super::files;
use super::function::Answered;
use super::invocation::Invocation;
use super::report::Report;
use super::trace::Trace;
use super::{BASE, Failed, Options, Target, accepted, error_head};
use crate::event::{self, Decoded, Reading, Reply, Shape};

/// How long the successor of a lost worker may boot before the next event is requested: as long as Lambda's init
/// phase.
const BOOT: Duration = Duration::from_secs(10);
/// How long sending an invocation's spans to a collector may take before the next event is requested.
const FLUSH: Duration = Duration::from_secs(1);
/// Media type of a streamed response with a prelude.
const WITH_PRELUDE: &str = "application/vnd.awslambda.http-integration-response";

/// Advice for an HTTP application whose response is too large.
const STREAM_IT: &str = ", or stream it (`lambda.streaming`)";

/// The result of an invocation.
#[derive(Debug)]
enum Outcome {
    /// A buffered response.
    Whole(Vec<u8>),
    /// A streamed response and its prelude.
    Stream { prelude: Vec<u8>, body: ResponseBody },
    /// The function's own error, in the API's format.
    FunctionError { kind: String, cause: String, error: Bytes },
}

/// A lane; see the module documentation.
#[derive(Debug)]
pub(super) struct Lane {
    client: Client,
    options: Arc<Options>,
    pool: Pool,
    /// Whether it was logged that functions serve no files.
    told_of_files: AtomicBool,
    /// No invocation has been served yet.
    cold: Arc<AtomicBool>,
}

impl Lane {
    pub(super) fn new(
        api: Arc<str>,
        options: Arc<Options>,
        pool: Pool,
        cold: Arc<AtomicBool>,
    ) -> Self {
        let told_of_files = AtomicBool::new(false);
        Self { client: Client::new(api), options, pool, told_of_files, cold }
    }

    /// Serves invocations until `drain` is cancelled.
    pub(super) async fn run(mut self, drain: CancellationToken) -> Result<(), Failed> {
        let next = format!("GET {BASE}/invocation/next HTTP/1.1\r\n");
        let call = Call { name: "next", head: &next, body: None, patience: None };
        let drained = drain.cancelled();
        tokio::pin!(drained);
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.client.send(call) => accepted(call.name, answer?)?,
                () = &mut drained => {
                    self.client.disconnect();
                    return Ok(());
                }
            };
            let Some(invocation) = Invocation::new(answer) else {
                return Err(Failed::Api("`next` names no invocation".into()));
            };
            let span = error_span!("invocation", request.id = %invocation.id, trace.id = invocation.trace());
            self.serve(&invocation).instrument(span).await?;
            if self.options.lanes.get() == 1 {
                self.pool.quiet().await;
                let patience =
                    BOOT.min(invocation.left().saturating_sub(self.options.deadline_margin));
                tokio::select! {
                    _ = tokio::time::timeout(patience, self.pool.restored()) => {}
                    () = &mut drained => {}
                }
                // The environment may be frozen from now on, possibly forever.
                if let Some(tracer) = &self.options.tracer {
                    // The rest of the time is the platform's: an invocation that exceeds its time has failed,
                    // answered or not.
                    tracer.flush(FLUSH.min(invocation.left() / 2)).await;
                }
            }
            if drain.is_cancelled() {
                return Ok(());
            }
        }
    }

    async fn serve(&mut self, invocation: &Invocation) -> Result<(), Failed> {
        let mut trace = Trace::default();
        match self.outcome(invocation, &mut trace).await {
            Ok(Outcome::Whole(response)) => {
                let head = format!(
                    "POST {BASE}/invocation/{}/response HTTP/1.1\r\nContent-Type: application/json\r\n",
                    invocation.id
                );
                self.post(invocation, "response", &head, &response).await
            }
            Ok(Outcome::Stream { prelude, body }) => {
                self.stream(invocation, prelude, body, &mut trace).await
            }
            Ok(Outcome::FunctionError { kind, cause, error }) => {
                trace.fail(&kind, "function failed");
                error!(request.id = &*invocation.id, kind, "function failed");
                self.report_error(invocation, &kind, &cause, &error).await
            }
            Err(report) => {
                trace.failed(&report);
                let Report { kind, message, .. } = &report;
                error!(request.id = &*invocation.id, kind, reason = message, "invocation failed");
                self.report(invocation, &report).await
            }
        }
    }

    async fn outcome(&self, invocation: &Invocation, trace: &mut Trace) -> Result<Outcome, Report> {
        match &self.options.target {
            Target::Http(_) if event::is_warmer(&invocation.event) => {
                Ok(Outcome::Whole(b"[\"Lambda is warm\"]".to_vec()))
            }
            Target::Http(script) => {
                let reading = Reading {
                    keep_stage: self.options.stage_prefix,
                    websocket: self.options.websocket.as_deref(),
                };
                let mut decoded = event::decode(&invocation.event, reading)
                    .map_err(|error| Report::of_hearth("BadEvent", chain(&error)))?;
                let shape = decoded.shape;
                let uri = decoded.parts.uri.clone();
                *trace = self.trace(invocation, Some(&mut decoded.parts));
                let carried = trace.carried.take();
                let own = self.options.websocket_script.as_ref();
                let script = own.filter(|_| shape == Shape::WebSocket).unwrap_or(script);
                let request = self.http_request(script, decoded, invocation, carried);
                let answer = self.pool.dispatch(request).await.map_err(|error| failure(&error))?;
                trace.answered(answer.status());
                if answer.status() == StatusCode::NOT_FOUND {
                    self.tell_of_files(script, &uri);
                }
                self.http_outcome(shape, answer).await
            }
            Target::Function(script) => {
                *trace = self.trace(invocation, None);
                let carried = trace.carried.take();
                let request = self.function_request(script, invocation, carried);
                let answer = self.pool.dispatch(request).await.map_err(|error| failure(&error))?;
                self.function_outcome(answer).await
            }
        }
    }

    fn trace(&self, invocation: &Invocation, request: Option<&mut Parts>) -> Trace {
        let cold = self.cold.swap(false, Ordering::Relaxed);
        let Some(tracer) = &self.options.tracer else { return Trace::default() };
        let request = request.map(|parts| (&parts.method, parts.uri.path(), &mut parts.headers));
        Trace::begin(tracer, invocation, cold, request)
    }

    /// Logs where a file belongs that PHP does not know, because nothing else on Lambda serves it.
    fn tell_of_files(&self, script: &Script, uri: &Uri) {
        let Some(file) = files::named(&script.document_root, uri.path()) else { return };
        if !self.told_of_files.swap(true, Ordering::Relaxed) {
            warn!(
                url.path = uri.path(),
                file = %file.display(),
                hint = "functions serve no files: put them into S3 behind CloudFront (guide/lambda.md)",
                "file not served"
            );
        }
    }

    async fn http_outcome(
        &self,
        shape: Shape,
        answer: Response<ResponseBody>,
    ) -> Result<Outcome, Report> {
        let (head, body) = answer.into_parts();
        let reply = Reply { status: head.status, headers: &head.headers };
        if self.options.streaming && shape != Shape::WebSocket {
            let mut prelude = Vec::with_capacity(512);
            reply.write_prelude(&mut prelude, shape);
            return Ok(Outcome::Stream { prelude, body });
        }
        let body = whole(body, STREAM_IT).await?;
        let mut response = Vec::new();
        reply.write(&mut response, shape, &body);
        if response.len() > MAX_RESPONSE {
            return Err(too_large(body.len(), STREAM_IT));
        }
        Ok(Outcome::Whole(response))
    }

    async fn function_outcome(&self, answer: Response<ResponseBody>) -> Result<Outcome, Report> {
        // Buffered even with streaming: Lambda, or a gateway, needs the whole result of a function to build the
        // response.
        let (head, body) = answer.into_parts();
        let Answered { body, error, printed } =
            Answered::read(&head.headers, whole(body, "").await?);
        for line in printed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            info!("{}", String::from_utf8_lossy(line));
        }
        Ok(match error {
            Some((kind, cause)) => Outcome::FunctionError { kind, cause, error: body },
            None => Outcome::Whole(body.into()),
        })
    }

    fn http_request(
        &self,
        script: &Script,
        decoded: Decoded,
        invocation: &Invocation,
        trace: Option<Carried>,
    ) -> Request<Full<Bytes>> {
        let mut parts = decoded.parts;
        if let Some(trace) = invocation.trace_value() {
            parts.headers.insert(HeaderName::from_static("x-amzn-trace-id"), trace.clone());
        }
        let mut script = script.clone();
        if let Some(stage) = decoded.stage.filter(|_| self.options.stage_prefix) {
            script.name = format!("{stage}{}", script.name).into();
        }
        if let Some(rest) = parts.uri.path().strip_prefix(&*script.name)
            && rest.starts_with('/')
        {
            script.path_info = rest.into();
        }
        let mut variables = variables(invocation);
        variables.push(("LAMBDA_REQUEST_CONTEXT", decoded.request_context));
        variables.extend(decoded.variables);
        parts.extensions.insert(RequestContext {
            script,
            remote: SocketAddr::new(decoded.remote, 0),
            local: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), decoded.server_port),
            scheme: decoded.scheme,
            server_name: decoded.server_name.into(),
            server_port: decoded.server_port,
            remote_user: None,
            id: RequestId(Arc::clone(&invocation.id)),
            hints: None,
            observer: None,
            deadline: Some(self.deadline(invocation)),
            trace,
            variables,
        });
        Request::from_parts(parts, Full::new(decoded.body))
    }

    fn function_request(
        &self,
        script: &Script,
        invocation: &Invocation,
        trace: Option<Carried>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(invocation.event.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/");
        let length = HeaderValue::from(invocation.event.len());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(CONTENT_LENGTH, length);
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
        request.extensions_mut().insert(RequestContext {
            script: script.clone(),
            remote: local,
            local,
            scheme: Scheme::Http,
            server_name: "localhost".into(),
            server_port: local.port(),
            remote_user: None,
            id: RequestId(Arc::clone(&invocation.id)),
            hints: None,
            observer: None,
            deadline: Some(self.deadline(invocation)),
            trace,
            variables: variables(invocation),
        });
        request
    }

    /// Returns when the worker is stopped: a margin before the invocation ends, or half-way there if little time is
    /// left.
    fn deadline(&self, invocation: &Invocation) -> Instant {
        let left = invocation.left();
        let margin = self.options.deadline_margin.min(left / 2);
        Instant::now() + left.saturating_sub(margin)
    }

    async fn report(&mut self, invocation: &Invocation, report: &Report) -> Result<(), Failed> {
        self.report_error(invocation, &report.kind, &report.cause(), &report.json()).await
    }

    async fn report_error(
        &mut self,
        invocation: &Invocation,
        kind: &str,
        cause: &str,
        error: &[u8],
    ) -> Result<(), Failed> {
        let head = error_head(&format!("{BASE}/invocation/{}/error", invocation.id), kind, cause);
        self.post(invocation, "error", &head, error).await
    }

    async fn post(
        &mut self,
        invocation: &Invocation,
        name: &'static str,
        head: &str,
        body: &[u8],
    ) -> Result<(), Failed> {
        let patience = Some(self.options.api_timeout);
        let call = Call { name, head, body: Some(body), patience };
        let sent = self.client.send(call).await;
        taken(invocation, sent.and_then(|answer| accepted(name, answer)))
    }

    /// Streams a response: no faster than the API reads it, which in turn limits PHP.
    async fn stream(
        &mut self,
        invocation: &Invocation,
        prelude: Vec<u8>,
        mut body: ResponseBody,
        trace: &mut Trace,
    ) -> Result<(), Failed> {
        let head = format!(
            "POST {BASE}/invocation/{}/response HTTP/1.1\r\nContent-Type: {WITH_PRELUDE}\r\n\
             Lambda-Runtime-Function-Response-Mode: streaming\r\nTransfer-Encoding: chunked\r\n\
             Trailer: Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body\r\n",
            invocation.id
        );
        let mut upload = self.client.upload("response", &head, self.options.api_timeout);
        let sent = async {
            upload.begin(&prelude).await?;
            loop {
                let piece = tokio::select! {
                    biased;
                    piece = next_piece(&mut body) => piece,
                    // It responds before it has read everything: it rejects the rest.
                    () = upload.is_interrupted() => break,
                };
                match piece {
                    Some(Ok(piece)) => upload.write(&piece).await?,
                    Some(Err(cut)) => {
                        let report = Report::of_hearth("AnswerCut", cut.to_string());
                        trace.failed(&report);
                        let reason = &report.message;
                        error!(
                            request.id = &*invocation.id,
                            kind = report.kind,
                            reason,
                            "stream failed"
                        );
                        let trailers = format!(
                            "Lambda-Runtime-Function-Error-Type: {}\r\nLambda-Runtime-Function-Error-Body: {}\r\n",
                            report.kind,
                            STANDARD.encode(report.json())
                        );
                        return upload.end(&trailers).await;
                    }
                    None => return upload.end("").await,
                }
            }
            upload.answer().await
        };
        let sent = sent.await;
        // PHP stops when its output is not read.
        drop(body);
        match sent {
            Ok(answer) if answer.head.status.is_success() => Ok(()),
            Err(error @ (ApiError::Lost { .. } | ApiError::Malformed { .. })) => {
                debug!(%error, "stream not accepted");
                let report = Report::of_hearth("StreamLost", error.to_string());
                self.report(invocation, &report).await
            }
            sent => {
                let sent = sent.and_then(|answer| accepted("response", answer));
                self.client.disconnect();
                taken(invocation, sent)
            }
        }
    }
}

/// Decides what a rejected response means for further invocations.
fn taken<T>(invocation: &Invocation, sent: Result<T, ApiError>) -> Result<(), Failed> {
    match sent {
        Ok(_) => Ok(()),
        // The platform has ended the invocation, or received its response over a connection that was lost afterwards.
        Err(refused @ ApiError::Refused { .. }) => {
            error!(request.id = &*invocation.id, error = %refused, "response not accepted");
            Ok(())
        }
        // The invocation is lost; the next one may succeed.
        Err(ApiError::Stalled { api, call, patience }) => {
            error!(
                request.id = &*invocation.id,
                api = &*api,
                call,
                ?patience,
                "response not accepted in time"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the `$_SERVER` variables of an invocation.
fn variables(invocation: &Invocation) -> Vec<(&'static str, Bytes)> {
    let mut variables = Vec::with_capacity(3);
    variables.push(("LAMBDA_INVOCATION_CONTEXT", invocation.context()));
    if let Some(trace) = invocation.trace_value() {
        variables.push(("_X_AMZN_TRACE_ID", Bytes::copy_from_slice(trace.as_bytes())));
    }
    variables
}
