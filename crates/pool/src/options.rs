//! Everything the pool can be told, as types. `server::config` fills it; no default hides elsewhere.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;

use std::time::Duration;
use tokio::process::Command;

use crate::{EventSink, Identity, Model, Sandbox};

/// How the pool runs PHP.
#[derive(Clone, Debug)]
pub struct Options {
    /// `hearth-worker-8.x`, absolute; php-fpm, php or php-cgi in the models of their names.
    pub program: PathBuf,
    /// How a request meets PHP.
    pub model: Model,
    /// The worker script, absolute; used by models that run one ([`Model::runs_worker_script`]).
    pub worker_script: Option<PathBuf>,
    /// The directory that PHP starts in: the application's folder.
    pub directory: PathBuf,
    /// A folder that only our user can look into, for sockets and generated files; used by [`Model::Fpm`], [`Model::Builtin`] and
    /// [`Model::Cgi`].
    pub run_dir: PathBuf,
    /// `key=value` settings for PHP, stronger than php.ini, weaker than `ini_set`.
    pub ini: Vec<(String, String)>,
    /// Environment variables set for PHP on top of the server's own environment.
    pub env: Vec<(String, String)>,
    /// Variables of the server's own environment that PHP is not to see.
    pub hidden: Vec<String>,
    /// As whom PHP's processes run; None: as the server.
    pub identity: Option<Identity>,
    /// Requests that the zygote answers for itself before any worker is forked, so that code and caches are warm; for models that
    /// boot in the zygote. Each carries a [`crate::RequestContext`] in its extensions; PHP sees `$_SERVER['HEARTH_WARM_UP']`.
    pub warm_up: Vec<http::Request<()>>,
    /// They are answered by a fork of the zygote that is thrown away and tells which classes it has loaded: nothing of the requests stays
    /// behind, and less is warm.
    pub rehearse: bool,
    /// How many requests run at once. That many workers, in resident models; one-shot models have up to twice as many processes:
    /// those that run, and their successors that wait.
    pub workers: NonZeroUsize,
    /// More workers than those while requests wait; `None`: as many as there are. Not for models of PHP's own programs
    /// ([`Model::is_foreign`]).
    pub scaling: Option<Scaling>,
    /// How many requests may wait for a worker; one more gets [`crate::DispatchError::Overloaded`] at once.
    pub backlog: usize,
    /// How long a request may wait for a worker.
    pub backlog_timeout: Duration,
    /// How long requests may wait for long. When all that came to a worker within that time had waited for longer, those that would are
    /// refused at once; one that takes a while anyway may wait four times as long as it takes. `None`: until the backlog is full.
    pub backlog_target: Option<Duration>,
    /// How long a worker may take for one request, from its dispatch to the end of its answer; then it is killed.
    pub request_timeout: Option<Duration>,
    /// A request that runs longer is told, with the place where PHP is ([`crate::SlowRequest`]); it goes on.
    pub slow: Option<Duration>,
    /// How long PHP may take to start (where the zygote boots the application: that and the warm-up included), and a worker to boot.
    pub boot_timeout: Duration,
    /// A worker is recycled after this many requests (each worker adds up to a tenth at random, so that not all go at once).
    pub max_requests: Option<NonZeroU64>,
    /// A worker whose resident memory is above this after a request is recycled.
    pub memory_limit: Option<ByteSize>,
    /// What PHP's processes may do; None: what their user may.
    pub sandbox: Option<Sandbox>,
    /// Where events go that PHP publishes; without it they are refused.
    pub events: Option<Arc<dyn EventSink>>,
}

impl Options {
    /// Gives a program the environment of PHP.
    pub(crate) fn environment(&self, command: &mut Command) {
        for name in &self.hidden {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
    }
}

/// How the number of workers follows the load, beginning with [`Options::workers`].
#[derive(Clone, Copy, Debug)]
pub struct Scaling {
    /// The most workers.
    pub most: NonZeroUsize,
    /// How many to begin with; within the bounds, whatever it says.
    pub start: usize,
    /// A worker above the least goes when that many were not needed for so long.
    pub idle_timeout: Duration,
    /// How many start in one go, at most.
    pub burst: NonZeroUsize,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);
