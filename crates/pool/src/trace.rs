//! The spans of a request in the pool: waiting for a worker, and PHP's work. docs/guide/traces.md names them.
//!
//! Invariants
//! - A request that is not sampled creates nothing.

use std::sync::atomic::Ordering;

use traces::Span;

use crate::DispatchError;
use crate::backend::Core;
use crate::context::RequestContext;
use crate::exchange::Failure;
use crate::info::WorkerInfo;

/// Starts the span of waiting, to be dropped when the request has a worker.
pub(crate) fn waits(context: &RequestContext) -> Option<Span> {
    context.trace.as_ref()?.begin("wait for worker")
}

/// Records that the request got no worker.
pub(crate) fn waited_in_vain(span: &mut Option<Span>, why: &DispatchError) {
    if let Some(span) = span {
        span.fail("overloaded", why.to_string());
    }
}

/// Starts the span of PHP's work.
pub(crate) fn runs(
    context: &RequestContext,
    core: &Core,
    worker: Option<&WorkerInfo>,
) -> Option<Span> {
    let mut span = context.trace.as_ref()?.begin("php")?;
    span.set("php.model", core.options.model.name());
    if let Some(worker) = worker {
        span.set("process.pid", worker.pid());
    }
    span.set("php.version", core.php_version.clone());
    span.set("hearth.request.id", context.id.0.to_string());
    Some(span)
}

/// Records that PHP has responded.
pub(crate) fn answered(span: &mut Span, worker: &WorkerInfo) {
    let since = worker.busy_since.load(Ordering::Relaxed);
    if since != 0 && worker.reported_slow.load(Ordering::Relaxed) == since {
        span.set("hearth.slow", true);
    }
}

/// Records that PHP has failed.
pub(crate) fn failed(span: &mut Span, failure: &Failure) {
    match failure {
        Failure::Died { pid, how } if how.is_empty() => {
            span.fail("worker_died", format!("worker {pid} died"));
        }
        Failure::Died { pid, how } => span.fail("worker_died", format!("worker {pid} died: {how}")),
        Failure::TimedOut => span.fail("timeout", "no answer within the time limit"),
        Failure::NotSent => span.fail("worker_gone", "the worker was gone"),
        Failure::TooLarge => span.fail("head_too_large", "the request head is too large for PHP"),
        Failure::RequestBody(cause) => {
            span.fail("request_body", format!("the request body broke off: {cause}"));
        }
    }
}

/// Records that the client disconnected.
pub(crate) fn abandoned(span: &mut Span) {
    span.set("hearth.client_gone", true);
}
