//! What an emulator is told when it starts.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Integration, LogTail};

/// How the emulator behaves.
#[derive(Clone)]
pub struct Options {
    /// Where everything is served: the Runtime API, invocations, and the HTTP face. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// As what plain HTTP requests reach the function.
    pub integration: Integration,
    /// Whether the integration passes streamed answers on as they come (`RESPONSE_STREAM`, `STREAM`); else it takes them whole.
    pub streams: bool,
    /// How long one invocation may take, from its delivery until the runtime asks for the next.
    pub timeout: Duration,
    /// What the environment is said to have, in MB.
    pub memory_size: u32,
    /// How many invocations may run at once: above 1 the rules of managed instances hold, where several `next` wait at once.
    pub concurrency: NonZeroUsize,
    /// How many invocations may wait for the runtime; a further one is throttled (429).
    pub backlog: usize,
    /// Whether `restore/next` exists, as where the initialization type is `snap-start`.
    pub snap_start: bool,
    /// Names of extensions that are programs of their own: only those may ask for SHUTDOWN.
    pub external_extensions: Vec<String>,
    /// Who the function is.
    pub function: Function,
    /// When the initialization began: until the first `next` it is the `Init Duration`.
    pub began: Instant,
    /// The most memory that the environment has had, in bytes.
    pub memory_used: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Takes the lines that AWS writes into the function's log: `START`, `END`, `REPORT`.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
    /// The end of the log, for callers that ask for it.
    pub tail: LogTail,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("integration", &self.integration)
            .field("concurrency", &self.concurrency)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    /// A Function URL on a free port of loopback, with the limits of the AWS emulator (300 s, 3008 MB).
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            integration: Integration::FunctionUrl,
            streams: false,
            timeout: Duration::from_mins(5),
            memory_size: 3008,
            concurrency: NonZeroUsize::MIN,
            backlog: 100,
            snap_start: false,
            external_extensions: Vec::new(),
            function: Function::default(),
            began: Instant::now(),
            memory_used: Arc::new(|| 0),
            say: Arc::new(drop_line),
            tail: LogTail::default(),
        }
    }
}

fn drop_line(_: &str) {}

/// Who the function is, to the runtime and in events.
#[derive(Clone, Debug)]
pub struct Function {
    /// `AWS_LAMBDA_FUNCTION_NAME`.
    pub name: String,
    /// `AWS_LAMBDA_FUNCTION_VERSION`.
    pub version: String,
    /// `_HANDLER`.
    pub handler: String,
    /// `AWS_REGION`.
    pub region: String,
}

impl Function {
    /// The account that it is said to belong to: the one of AWS's documentation.
    pub(super) const ACCOUNT: &str = "123456789012";

    /// Its ARN.
    pub(super) fn arn(&self) -> String {
        format!("arn:aws:lambda:{}:{}:function:{}", self.region, Self::ACCOUNT, self.name)
    }
}

impl Default for Function {
    /// The names that the AWS emulator gives.
    fn default() -> Self {
        Self {
            name: "test_function".into(),
            version: "$LATEST".into(),
            handler: String::new(),
            region: "us-east-1".into(),
        }
    }
}
