//! The Runtime API's client and the loop that serves invocations: next, request, answer, response.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>
//!
//! Invariants
//! - A lane has one invocation at a time, and there are at most as many lanes as workers: no invocation waits for another's worker.
//! - What the platform cannot go on with (its own failure, nobody to answer) ends the program; what one invocation cannot go on with
//!   ends that invocation.

mod client;
mod extension;
mod files;
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
    /// Register an extension, so that the platform asks for an end before it ends the environment.
    pub extension: bool,
    /// How long the Runtime API may take to accept something.
    pub api_timeout: Duration,
    /// Begins a span for each invocation, if anybody wants spans.
    pub tracer: Option<Tracer>,
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
    #[error("no more invocations can be served")]
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
        let mut beside = JoinSet::new();
        // Before the first `next`: then registration closes.
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
            // No other task, so nothing to switch between.
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
                // One lane's end is the end of all: they have the same platform.
                drain.cancel();
                outcome = ended;
            }
        }
        outcome
    }
}

/// Tells the Runtime API that the init phase failed. The program has to end then.
pub async fn report_init_error(api: &str, report: &Report) -> Result<(), Failed> {
    tell(api, "init/error", report).await
}

/// Waits until the environment was restored from a snapshot of it (`AWS_LAMBDA_INITIALIZATION_TYPE=snap-start`). To be called when the
/// application is booted, in place of the first `next`.
pub async fn wait_for_restore(api: &str) -> Result<(), Failed> {
    let mut client = Client::new(api.into());
    let head = format!("GET {BASE}/restore/next HTTP/1.1\r\n");
    let call = Call { name: "restore/next", head: &head, body: None, patience: None };
    accepted("restore/next", client.send(call).await?)?;
    Ok(())
}

/// Tells the Runtime API that what had to be done after the restore has failed. The program has to end then.
pub async fn report_restore_error(api: &str, report: &Report) -> Result<(), Failed> {
    tell(api, "restore/error", report).await
}

async fn tell(api: &str, name: &'static str, report: &Report) -> Result<(), Failed> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut client = Client::new(api.into());
    let head = error_head(&format!("{BASE}/{name}"), &report.kind, &report.cause());
    let body = report.json();
    let call = Call { name, head: &head, body: Some(&body), patience: Some(PATIENCE) };
    match accepted(name, client.send(call).await?) {
        Ok(_) => debug!(call = name, "told"),
        Err(error) => warn!(%error, "error not taken"),
    }
    Ok(())
}

/// The answer, unless it says that the call failed.
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

/// The head of a request that carries an error. `cause`: what X-Ray is told of it; empty: nothing.
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
