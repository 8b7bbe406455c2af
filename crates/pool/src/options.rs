//! All settings of the pool, as types. `server::config` fills them; no other module has defaults.

use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::time::Duration;
use tokio::process::Command;

use crate::{BootFiles, BootTrace, EventSink, Identity, Model, PurgeSink, Sandbox, StartError};

/// Settings for running PHP.
#[derive(Clone, Debug)]
pub struct Options {
    /// Absolute path of `hearth-worker-8.x`; of php-fpm, php or php-cgi in the models of their names.
    pub program: PathBuf,
    /// Execution model.
    pub model: Model,
    /// Absolute path of the worker script; used by models that run one ([`Model::runs_worker_script`]).
    pub worker_script: Option<PathBuf>,
    /// The worker script is a script of the application, which waits for requests itself; `None` for a script with a loop.
    pub entry: Option<Entry>,
    /// Working directory of PHP: the application's folder.
    pub directory: PathBuf,
    /// Private folder for sockets and generated files; used by [`Model::Fpm`], [`Model::Builtin`] and [`Model::Cgi`].
    pub run_dir: PathBuf,
    /// `key=value` settings for PHP: these override php.ini, and `ini_set` overrides them.
    pub ini: Vec<(String, String)>,
    /// Environment variables set for PHP in addition to the server's own environment.
    pub env: Vec<(String, String)>,
    /// Variables of the server's own environment that are hidden from PHP.
    pub hidden: Vec<String>,
    /// User that PHP's processes run as; `None` for the server's user.
    pub identity: Option<Identity>,
    /// Requests that the zygote answers itself before it forks workers, so that code and caches are warm; for models
    /// that boot in the zygote. Each carries a [`crate::RequestContext`] in its extensions; PHP sees
    /// `$_SERVER['HEARTH_WARM_UP']`.
    pub warm_up: Vec<http::Request<()>>,
    /// Lets a discarded fork of the zygote answer the warm-up requests and report which classes it has loaded. The
    /// requests leave nothing behind, and less is warm.
    pub rehearse: bool,
    /// Share of restores after which a worker compares all its memory with the snapshot, 0 to 1 ([`Model::Snapshot`]).
    pub verify_restores: f64,
    /// Number of requests that run at once. It is the number of workers in resident models; one-shot models have up
    /// to twice as many processes: the running ones, and their waiting successors.
    pub workers: NonZeroUsize,
    /// Additional workers while requests wait; `None` for a fixed number. Not for models of PHP's own programs
    /// ([`Model::is_foreign`]).
    pub scaling: Option<Scaling>,
    /// Maximum number of requests waiting for a worker; one more gets [`crate::DispatchError::Overloaded`] at once.
    pub backlog: usize,
    /// How long a request may wait for a worker.
    pub backlog_timeout: Duration,
    /// How long requests may wait over a longer time. If all requests that got a worker within that time had waited
    /// longer, further ones that would are rejected at once. Requests that take long may wait four times as long as
    /// they take. `None` rejects only when the backlog is full.
    pub backlog_target: Option<Duration>,
    /// How long a worker may take for one request, from its dispatch to the end of its response; then it is killed.
    pub request_timeout: Option<Duration>,
    /// A request that runs longer is reported with its PHP stack ([`crate::SlowRequest`]); it continues.
    pub slow: Option<Duration>,
    /// How long PHP may take to start (including boot and warm-up, if the zygote boots the application), and a worker
    /// to boot.
    pub boot_timeout: Duration,
    /// A worker is recycled after this many requests (each worker adds up to a tenth at random, so that not all are
    /// recycled at once).
    pub max_requests: Option<NonZeroU64>,
    /// A worker whose resident memory exceeds this after a request is recycled.
    pub memory_limit: Option<ByteSize>,
    /// Restrictions of PHP's processes; `None` for those of their user only.
    pub sandbox: Option<Sandbox>,
    /// Sink of events that PHP publishes; without it they are rejected.
    pub events: Option<Arc<dyn EventSink>>,
    /// Sink of the tags that PHP purges; `None` without an answer cache.
    pub purges: Option<Arc<dyn PurgeSink>>,
    /// Receives the files that the boot has included; for models that boot before a request
    /// ([`Model::runs_worker_script`]).
    pub boot_files: Option<Arc<BootFiles>>,
    /// Receives what the boot reads beside code; for models that boot before a request. Every process that boots is slower then.
    pub boot_trace: Option<Arc<BootTrace>>,
}

impl Options {
    /// Returns the settings for a pool beside the one that serves: one worker, and nothing that others would learn of it.
    #[must_use]
    pub fn for_trial(self) -> Self {
        Self {
            workers: NonZeroUsize::MIN,
            scaling: None,
            events: None,
            purges: None,
            boot_files: None,
            boot_trace: None,
            slow: None,
            ..self
        }
    }

    /// Sets PHP's environment on a command.
    pub(crate) fn environment(&self, command: &mut Command) {
        for name in &self.hidden {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
    }
}

/// A script of the application that runs up to its wait point before the request comes (`hearth_await_request()`).
#[derive(Clone, Debug)]
pub struct Entry {
    /// The folder of URLs, for `$_SERVER` at boot.
    pub document_root: PathBuf,
    /// The file after whose inclusion the script waits; `None` if it calls the function itself.
    pub await_after: Option<PathBuf>,
    /// Whether the zygote loads the classes that warm-ups have loaded, by the application's autoloaders and without a
    /// request. Only for applications whose autoloaders and class files are known to do nothing else.
    pub learn_classes: bool,
    /// How all other scripts of the application run; `None` if this one answers all requests.
    pub others: Option<Others>,
}

/// How the scripts of an application run beside its front controller. All of them share its workers.
#[derive(Clone, Debug)]
pub struct Others {
    /// How scripts run that do not wait for their requests.
    pub rest: Box<Options>,
    /// How the workers of a group follow the load; its bounds are those of the front controller's options.
    pub idle_timeout: Duration,
    /// The maximum number of workers of a group that start at once.
    pub burst: NonZeroUsize,
    /// Tells which scripts wait, too.
    pub scripts: Arc<dyn EntryScripts>,
    /// Scripts that have waited in the last generation: they are booted at the start.
    pub known: Vec<PathBuf>,
}

/// Tells which scripts are booted ahead, each in workers of its own.
pub trait EntryScripts: fmt::Debug + Send + Sync {
    /// Returns the options of the script's workers; `None` if it runs as the rest. Called once for each script; may read files.
    fn options(&self, script: &Path) -> Option<Options>;

    /// Returns why a script could not be booted ahead, in one line.
    fn reason(&self, error: &StartError) -> String;
}

/// How the number of workers follows the load, starting with [`Options::workers`].
#[derive(Clone, Copy, Debug)]
pub struct Scaling {
    /// Maximum number of workers.
    pub most: NonZeroUsize,
    /// Initial number of workers, clamped to the bounds.
    pub start: usize,
    /// A worker above the minimum ends when that many were not needed for this long.
    pub idle_timeout: Duration,
    /// Maximum number of workers started at once.
    pub burst: NonZeroUsize,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);
