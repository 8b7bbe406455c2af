//! The interface to the application behind the front: the PHP pool, or an application of a test.

use std::future::Future;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pool::{DispatchError, Pool, ResponseBody};

use crate::request_body::RequestBody;

/// Answers requests. The front calls it with a [`pool::RequestContext`] in the request's extensions and an
/// origin-form URI.
pub trait Application: Send + Sync + 'static {
    /// The body of a response. An error means that the response was aborted.
    type Body: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>
        + Send
        + Unpin
        + 'static;

    /// Answers one request. The future is dropped early if the client disconnects.
    fn call(
        &self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Self::Body>, DispatchError>> + Send;
}

impl Application for Pool {
    type Body = ResponseBody;

    fn call(
        &self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, DispatchError>> + Send {
        self.dispatch(request)
    }
}
