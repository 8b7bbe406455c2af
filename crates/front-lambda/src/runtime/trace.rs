//! The span of an invocation, following OpenTelemetry's semantic conventions for functions and for AWS Lambda.
//!
//! Invariants
//! - X-Ray's decision counts if tracing is active. It sends `Sampled=0` for every function whose tracing is off: then
//!   the event's `traceparent` counts, and without one the sampler decides, within X-Ray's trace.

use std::borrow::Cow;

use http::{HeaderMap, Method, StatusCode};
use traces::{Begun, Carried, Context, Kind, Span, Tracer};

use super::invocation::Invocation;
use super::report::Report;

/// The trace state of an invocation.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Trace context for PHP's work.
    pub(super) carried: Option<Carried>,
    span: Option<Span>,
}

impl Trace {
    /// Starts the span; `request` is the HTTP request in the event, if it is one.
    pub(super) fn begin(
        tracer: &Tracer,
        invocation: &Invocation,
        cold: bool,
        request: Option<(&Method, &str, &mut HeaderMap)>,
    ) -> Self {
        let mut begun = begun(tracer, invocation, request.as_ref().map(|(.., fields)| &**fields));
        if let Some(span) = &mut begun.span {
            span.set("faas.invocation_id", invocation.id.to_string());
            span.set("faas.coldstart", cold);
            let arn = invocation.arn();
            if !arn.is_empty() {
                span.set("cloud.resource_id", arn.to_owned());
            }
            span.set("faas.trigger", if request.is_some() { "http" } else { "other" });
            if let Some((method, path, fields)) = request {
                span.set("http.request.method", method.as_str().to_owned());
                span.set("url.path", path.to_owned());
                span.set_state(fields.get("tracestate").cloned());
            }
        }
        Self { carried: Some(begun.carried()), span: begun.span }
    }

    /// Records the response head.
    pub(super) fn answered(&mut self, status: StatusCode) {
        if let Some(span) = &mut self.span {
            span.set("http.response.status_code", status.as_u16());
            if status.is_server_error() {
                span.fail(status.as_str().to_owned(), status.to_string());
            }
        }
    }

    /// Records a failure.
    pub(super) fn failed(&mut self, report: &Report) {
        self.fail(&report.kind, &report.message);
    }

    /// Records a failure reported by a function, or one of its response.
    pub(super) fn fail(&mut self, kind: &str, message: &str) {
        if let Some(span) = &mut self.span {
            span.fail(kind.to_owned(), message.to_owned());
        }
    }
}

fn begun(tracer: &Tracer, invocation: &Invocation, fields: Option<&HeaderMap>) -> Begun {
    let name = || Cow::Borrowed("invocation");
    let xray = Context::read_xray(invocation.trace());
    let traced = xray.and_then(|(_, parent)| parent).filter(Context::is_sampled);
    if let Some(parent) = traced.or_else(|| fields.and_then(Context::of)) {
        return tracer.begin(Some(parent), Kind::Server, name);
    }
    match xray {
        Some((trace, _)) => tracer.begin_in(trace, None, Kind::Server, name),
        None => tracer.begin(None, Kind::Server, name),
    }
}

#[cfg(test)]
mod tests {
    use traces::Sampler;

    use super::*;

    const ROOT: &str = "5759e988bd862e3fe1be46a994272793";
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn trace(xray: &str, parent: Option<&str>) -> (String, Option<traces::SpanId>) {
        let tracer = Tracer::new(Sampler::new(1.0, true).unwrap(), 0);
        let mut fields = HeaderMap::new();
        fields.insert("lambda-runtime-aws-request-id", "id".parse().unwrap());
        fields.insert("lambda-runtime-trace-id", xray.parse().unwrap());
        let invocation = Invocation::of(fields, bytes::Bytes::new()).unwrap();
        let mut head = HeaderMap::new();
        if let Some(parent) = parent {
            head.insert("traceparent", parent.parse().unwrap());
        }
        drop(Trace::begin(&tracer, &invocation, true, Some((&Method::GET, "/", &mut head))));
        let span = tracer.take().remove(0);
        (span.context.trace.to_string(), span.parent)
    }

    #[test]
    fn xray_is_the_parent_or_at_least_names_the_trace() {
        let xray = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=";
        let (sampled, unsampled) = (format!("{xray}1"), format!("{xray}0"));
        let (id, parent) = trace(&sampled, Some(PARENT));
        assert_eq!((id.as_str(), parent.unwrap().to_string().as_str()), (ROOT, "53995c3f42cd8ad8"));
        let (id, parent) = trace(&unsampled, Some(PARENT));
        assert_eq!(id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.unwrap().to_string(), "00f067aa0ba902b7");
        assert_eq!(trace(&unsampled, None), (ROOT.to_owned(), None));
        assert_eq!(trace("", None).1, None);
    }
}
