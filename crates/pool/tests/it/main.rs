//! Tests the pool through its public API, with the testkit's worker on the other end of real sockets.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod ahead;
mod answers;
mod events;
mod lifecycle;
mod losses;
mod models;
mod overload;
mod pauses;
mod scaling;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use pool::{
    DispatchError, Model, Options, Pool, RequestContext, RequestId, ResponseBody, Scheme, Script,
};

/// Returns options with `workers` fake workers and short patience.
pub(crate) fn options(workers: usize) -> Options {
    Options {
        program: testkit::fake_worker(),
        model: Model::Request,
        warm_up: Vec::new(),
        rehearse: false,
        verify_restores: 0.0,
        sandbox: None,
        worker_script: None,
        entry: None,
        directory: "/".into(),
        run_dir: std::env::temp_dir(),
        ini: Vec::new(),
        env: Vec::new(),
        hidden: Vec::new(),
        identity: None,
        workers: NonZeroUsize::new(workers).unwrap(),
        scaling: None,
        backlog: 64,
        backlog_timeout: Duration::from_secs(10),
        backlog_target: None,
        request_timeout: Some(Duration::from_secs(10)),
        boot_timeout: Duration::from_secs(10),
        max_requests: None,
        memory_limit: None,
        slow: None,
        events: None,
        boot_files: None,
        boot_trace: None,
        purges: None,
    }
}

pub(crate) async fn start(workers: usize) -> Pool {
    Pool::start(options(workers)).await.unwrap()
}

pub(crate) fn context() -> RequestContext {
    RequestContext {
        script: Script {
            filename: Arc::from(Path::new("/srv/index.php")),
            name: Arc::from("/index.php"),
            path_info: Arc::from(""),
            document_root: Arc::from(Path::new("/srv")),
        },
        remote: "192.0.2.7:1234".parse().unwrap(),
        local: "192.0.2.1:80".parse().unwrap(),
        scheme: Scheme::Http,
        server_name: Arc::from("example.org"),
        server_port: 80,
        remote_user: None,
        id: RequestId(Arc::from("test-1")),
        hints: None,
        observer: None,
        deadline: None,
        trace: None,
        variables: Vec::new(),
    }
}

pub(crate) fn request(target: &str) -> Request<Full<Bytes>> {
    Request::get(target).extension(context()).body(Full::default()).unwrap()
}

pub(crate) async fn get(
    pool: &Pool,
    target: &str,
) -> Result<Response<ResponseBody>, DispatchError> {
    pool.dispatch(request(target)).await
}

/// Returns the whole body of a response.
pub(crate) async fn text(response: Response<ResponseBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Checks repeatedly until the condition holds, for at most ten seconds.
pub(crate) async fn eventually(what: &str, so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never so: {what}");
}
