//! Everything the pool can be told, as types. `server::config` fills it; no default hides elsewhere.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// How the pool runs PHP.
#[derive(Clone, Debug)]
pub struct Options {
    /// `hearth-worker-8.x`, absolute; php-fpm, php or php-cgi in the models of their names.
    pub program: PathBuf,
    /// How a request meets PHP.
    pub model: Model,
    /// The worker script, absolute; used by [`Model::Worker`] only.
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
    /// How many workers.
    pub workers: NonZeroUsize,
    /// How many requests may wait for a worker; one more gets [`crate::DispatchError::Overloaded`] at once.
    pub backlog: usize,
    /// How long a request may wait for a worker.
    pub backlog_timeout: Duration,
    /// How long a worker may take for one request, from its dispatch to the end of its answer; then it is killed.
    pub request_timeout: Option<Duration>,
    /// How long PHP may take to start and a worker to boot its script.
    pub boot_timeout: Duration,
    /// A worker is recycled after this many requests (each worker adds up to a tenth at random, so that not all go at once).
    pub max_requests: Option<NonZeroU64>,
    /// A worker whose resident memory is above this after a request is recycled.
    pub memory_limit: Option<ByteSize>,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// How a request meets PHP (docs: execution models).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Model {
    /// PHP's own request start-up and shutdown, in one process (letter G).
    Request,
    /// A loop in one process, state shared between requests (letter A).
    Worker,
    /// A php-fpm of our own (letter E).
    Fpm,
    /// `php -S`, one for each worker (letter F).
    Builtin,
    /// A `php-cgi` for each request (letter H).
    Cgi,
}
