//! Turns a request into a call, for both listeners: checks whether it may be made, and builds it.
//!
//! Invariants
//! - A head passes the same checks at either listener, and is counted once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use traces::Tracer;

use super::control::{Control, Token};
use super::declined::Counters;
use super::fields;
use super::files::Files;
use super::http::ListenerOptions;
use super::refusal::Refusal;
use super::shortage::Reserve;
use super::target::{Target, target};
use super::trace::{self, CallSpan};
use crate::peer::Allowed;
use crate::request::signs_in;
use crate::{
    Answer, Call, CallBody, CallError, Certificate, Engine, Fate, Key, Limits, Reason, Trust,
};

/// Maximum size of a head. Although curl accepts larger ones, it seldom sends them.
pub(super) const HEAD: usize = 64 << 10;
/// The most fields in a head.
const FIELDS: usize = 1000;
/// hyper's own limit, which costs no allocation.
pub(super) const CHEAP_FIELDS: usize = 100;
/// The time limit for a caller's first head. The caller is on this machine.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// State that outlives the listener's callers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ListenerOptions,
    pub(super) allowed: Allowed,
    pub(super) files: Files,
    pub(super) counters: Counters,
}

/// An open listener.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) engine: Engine,
    pub(super) shared: Arc<Shared>,
    pub(super) token: Token,
    pub(super) reserve: Reserve,
    /// Starts spans, if traces are on.
    pub(super) tracer: Option<Tracer>,
    /// The number of connections to the frame listener.
    pub(super) kept: AtomicUsize,
}

/// Counts one caller for as long as its connection lives.
pub(super) struct Counted<'a> {
    counters: &'a Counters,
    before: usize,
}

impl<'a> Counted<'a> {
    pub(super) fn new(counters: &'a Counters) -> Self {
        counters.calls.fetch_add(1, Ordering::Relaxed);
        Self { counters, before: counters.callers.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.counters.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Listener {
    pub(super) fn new(
        engine: Engine,
        shared: Arc<Shared>,
        token: Token,
        tracer: Option<Tracer>,
    ) -> Self {
        let reserve = Reserve::new();
        Self { engine, shared, token, reserve, tracer, kept: AtomicUsize::new(0) }
    }

    /// Checks a head as it was received, and its sender.
    pub(super) fn admit<'a>(
        &self,
        head: &'a [u8],
        uid: u32,
        counted: &Counted<'_>,
    ) -> Result<::http1::Facts<'a>, Refusal> {
        if head.len() > HEAD {
            return Err(Refusal::request("the head is too large"));
        }
        let facts = ::http1::check(head).map_err(Refusal::request)?;
        if facts.fields > FIELDS {
            return Err(Refusal::request("there are too many fields"));
        }
        if !self.shared.allowed.may_call(uid) {
            return Err(Refusal::user(uid));
        }
        if counted.before >= self.shared.options.callers {
            return Err(Refusal::full(counted.before));
        }
        Ok(facts)
    }

    /// Builds a call from a request. `written`: its target as received. `origin`: receives the origin for the log, as soon as it is known.
    pub(super) async fn prepare(
        &self,
        mut head: Parts,
        body: CallBody,
        uid: u32,
        written: &str,
        options: impl FnOnce(&HeaderMap) -> Result<Control, Refusal>,
        origin: &mut String,
    ) -> Result<(Call, Control, CallSpan), Refusal> {
        let target = target(written, head.uri.clone(), &head.headers)?;
        origin.reserve("https://".len() + target.authority.len());
        origin.push_str(target.scheme.word());
        origin.push_str("://");
        origin.push_str(&target.authority);
        let control = options(&head.headers)?;
        if head.method == Method::CONNECT {
            return Err(Refusal::unsupported("CONNECT: there is nothing to share in a tunnel"));
        }
        if fields::wants_upgrade(&head.headers) {
            return Err(Refusal::unsupported("another protocol is asked for (Upgrade)"));
        }
        if signs_in(&head.headers) {
            let message = "the sign-in belongs to a connection (NTLM, Negotiate)";
            return Err(Refusal::unsupported(message));
        }
        let host = HeaderValue::try_from(target.authority.as_str())
            .map_err(|_invalid| Refusal::target("the host is no value of a field"))?;
        let span = self.tracer.as_ref().map(|tracer| trace::begin(tracer, &mut head, &target));
        let span = span.unwrap_or_default();
        head.headers = fields::of_request(head.headers, &host);
        head.uri = target.uri.clone();
        head.version = Version::HTTP_11;
        let options = &self.shared.options;
        let limits = Limits {
            connect: control.connect_timeout.unwrap_or(options.connect),
            queue: options.queue,
        };
        let key = match self.key(uid, target, &control).await {
            Ok(key) => key,
            Err(refusal) => {
                span.refused(&refusal);
                return Err(refusal);
            }
        };
        let (request, scope) = (Request::from_parts(head, body), control.scope.clone());
        Ok((Call { key, request, limits, scope }, control, span))
    }

    async fn key(&self, uid: u32, target: Target, control: &Control) -> Result<Key, Refusal> {
        let reads = control.ca.is_some() || control.certificate.is_some();
        if reads && !self.shared.allowed.reads_as_we_do(uid) {
            return Err(Refusal::control("files are read for the broker's own user only"));
        }
        let files = &self.shared.files;
        let trust = match &control.ca {
            _ if !control.verify => Trust::Anyone,
            Some(path) => Trust::Authorities(files.read(path).await?),
            None => Trust::System,
        };
        let certificate = match &control.certificate {
            Some((chain, key)) => {
                Some(Certificate { chain: files.read(chain).await?, key: files.read(key).await? })
            }
            None => None,
        };
        Ok(Key {
            uid,
            scheme: target.scheme,
            host: target.host.into(),
            port: target.port,
            connect_to: control.connect_to.clone(),
            unix: None,
            public: false,
            interface: control.interface,
            family: control.family,
            trust,
            pins: Arc::clone(&control.pins),
            certificate,
            tls_min: control.tls_min,
            tls_max: control.tls_max,
            ciphers: None,
            http: control.http,
            proxy: control.proxy.clone(),
        })
    }
}

/// Returns whether a field ends a call.
pub(super) fn final_answer(answer: Answer) -> Result<Answer, Refusal> {
    if answer.response.status().is_informational() {
        return Err(Refusal::from(CallError {
            fate: Fate::Failed,
            reason: Reason::Rubbish,
            curl: 1,
            message: "the origin switched protocols unasked".to_owned(),
            address: answer.timing.address,
            exhausted: false,
            kept: false,
        }));
    }
    Ok(answer)
}
