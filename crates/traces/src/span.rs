//! One span, from its begin to its end.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method};
use tokio::time::Instant;

use crate::{Carried, Context, SpanId, Tracer};

/// The kind of a span (`SpanKind` of OTLP).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// An internal operation.
    Internal = 1,
    /// Handling of a request.
    Server = 2,
    /// An outgoing request.
    Client = 3,
}

/// Returns the name of an HTTP method for attributes (Semantic Conventions, "HTTP request method"); `None` for
/// unknown methods, to keep their number small.
pub fn method_name(method: &Method) -> Option<&'static str> {
    Some(match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => return None,
    })
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// An integer.
    Number(i64),
    /// A boolean.
    Truth(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Context of the span.
    pub context: Context,
    /// Parent, if it has one.
    pub parent: Option<SpanId>,
    /// `tracestate` as received.
    pub state: Option<HeaderValue>,
    /// Name.
    pub name: Cow<'static, str>,
    /// Kind.
    pub kind: Kind,
    /// Start time.
    pub began: SystemTime,
    /// Duration.
    pub took: Duration,
    /// Attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// Error message, if it failed.
    pub error: Option<Cow<'static, str>>,
}

/// A recorded span that has not ended. It ends on drop.
#[derive(Debug)]
pub struct Span(Box<Recorded>);

#[derive(Debug)]
struct Recorded {
    tracer: Tracer,
    since: Instant,
    /// `None` once it was discarded.
    finished: Option<Finished>,
}

/// Maximum length of a text in bytes: clients choose some of them, and spans wait in memory.
const LONGEST: usize = 1024;
/// A longer `tracestate` is dropped.
const LONGEST_STATE: usize = 512;

fn shorten(text: &mut Cow<'static, str>) {
    if text.len() > LONGEST {
        let mut short = std::mem::take(text).into_owned();
        short.truncate(short.floor_char_boundary(LONGEST));
        short.shrink_to_fit();
        *text = Cow::Owned(short);
    }
}

impl Span {
    pub(crate) fn begin(
        tracer: Tracer,
        context: Context,
        parent: Option<SpanId>,
        kind: Kind,
        name: Cow<'static, str>,
    ) -> Self {
        let finished = Finished {
            context,
            parent,
            state: None,
            name,
            kind,
            began: SystemTime::now(),
            took: Duration::ZERO,
            attributes: Vec::with_capacity(12),
            error: None,
        };
        Self(Box::new(Recorded { tracer, since: Instant::now(), finished: Some(finished) }))
    }

    fn finished(&mut self) -> &mut Finished {
        self.0.finished.as_mut().expect("it is there until the span is dropped")
    }

    /// Returns its context.
    pub fn context(&self) -> Context {
        self.0.finished.as_ref().expect("it is there until the span is dropped").context
    }

    /// Returns the parent for spans below it.
    pub fn carried(&self) -> Carried {
        Carried::sampled(self.0.tracer.clone(), self.context())
    }

    /// Adds an attribute. Each name is added once.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        let mut value = value.into();
        if let Value::Text(text) = &mut value {
            shorten(text);
        }
        self.finished().attributes.push((name, value));
    }

    /// Adds the attributes of an HTTP method.
    pub fn set_method(&mut self, method: &Method) {
        let known = method_name(method);
        self.set("http.request.method", known.unwrap_or("_OTHER"));
        if known.is_none() {
            self.set("http.request.method_original", method.as_str().to_owned());
        }
    }

    /// Sets its `tracestate`.
    pub fn set_state(&mut self, state: Option<HeaderValue>) {
        // Copied, because the field's own bytes would keep the whole head in memory. (W3C Trace Context, 3.3.1.5,
        // limits its length.)
        let short = state.filter(|state| state.len() <= LONGEST_STATE);
        self.finished().state =
            short.and_then(|state| HeaderValue::from_bytes(state.as_bytes()).ok());
    }

    /// Marks it as failed. `kind` is a constant word for `error.type`; `reason` is for people. The first call counts.
    pub fn fail(&mut self, kind: impl Into<Value>, reason: impl Into<Cow<'static, str>>) {
        if self.finished().error.is_none() {
            self.set("error.type", kind);
            let mut reason = reason.into();
            shorten(&mut reason);
            self.finished().error = Some(reason);
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Some(mut finished) = self.finished.take() {
            finished.took = self.since.elapsed();
            self.tracer.push(finished);
        }
    }
}
