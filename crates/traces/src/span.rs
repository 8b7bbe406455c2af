//! One span, from its begin to its end.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method};
use tokio::time::Instant;

use crate::{Carried, Context, SpanId, Tracer};

/// What a span stands for (`SpanKind` of OTLP).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Something inside.
    Internal = 1,
    /// An answer to somebody.
    Server = 2,
    /// A call of somebody.
    Client = 3,
}

/// The name of an HTTP method as the conventions want it (Semantic Conventions, "HTTP request method"): few, whatever clients send.
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
    /// Text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Yes or no.
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
    /// Itself.
    pub context: Context,
    /// Its parent, if it has one.
    pub parent: Option<SpanId>,
    /// `tracestate`, as it came.
    pub state: Option<HeaderValue>,
    /// Its name.
    pub name: Cow<'static, str>,
    /// What it stands for.
    pub kind: Kind,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub error: Option<Cow<'static, str>>,
}

/// A span that is recorded and has not ended. It ends when it is dropped.
#[derive(Debug)]
pub struct Span(Box<Recorded>);

#[derive(Debug)]
struct Recorded {
    tracer: Tracer,
    since: Instant,
    /// `None` once it has been given up.
    finished: Option<Finished>,
}

/// Of a text as many bytes as are kept: clients choose some of them, and spans wait in memory.
const LONGEST: usize = 1024;
/// A longer `tracestate` is left out.
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

    /// As others know it.
    pub fn context(&self) -> Context {
        self.0.finished.as_ref().expect("it is there until the span is dropped").context
    }

    /// For those who begin spans below it.
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

    /// Its `tracestate`.
    pub fn set_state(&mut self, state: Option<HeaderValue>) {
        // A copy: the field's own bytes would keep the whole head in memory. (W3C Trace Context, 3.3.1.5, on its length)
        let short = state.filter(|state| state.len() <= LONGEST_STATE);
        self.finished().state =
            short.and_then(|state| HeaderValue::from_bytes(state.as_bytes()).ok());
    }

    /// It failed. `kind`: a word for it that does not vary, for `error.type`; `reason`: for people. The first one stands.
    pub fn fail(&mut self, kind: impl Into<Value>, reason: impl Into<Cow<'static, str>>) {
        if self.finished().error.is_none() {
            self.set("error.type", kind);
            let mut reason = reason.into();
            shorten(&mut reason);
            self.finished().error = Some(reason);
        }
    }

    /// It is as if it had never begun.
    pub fn forget(mut self) {
        self.0.finished = None;
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
