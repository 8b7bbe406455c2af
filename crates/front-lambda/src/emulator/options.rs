//! Settings of an emulator.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Integration, LogTail};

/// Settings of an emulator.
#[derive(Clone)]
pub struct Options {
    /// Address of all services: the Runtime API, invocations, and plain HTTP. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The integration of plain HTTP requests.
    pub integration: Integration,
    /// Whether the integration streams responses (`RESPONSE_STREAM`, `STREAM`) instead of buffering them.
    pub streams: bool,
    /// How long one invocation may take, from its delivery until the runtime asks for the next.
    pub timeout: Duration,
    /// Reported memory size of the environment, in MB.
    pub memory_size: u32,
    /// Maximum number of concurrent invocations: above 1 the rules of managed instances apply, and several `next`
    /// calls wait at once.
    pub concurrency: NonZeroUsize,
    /// Maximum number of invocations waiting for the runtime; a further one is throttled (429).
    pub backlog: usize,
    /// Whether `restore/next` is available, as with the initialization type `snap-start`.
    pub snap_start: bool,
    /// Names of external extensions: only those may register for SHUTDOWN.
    pub external_extensions: Vec<String>,
    /// Identity of the function.
    pub function: Function,
    /// Start of the initialization: until the first `next` it is the `Init Duration`.
    pub began: Instant,
    /// Returns the peak memory of the environment in bytes.
    pub memory_used: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Receives the lines that AWS writes into the function's log: `START`, `END`, `REPORT`.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
    /// The end of the log, for callers that request it.
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
    /// Returns a Function URL on a free port of loopback, with the limits of the AWS emulator (300 s, 3008 MB).
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

/// Identity of the function, for the runtime and in events.
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
    /// Reported account number: the one of AWS's documentation.
    pub(super) const ACCOUNT: &str = "123456789012";

    /// Returns its ARN.
    pub(super) fn arn(&self) -> String {
        format!("arn:aws:lambda:{}:{}:function:{}", self.region, Self::ACCOUNT, self.name)
    }
}

impl Default for Function {
    /// Returns the names that the AWS emulator uses.
    fn default() -> Self {
        Self {
            name: "test_function".into(),
            version: "$LATEST".into(),
            handler: String::new(),
            region: "us-east-1".into(),
        }
    }
}
