//! Everything the pool can be told, as types. `server::config` fills it; no default hides elsewhere.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{EventSink, Model};

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
    /// Requests that the zygote answers for itself before any worker is forked, so that code and caches are warm; for models that
    /// boot in the zygote. Each carries a [`crate::RequestContext`] in its extensions; PHP sees `$_SERVER['HEARTH_WARM_UP']`.
    pub warm_up: Vec<http::Request<()>>,
    /// They are answered by a fork of the zygote that is thrown away and tells which classes it has loaded: nothing of the requests stays
    /// behind, and less is warm.
    pub rehearse: bool,
    /// How many requests run at once. That many workers, in resident models; one-shot models have up to twice as many processes:
    /// those that run, and their successors that wait.
    pub workers: NonZeroUsize,
    /// How many requests may wait for a worker; one more gets [`crate::DispatchError::Overloaded`] at once.
    pub backlog: usize,
    /// How long a request may wait for a worker.
    pub backlog_timeout: Duration,
    /// How long a worker may take for one request, from its dispatch to the end of its answer; then it is killed.
    pub request_timeout: Option<Duration>,
    /// How long PHP may take to start (where the zygote boots the application: that and the warm-up included), and a worker to boot.
    pub boot_timeout: Duration,
    /// A worker is recycled after this many requests (each worker adds up to a tenth at random, so that not all go at once).
    pub max_requests: Option<NonZeroU64>,
    /// A worker whose resident memory is above this after a request is recycled.
    pub memory_limit: Option<ByteSize>,
    /// Where events go that PHP publishes; without it they are refused.
    pub events: Option<Arc<dyn EventSink>>,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);
