//! Sends spans to a collector of OpenTelemetry: OTLP over HTTP (its specification, "OTLP/HTTP"), by an engine of outgoing calls of its own.
//!
//! Invariants
//! - No request and no call ever waits for a collector: they end their spans, and one task sends them.
//! - What a collector does not take is tried again for about a minute at most; meanwhile further spans wait in a queue that is bounded
//!   (`traces::Tracer`). What is lost is counted.
//! - The end waits for it no longer than [`LAST_WORDS`].

use std::borrow::Cow;
use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use egress::{Call, Engine, Key, Limits, Scheme};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use traces::{Resource, Sampler, Tracer};

use crate::config::{CollectorUrl, Environment, OfOpenTelemetry, Settings};
use crate::failure::{Failure, in_one_line};
use crate::ops::metric::metrics_table;
use crate::ops::subsystem::Subsystem;
use crate::subsystems::egress::check_authorities;

/// The time that spans wait to be sent with others.
const PACE: Duration = Duration::from_secs(1);
/// The number of tries for a batch.
const TRIES: u32 = 6;
/// The pause before the second try; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest, also of those that a collector asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest answer of a collector that is read, in bytes.
const ANSWER: usize = 64 << 10;
/// The time that the last spans may take.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(3);

/// The task that sends spans, for as long as a server runs.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    tracer: Option<Tracer>,
    tasks: JoinSet<()>,
    end: CancellationToken,
}

/// The sender.
#[derive(Debug)]
struct Exporter {
    engine: Engine,
    tracer: Tracer,
    url: CollectorUrl,
    headers: HeaderMap,
    resource: Resource,
    timeout: Duration,
    gzip: bool,
    /// The last try failed; it is logged once.
    failing: bool,
}

/// The reason why a batch was rejected.
#[derive(Debug)]
struct Refused {
    why: String,
    again: Again,
}

/// The time of the next try.
#[derive(Clone, Copy, Debug)]
enum Again {
    Never,
    Soon,
    /// After the time that the collector asks for.
    In(Duration),
}

/// Draws 64 bits that no copy of this process has drawn.
pub(crate) fn salt() -> u64 {
    getrandom::u64().expect("the system has random numbers")
}

/// Fails if the authorities for the collector cannot be used. Returns a text if one of OpenTelemetry's variables names them: then nothing
/// is traced, and the server starts. Other authorities never take their place.
pub(crate) fn unusable_authorities(
    settings: &Settings,
    variables: &OfOpenTelemetry,
) -> Result<Option<String>, Failure> {
    let traces = &settings.traces;
    let Some(ca) = &traces.ca.0 else { return Ok(None) };
    let Err(failure) = check_authorities(ca, "`traces.ca`") else { return Ok(None) };
    match &variables.ca {
        Some((variable, named)) if named == ca => {
            let encrypted = traces.endpoint.as_ref().is_some_and(|url| url.scheme == Scheme::Https);
            Ok(encrypted.then(|| format!("{variable}: {}", failure.message())))
        }
        _ => Err(failure),
    }
}

impl Collector {
    /// Starts to send spans to the endpoint of the settings, if there is one. `service` is the default service name. To be called within a
    /// runtime.
    pub(crate) fn start(
        settings: &Settings,
        environment: &Environment,
        service: &str,
    ) -> Result<Self, Failure> {
        let variables = OfOpenTelemetry::read(environment);
        for ignored in &variables.ignored {
            tracing::warn!(ignored, "a variable of OpenTelemetry's is not followed");
        }
        let traces = &settings.traces;
        let Some(url) = &traces.endpoint else { return Ok(Self::default()) };
        if let Some(unusable) = unusable_authorities(settings, &variables)? {
            tracing::warn!(reason = unusable, "nothing is traced");
            return Ok(Self::default());
        }
        let sampler = Sampler::new(traces.sample.0, traces.follow_parent);
        let sampler = sampler.expect("the settings have looked at the share");
        let tracer = Tracer::new(sampler, salt());
        let mut headers: HeaderMap = traces.headers.0.iter().cloned().collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!("hearth/", env!("CARGO_PKG_VERSION"))));
        if traces.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let exporter = Exporter {
            engine: Engine::new(egress::Options {
                http1_connections: 1,
                http2_connections: 1,
                ca: traces.ca.0.clone(),
                // Where it goes is its owner's choice, not a caller's.
                deny: Vec::new(),
                ..egress::Options::default()
            }),
            tracer: tracer.clone(),
            url: url.clone(),
            headers,
            resource: resource(settings, service),
            timeout: traces.timeout,
            gzip: traces.gzip,
            failing: false,
        };
        let end = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(exporter.run(end.clone()));
        Ok(Self { tracer: Some(tracer), tasks, end })
    }

    /// Returns the tracer, if spans are sent.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Returns the view for operators, if spans are sent anywhere.
    pub(crate) fn watch(&self) -> Option<Spans> {
        self.tracer.clone().map(Spans)
    }

    /// Sends what there is, for as long as [`LAST_WORDS`].
    pub(crate) async fn end(mut self) {
        self.end.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WORDS, ended).await.is_err() {
            let spans = self.tracer.as_ref().map_or(0, Tracer::unsettled);
            tracing::warn!(spans, "spans lost at the end: the collector did not take them in time");
        }
    }
}

/// Returns the attributes that all spans share (OpenTelemetry's semantic conventions, "Resource").
fn resource(settings: &Settings, service: &str) -> Resource {
    let traces = &settings.traces;
    let name = traces.service_name.0.as_deref().unwrap_or(service);
    let mut attributes = vec![
        ("service.name".to_owned(), name.to_owned()),
        ("telemetry.sdk.name".to_owned(), "hearth".to_owned()),
        ("telemetry.sdk.language".to_owned(), "rust".to_owned()),
        ("telemetry.sdk.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("host.name".to_owned(), host_name()),
    ];
    for (name, value) in &traces.resource.0 {
        attributes.retain(|(known, _)| known != name);
        attributes.push((name.clone(), value.clone()));
    }
    Resource { attributes }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

impl Exporter {
    async fn run(mut self, end: CancellationToken) {
        loop {
            let ending = tokio::select! {
                biased;
                () = end.cancelled() => true,
                () = self.tracer.wanted() => false,
                () = tokio::time::sleep(PACE) => false,
            };
            let spans = self.tracer.take();
            if spans.is_empty() {
                if ending {
                    break;
                }
                continue;
            }
            let number = spans.len();
            let body = self.packed(traces::encode(&self.resource, spans));
            let sent = self.deliver(&body, &end).await;
            self.tracer.settle(number, sent);
        }
        self.engine.close().await;
    }

    fn packed(&self, body: Vec<u8>) -> Bytes {
        if !self.gzip {
            return body.into();
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
        let packed = encoder.write_all(&body).and_then(|()| encoder.finish());
        packed.expect("a Vec takes all").into()
    }

    /// Sends a batch until it is taken, or there is no hope. At the end there is one try.
    async fn deliver(&mut self, body: &Bytes, end: &CancellationToken) -> bool {
        let mut pause = PAUSE;
        for number in 1..=TRIES {
            let Refused { why, again } = match self.send(body).await {
                Ok(()) => {
                    if std::mem::take(&mut self.failing) {
                        tracing::info!(collector = self.url.url, "spans are accepted again");
                    }
                    self.tracer.set_failing(false);
                    return true;
                }
                Err(refused) => refused,
            };
            self.tracer.set_failing(true);
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(collector = self.url.url, reason = why, "spans not accepted");
            }
            let wait = match again {
                _ if number == TRIES || end.is_cancelled() => break,
                Again::Never => break,
                Again::Soon => pause,
                Again::In(time) => time,
            };
            let wait = wait.min(LONGEST_PAUSE);
            pause *= 2;
            let _ended = end.run_until_cancelled(tokio::time::sleep(wait)).await.is_none();
        }
        false
    }

    async fn send(&self, body: &Bytes) -> Result<(), Refused> {
        let later = |why: String| Refused { why, again: Again::Soon };
        match tokio::time::timeout(self.timeout, self.post(body)).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(later(format!("no answer within {:?}", self.timeout))),
        }
    }

    async fn post(&self, body: &Bytes) -> Result<(), Refused> {
        let uid = rustix::process::geteuid().as_raw();
        let key = Key::plain(uid, self.url.scheme, self.url.host.as_str(), self.url.port);
        let body = Full::new(body.clone()).map_err(|never| match never {}).boxed_unsync();
        let mut request = Request::post(&self.url.url)
            .body(body)
            .map_err(|error| Refused { why: error.to_string(), again: Again::Never })?;
        *request.headers_mut() = self.headers.clone();
        let limits = Limits { connect: self.timeout, queue: self.timeout };
        let answer =
            self.engine.call(Call { key, request, limits, scope: None }, |_interim| {}).await;
        let answer = answer
            .map_err(|error| Refused { why: in_one_line(&error), again: Again::Soon })?
            .response;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if head.status.is_success() {
            if let Some((spans, why)) = traces::rejected(&body) {
                tracing::warn!(spans, reason = why, "the collector has left spans out");
            }
            return Ok(());
        }
        let again = match retry_after(&head.headers) {
            _ if !is_temporary(head.status) => Again::Never,
            Some(time) => Again::In(time),
            None => Again::Soon,
        };
        let said: Cow<'_, str> = String::from_utf8_lossy(&body);
        let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
        Err(Refused { why: format!("{}: {said}", head.status), again })
    }
}

/// Returns whether the status is temporary (OTLP/HTTP, "Retryable Response Codes").
fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// Returns the delay in seconds (RFC 9110, 10.2.3). A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The spans as operators see them.
#[derive(Debug)]
pub(crate) struct Spans(Tracer);

impl Subsystem for Spans {
    fn metrics(&self) {
        let counts = self.0.counts();
        for (outcome, number) in
            [("sent", counts.sent), ("dropped", counts.dropped), ("lost", counts.lost)]
        {
            metrics_table! { &[("outcome", outcome.to_owned())];
                counter "hearth_traces_spans_total" = number, "Spans that have ended, by what became of them: sent, dropped (the queue was full), lost (no collector took them)";
            }
        }
        metrics_table! { &[];
            gauge "hearth_traces_waiting" = self.0.waiting(), "Spans that wait to be sent";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    #[test]
    fn missing_opentelemetry_authorities_do_not_prevent_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone.pem");
        let gone = gone.to_str().unwrap();
        let look = |variables: &[(&str, &str)]| {
            let environment = Environment::for_test(folder.path(), variables);
            let settings = load(folder.path(), None, Vec::new(), &environment).unwrap();
            unusable_authorities(&settings, &OfOpenTelemetry::read(&environment))
        };
        let encrypted = ("HEARTH_TRACES_ENDPOINT", "https://127.0.0.1:1");
        for named in [gone, "gone.pem"] {
            let of_others = ("OTEL_EXPORTER_OTLP_CERTIFICATE", named);
            let why = look(&[encrypted, of_others]).unwrap().expect("nothing is traced");
            assert!(why.starts_with("OTEL_EXPORTER_OTLP_CERTIFICATE: cannot read "), "{why}");
            let plain = ("HEARTH_TRACES_ENDPOINT", "http://127.0.0.1:1");
            assert_eq!(look(&[plain, of_others]).unwrap(), None, "plain HTTP ignores the variable");
        }
        let failure = look(&[encrypted, ("HEARTH_TRACES_CA", gone)]).unwrap_err();
        assert!(failure.hint().unwrap().starts_with("correct `traces.ca`, "), "{failure:?}");
    }
}
