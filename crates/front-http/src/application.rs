//! What answers requests that no file answers: PHP's pool, or a test's own application.

use std::future::Future;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pool::{DispatchError, Pool, ResponseBody};

use crate::request_body::RequestBody;

/// Answers requests. The front calls it with a [`pool::RequestContext`] in the request's extensions and an origin-form URI.
pub trait Application: Send + Sync + 'static {
    /// The body of an answer. An error in it means that the answer was cut.
    type Body: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>
        + Send
        + Unpin
        + 'static;

    /// Answers one request. Dropped before it is done when the client goes away.
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
