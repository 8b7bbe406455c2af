//! Requests that no client sent: of warm-ups, measurements and reload checks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::response::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Empty};
use pool::{Pool, RequestContext, RequestId, Scheme, Script};
use tokio::time::Instant;

use crate::app::plan::Plan;

/// Returns the context of a request that no client sent.
pub(crate) fn context_of_ours(plan: &Plan, id: &str) -> RequestContext {
    const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
    let filename = plan.nominal_script();
    let name = plan.url_of(&filename);
    RequestContext {
        script: Script {
            filename: filename.into(),
            name: name.into(),
            path_info: "".into(),
            document_root: plan.application.document_root.as_path().into(),
        },
        remote: ADDRESS,
        local: ADDRESS,
        scheme: Scheme::Http,
        server_name: "localhost".into(),
        server_port: ADDRESS.port(),
        remote_user: None,
        id: RequestId(id.into()),
        hints: None,
        observer: None,
        deadline: None,
        trace: None,
        variables: Vec::new(),
    }
}

/// A request that no client sent; `purpose` is its id.
pub(crate) fn request_of_ours(path: PathAndQuery, plan: &Plan, purpose: &str) -> Request<()> {
    let context = context_of_ours(plan, purpose);
    let mut request = Request::new(());
    *request.uri_mut() = path.into();
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("hearth (warm-up)"));
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/html, */*;q=0.1"));
    request.extensions_mut().insert(context);
    request
}

/// A warm-up request, which PHP finds marked by `HEARTH_WARM_UP`. It must be answered within `limit`.
pub(crate) fn warm_up(path: PathAndQuery, plan: &Plan, limit: Duration) -> Request<()> {
    let mut request = request_of_ours(path, plan, "warm-up");
    if let Some(context) = request.extensions_mut().get_mut::<RequestContext>() {
        context.deadline = Some(Instant::now() + limit);
        context.variables.push(("HEARTH_WARM_UP", Bytes::from_static(b"1")));
    }
    request
}

/// Sends a request without a body, and returns the whole answer. A status of 500 or more is an error.
pub(crate) async fn answered(pool: &Pool, request: Request<()>) -> Result<(Parts, Bytes), String> {
    let response = pool.dispatch(request.map(|()| Empty::<Bytes>::new())).await;
    let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
    let whole = body.collect().await;
    if head.status.is_server_error() {
        return Err(format!("status {}", head.status.as_u16()));
    }
    Ok((head, whole.map_err(|error| error.to_string())?.to_bytes()))
}
