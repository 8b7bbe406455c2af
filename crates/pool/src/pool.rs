//! The pool itself.

use std::time::Duration;

use http::{Request, Response};

use crate::{DispatchError, Options, PoolStatus, ResponseBody, StartError};

/// A running pool. Cheap to clone: all clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool {}

impl Pool {
    /// Starts PHP and returns when the first worker is ready.
    pub async fn start(_options: Options) -> Result<Self, StartError> {
        todo!()
    }

    /// Sends one request to an idle worker and returns its answer as soon as its head is there. `request` carries a
    /// [`crate::RequestContext`] in its extensions. Dropping the future tells the worker that the client is gone.
    pub async fn dispatch<B>(&self, _request: Request<B>) -> Result<Response<ResponseBody>, DispatchError>
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        todo!()
    }

    /// One look at the pool.
    pub fn status(&self) -> PoolStatus {
        todo!()
    }

    /// Takes no new requests, lets the accepted ones (backlog included) be answered, ends the workers. After `patience` what still
    /// runs is killed. Returns when no PHP process is left.
    pub async fn drain(&self, _patience: Duration) {
        todo!()
    }
}
