//! The loop that serves invocations through the Runtime API: next, request, response.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>
//!
//! Invariants
//! - A lane has one invocation at a time, and there are at most as many lanes as workers: no invocation waits for
//!   another's answer.
//! - An error of the platform ends the program; an error of one invocation ends only that invocation.

mod answer;
mod client;
mod extension;
mod files;
mod function;
mod invocation;
mod lane;
mod report;
mod trace;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http1::Response;
use pool::{Pool, Script};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use traces::Tracer;
use tracing::{debug, warn};

use client::{ApiError, Call, Client};
use lane::Lane;
pub use report::Report;

/// The version of the Runtime API in its paths.
const BASE: &str = "/2018-06-01/runtime";

/// Settings of the front. `server::config` fills them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host and port of the Runtime API, as in `AWS_LAMBDA_RUNTIME_API`.
    pub api: String,
    /// The target of events.
    pub target: Target,
    /// Maximum number of concurrent invocations.
    pub lanes: NonZeroUsize,
    /// How long before an invocation's deadline its worker is stopped, so that there is time to report it.
    pub deadline_margin: Duration,
    /// Streams responses instead of buffering them.
    pub streaming: bool,
    /// The application's paths include the stage.
    pub stage_prefix: bool,
    /// The path that handles events of API Gateway's WebSockets, if the application has one.
    pub websocket: Option<String>,
    /// The script that answers those events, if it is not the one of all other paths.
    pub websocket_script: Option<Script>,
    /// Registers an extension, so that the platform sends SIGTERM before it ends the environment.
    pub extension: bool,
    /// How long the Runtime API may take to accept a request.
    pub api_timeout: Duration,
    /// Starts a span for each invocation, if tracing is on.
    pub tracer: Option<Tracer>,
}

/// The target of events.
#[derive(Clone, Debug)]
pub enum Target {
    /// An HTTP application: events are requests received by a gateway. The script answers all paths.
    Http(Script),
    /// A function: it gets every event unchanged, and its result is the response. docs/internals/lambda.md describes
    /// the script's interface.
    Function(Script),
}

/// Reasons why the front cannot continue. The program exits with 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The Runtime API failed, is gone, or violated its protocol.
    #[error("no more invocations can be served")]
    Api(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

/// A client of the Runtime API that serves invocations.
#[derive(Debug)]
pub struct Runtime {
    options: Options,
    api: Arc<str>,
}

impl Runtime {
    /// Creates the client without connecting.
    pub fn new(options: Options) -> Self {
        let api = options.api.as_str().into();
        Self { options, api }
    }

    /// Serves invocations until `drain` is cancelled and those in progress are answered.
    pub async fn serve(self, pool: Pool, drain: CancellationToken) -> Result<(), Failed> {
        let mut beside = JoinSet::new();
        // Before the first `next`, which closes registration.
        if self.options.extension
            && let Some(extension) = extension::register(&self.api).await
        {
            beside.spawn(extension.watch(drain.clone()));
        }
        let count = self.options.lanes.get();
        let options = Arc::new(self.options);
        let cold = Arc::new(AtomicBool::new(true));
        let lane = || {
            let (api, options) = (Arc::clone(&self.api), Arc::clone(&options));
            Lane::new(api, options, pool.clone(), Arc::clone(&cold))
        };
        if count == 1 {
            // There is no other task, so the future runs directly.
            return lane().run(drain).await;
        }
        let mut lanes = JoinSet::new();
        for _ in 0..count {
            lanes.spawn(lane().run(drain.clone()));
        }
        let mut outcome = Ok(());
        while let Some(ended) = lanes.join_next().await {
            let ended = ended.unwrap_or_else(|panic| Err(Failed::Api(Box::new(panic))));
            if outcome.is_ok() && ended.is_err() {
                // All lanes end together, because they have the same platform.
                drain.cancel();
                outcome = ended;
            }
        }
        outcome
    }
}

/// Reports to the Runtime API that the init phase failed. The program must exit afterwards.
pub async fn report_init_error(api: &str, report: &Report) -> Result<(), Failed> {
    report_error(api, "init/error", report).await
}

/// Waits until the environment was restored from its snapshot (`AWS_LAMBDA_INITIALIZATION_TYPE=snap-start`). Call it
/// when the application is booted, before the first `next`.
pub async fn wait_for_restore(api: &str) -> Result<(), Failed> {
    let mut client = Client::new(api.into());
    let head = format!("GET {BASE}/restore/next HTTP/1.1\r\n");
    let call = Call { name: "restore/next", head: &head, body: None, patience: None };
    accepted("restore/next", client.send(call).await?)?;
    Ok(())
}

/// Reports to the Runtime API that the work after the restore has failed. The program must exit afterwards.
pub async fn report_restore_error(api: &str, report: &Report) -> Result<(), Failed> {
    report_error(api, "restore/error", report).await
}

async fn report_error(api: &str, name: &'static str, report: &Report) -> Result<(), Failed> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut client = Client::new(api.into());
    let head = error_head(&format!("{BASE}/{name}"), &report.kind, &report.cause());
    let body = report.json();
    let call = Call { name, head: &head, body: Some(&body), patience: Some(PATIENCE) };
    match accepted(name, client.send(call).await?) {
        Ok(_) => debug!(call = name, "told"),
        Err(error) => warn!(%error, "error not accepted"),
    }
    Ok(())
}

/// Returns the response, or an error if the status is one.
fn accepted(call: &'static str, answer: Response) -> Result<Response, ApiError> {
    let status = answer.head.status;
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

/// Returns the head of an error request. `cause` is for X-Ray; empty for none.
fn error_head(path: &str, kind: &str, cause: &str) -> String {
    let kind: String = kind.chars().filter(char::is_ascii_graphic).take(256).collect();
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/vnd.aws.lambda.error+json\r\n\
         Lambda-Runtime-Function-Error-Type: {kind}\r\n"
    );
    if !cause.is_empty() && cause.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        head.push_str("Lambda-Runtime-Function-XRay-Error-Cause: ");
        head.push_str(cause);
        head.push_str("\r\n");
    }
    head
}
