//! The debug console of a subsystem, as the admin address and the control socket reach it.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;

use super::admin::Answer;

/// The body of a request to the console.
pub(crate) type ConsoleBody = UnsyncBoxBody<Bytes, io::Error>;
/// The answer to such a request, once it is available.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Answers the paths `/realtime` and below.
pub(crate) trait Console: Debug + Send + Sync {
    /// Answers one request.
    fn answer(self: Arc<Self>, request: Request<ConsoleBody>) -> Answering;
}
