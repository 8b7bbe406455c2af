//! The Runtime API's client and the loop that serves invocations: next, request, answer, response.
//!
//! Invariants
//! - A lane has one invocation at a time, and there are as many lanes as workers: no invocation waits for another's worker.
//! - What a platform cannot go on with (its own failure, no way to answer) ends the program; what one invocation cannot go on with ends
//!   that invocation.

mod client;
mod invocation;
mod report;
mod wire;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use pool::{Pool, RequestContext, RequestId, Scheme, Script};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::event::{self, Decoded, Reading, Reply};
use client::{ApiError, Call, Client};
use invocation::Invocation;
pub use report::Report;

/// The version of the Runtime API in its paths.
const BASE: &str = "/2018-06-01/runtime";
/// A buffered response may have 6 MiB and this (`MaxPayloadSize` of the AWS emulator).
const MAX_RESPONSE: usize = 6 * 1024 * 1024 + 100;
/// By this field of its answer a function's script says that the body is its error.
const ERROR_TYPE: &str = "lambda-runtime-function-error-type";
/// How long the API may take to accept a response.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the front serves invocations. `server::config` fills it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host and port of the Runtime API, as `AWS_LAMBDA_RUNTIME_API` has them.
    pub api: String,
    /// What answers events.
    pub target: Target,
    /// How many invocations run at once.
    pub lanes: NonZeroUsize,
    /// How long before an invocation's deadline its worker is stopped, so that there is time to say so.
    pub deadline_margin: Duration,
    /// Answers are sent as they come, not when they are whole.
    pub streaming: bool,
    /// The application sees the stage at the beginning of its paths.
    pub stage_prefix: bool,
}

/// What answers events.
#[derive(Clone, Debug)]
pub enum Target {
    /// An HTTP application: events are requests that a gateway took. The script answers whatever the path is.
    Http(Script),
    /// A function: it gets every event as it is, and its result is the response. The script speaks as docs/internals/lambda.md says.
    Function(Script),
}

/// Why the front cannot go on. The program ends with 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The Runtime API failed, or is gone, or does not speak as it should.
    #[error("no more invocations")]
    Api(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

/// The Runtime API, to be asked for invocations.
#[derive(Debug)]
pub struct Runtime {
    options: Options,
    api: Arc<str>,
}

impl Runtime {
    /// Connects to nothing yet.
    pub fn new(options: Options) -> Self {
        let api = options.api.as_str().into();
        Self { options, api }
    }

    /// Serves invocations until `drain` is cancelled and those that run are answered.
    pub async fn serve(self, pool: Pool, drain: CancellationToken) -> Result<(), Failed> {
        let options = Arc::new(self.options);
        let lane = |api: &Arc<str>| Lane {
            client: Client::new(Arc::clone(api)),
            options: Arc::clone(&options),
            pool: pool.clone(),
        };
        if options.lanes.get() == 1 {
            return lane(&self.api).run(drain).await;
        }
        let mut lanes = JoinSet::new();
        for _ in 0..options.lanes.get() {
            lanes.spawn(lane(&self.api).run(drain.clone()));
        }
        let mut outcome = Ok(());
        while let Some(ended) = lanes.join_next().await {
            let ended = ended.unwrap_or_else(|panic| Err(Failed::Api(Box::new(panic))));
            if outcome.is_ok() && ended.is_err() {
                // One lane's end is the end of all: the platform has failed.
                drain.cancel();
                outcome = ended;
            }
        }
        outcome
    }
}

/// Tells the Runtime API that the init phase failed. The program has to end then.
pub async fn report_init_error(api: &str, report: &Report) -> Result<(), Failed> {
    let mut client = Client::new(api.into());
    let head = error_head(&format!("{BASE}/init/error"), &report.kind);
    let body = report.json();
    let call = Call {
        name: "init/error",
        head: &head,
        body: Some(&body),
        patience: Some(Duration::from_secs(5)),
    };
    let answer = client.send(call).await?;
    if !answer.status.is_success() {
        warn!(status = answer.status.as_u16(), "init error was not taken");
    }
    Ok(())
}

/// What an invocation comes to.
#[derive(Debug)]
enum Outcome {
    /// Its response.
    Response(Vec<u8>),
    /// The function's own error, in the API's shape.
    FunctionError { kind: String, error: Bytes },
}

/// One connection to the API, on which one invocation after the other is served.
struct Lane {
    client: Client,
    options: Arc<Options>,
    pool: Pool,
}

impl Lane {
    async fn run(mut self, drain: CancellationToken) -> Result<(), Failed> {
        let next = format!("GET {BASE}/invocation/next HTTP/1.1\r\n");
        let call = Call { name: "next", head: &next, body: None, patience: None };
        let drained = drain.cancelled();
        tokio::pin!(drained);
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.client.send(call) => answer?,
                () = &mut drained => {
                    self.client.disconnect();
                    return Ok(());
                }
            };
            let answer = accepted("next", answer)?;
            let Some(invocation) = Invocation::new(answer) else {
                return Err(Failed::Api("`next` names no invocation".into()));
            };
            self.serve(&invocation).await?;
        }
    }

    async fn serve(&mut self, invocation: &Invocation) -> Result<(), Failed> {
        match self.answer(invocation).await {
            Ok(Outcome::Response(response)) => {
                let head = format!(
                    "POST {BASE}/invocation/{}/response HTTP/1.1\r\nContent-Type: application/json\r\n",
                    invocation.id
                );
                self.post(invocation, "response", &head, &response).await
            }
            Ok(Outcome::FunctionError { kind, error }) => {
                error!(request.id = &*invocation.id, kind, "function failed");
                self.report(invocation, &kind, &error).await
            }
            Err(report) => {
                let reason = &report.message;
                error!(
                    request.id = &*invocation.id,
                    kind = report.kind,
                    reason,
                    "invocation failed"
                );
                self.report(invocation, &report.kind, &report.json()).await
            }
        }
    }

    /// What the invocation comes to, whole.
    async fn answer(&mut self, invocation: &Invocation) -> Result<Outcome, Report> {
        let (request, shape) = match &self.options.target {
            Target::Http(_) if event::is_warmer(&invocation.event) => {
                return Ok(Outcome::Response(b"[\"Lambda is warm\"]".to_vec()));
            }
            Target::Http(script) => {
                let reading = Reading { keep_stage: self.options.stage_prefix };
                let decoded = event::decode(&invocation.event, reading)
                    .map_err(|error| Report::of_hearth("BadEvent", error.to_string()))?;
                let shape = decoded.shape;
                (self.http_request(script, decoded, invocation), Some(shape))
            }
            Target::Function(script) => (self.function_request(script, invocation), None),
        };
        let answer = self.pool.dispatch(request).await.map_err(|error| {
            let reason = match error {
                pool::DispatchError::TimedOut { .. } => "TimedOut",
                pool::DispatchError::WorkerDied { .. } => "WorkerDied",
                _ => "NoAnswer",
            };
            Report::of_hearth(reason, error.to_string())
        })?;
        let (head, body) = answer.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|cut| Report::of_hearth("AnswerCut", cut.to_string()))?
            .to_bytes();
        let Some(shape) = shape else {
            if body.len() > MAX_RESPONSE {
                return Err(too_large(body.len()));
            }
            return Ok(match head.headers.get(ERROR_TYPE) {
                None => Outcome::Response(body.into()),
                Some(kind) => Outcome::FunctionError {
                    kind: String::from_utf8_lossy(kind.as_bytes()).into_owned(),
                    error: body,
                },
            });
        };
        let mut response = Vec::new();
        Reply { status: head.status, headers: &head.headers }.write(&mut response, shape, &body);
        if response.len() > MAX_RESPONSE {
            return Err(too_large(response.len()));
        }
        Ok(Outcome::Response(response))
    }

    fn http_request(
        &self,
        script: &Script,
        decoded: Decoded,
        invocation: &Invocation,
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
        let mut variables = self.variables(invocation);
        variables.push(("LAMBDA_REQUEST_CONTEXT", decoded.request_context));
        let context = RequestContext {
            script,
            remote: SocketAddr::new(decoded.remote, 0),
            local: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), decoded.server_port),
            scheme: decoded.scheme,
            server_name: decoded.server_name.into(),
            server_port: decoded.server_port,
            remote_user: None,
            id: RequestId(Arc::clone(&invocation.id)),
            hints: None,
            deadline: self.deadline(invocation),
            variables,
        };
        parts.extensions.insert(context);
        Request::from_parts(parts, Full::new(decoded.body))
    }

    fn function_request(&self, script: &Script, invocation: &Invocation) -> Request<Full<Bytes>> {
        let event = invocation.event.clone();
        let mut request = Request::new(Full::new(event));
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
            deadline: self.deadline(invocation),
            variables: self.variables(invocation),
        });
        request
    }

    fn variables(&self, invocation: &Invocation) -> Vec<(&'static str, Bytes)> {
        let mut variables = Vec::with_capacity(3);
        variables.push(("LAMBDA_INVOCATION_CONTEXT", invocation.context()));
        if let Some(trace) = invocation.trace_value() {
            variables.push(("_X_AMZN_TRACE_ID", Bytes::copy_from_slice(trace.as_bytes())));
        }
        variables
    }

    /// When the worker is stopped: a margin before the invocation ends, or half-way there when little is left.
    fn deadline(&self, invocation: &Invocation) -> Option<Instant> {
        let left = invocation.left();
        let margin = self.options.deadline_margin.min(left / 2);
        Some(Instant::now() + (left - margin))
    }

    async fn report(
        &mut self,
        invocation: &Invocation,
        kind: &str,
        error: &[u8],
    ) -> Result<(), Failed> {
        let head = error_head(&format!("{BASE}/invocation/{}/error", invocation.id), kind);
        self.post(invocation, "error", &head, error).await
    }

    async fn post(
        &mut self,
        invocation: &Invocation,
        name: &'static str,
        head: &str,
        body: &[u8],
    ) -> Result<(), Failed> {
        let call = Call { name, head, body: Some(body), patience: Some(PATIENCE) };
        match accepted(name, self.client.send(call).await?) {
            Ok(_) => Ok(()),
            Err(refused @ ApiError::Refused { .. }) => {
                // The platform has ended the invocation, or had its answer from a connection that was lost behind it.
                error!(request.id = &*invocation.id, error = %refused, "answer not taken");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The answer, unless it says that the call failed.
fn accepted(call: &'static str, answer: wire::Answer) -> Result<wire::Answer, ApiError> {
    let status = answer.status;
    if status.is_success() {
        return Ok(answer);
    }
    let text = String::from_utf8_lossy(&answer.body).chars().take(500).collect();
    Err(if status.is_client_error() {
        ApiError::Refused { call, status, answer: text }
    } else {
        ApiError::Platform { call, status, answer: text }
    })
}

fn error_head(path: &str, kind: &str) -> String {
    let kind: String = kind.chars().filter(char::is_ascii_graphic).take(256).collect();
    format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/vnd.aws.lambda.error+json\r\n\
         Lambda-Runtime-Function-Error-Type: {kind}\r\n"
    )
}

fn too_large(length: usize) -> Report {
    Report::of_hearth(
        "ResponseTooLarge",
        format!(
            "the response has {length} bytes, and Lambda takes {MAX_RESPONSE}: send less, or stream it (`lambda.streaming`)"
        ),
    )
}
