//! Traces of real requests as a collector receives them, from the client through PHP to PHP's own calls.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use prost::Message as _;
use testkit::{Origin, Reply, Running, Turn, eventually, routes};
use traces::messages::{Any, ExportTraceServiceRequest, SpanMessage};

use crate::hearth::{Hearth, LIMIT, Serve, Site, command, of_tier};

/// The client's `traceparent`.
const CLIENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A script that prints its `traceparent`, and calls a URL in the way that the request names.
const CALLS: &str = r"<?php
$own = isset($_GET['own']) ? ['traceparent: ' . $_GET['own']] : [];
if (isset($_GET['curl'])) {
    $curl = curl_init($_GET['curl']);
    curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 20, CURLOPT_HTTPHEADER => $own]);
    if (isset($_GET['slow'])) {
        curl_setopt($curl, CURLOPT_COOKIEFILE, '');
    }
    $body = curl_exec($curl);
} elseif (isset($_GET['stream'])) {
    $body = file_get_contents($_GET['stream']);
}
echo json_encode(['parent' => $_SERVER['HTTP_TRACEPARENT'] ?? null, 'state' => $_SERVER['HTTP_TRACESTATE'] ?? null, 'body' => $body ?? null]);
";

/// A collector that accepts everything.
struct Collector(Origin);

impl Collector {
    fn start() -> Self {
        Self(Origin::plain(|_| Reply::text("").into()))
    }

    fn endpoint(&self) -> String {
        self.0.url("/v1/traces")
    }

    fn spans(&self) -> Vec<SpanMessage> {
        self.batches().into_iter().flatten().collect()
    }

    /// Returns the spans of each export request, in order.
    fn batches(&self) -> Vec<Vec<SpanMessage>> {
        let requests = self.0.requests();
        let complete = requests.into_iter().filter(|seen| seen.complete);
        let decoded = complete.map(|seen| {
            assert_eq!(seen.path(), "/v1/traces");
            assert_eq!(seen.field("content-type"), Some("application/x-protobuf"));
            ExportTraceServiceRequest::decode(&seen.body[..]).unwrap()
        });
        let scopes = |request: ExportTraceServiceRequest| {
            request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans)
        };
        decoded.map(|request| scopes(request).flat_map(|scope| scope.spans).collect()).collect()
    }

    /// Waits for the span of an answered request, with all spans below it.
    fn trace_of(&self, parent: &str, spans: usize) -> Trace {
        let of_it = || self.spans_of(parent);
        eventually("the collector has the trace", LIMIT, || of_it().len() >= spans);
        Trace(of_it())
    }

    /// Returns the spans received until now, without those sent again.
    fn spans_of(&self, parent: &str) -> Vec<SpanMessage> {
        let trace = parent.split('-').nth(1).unwrap();
        let (mut spans, mut seen) = (self.spans(), BTreeSet::new());
        spans.retain(|span| hex(&span.trace_id) == trace && seen.insert(span.span_id.clone()));
        spans
    }
}

struct Trace(Vec<SpanMessage>);

impl Trace {
    /// Returns the only span of its kind and name.
    fn only(&self, kind: i32, name: &str) -> &SpanMessage {
        let mut found = self.0.iter().filter(|span| span.kind == kind && span.name == name);
        let first = found.next().unwrap_or_else(|| panic!("no {kind} {name} in {:#?}", self.0));
        assert!(found.next().is_none(), "one {kind} {name}: {:#?}", self.0);
        first
    }
}

const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT_KIND: i32 = 3;

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn attributes(span: &SpanMessage) -> BTreeMap<&str, String> {
    let text = |value: &Any| match value {
        Any::String(text) => text.clone(),
        Any::Bool(truth) => truth.to_string(),
        Any::Int(number) => number.to_string(),
    };
    let value = |pair: &traces::messages::KeyValue| {
        text(pair.value.as_ref().unwrap().value.as_ref().unwrap())
    };
    span.attributes.iter().map(|pair| (pair.key.as_str(), value(pair))).collect()
}

fn traced(model: &str, site: &Site, collector: &Collector) -> Hearth {
    let path = site.served_in(model, "worker.php");
    Serve::new(path)
        .args(&["--model", model, "--traces", &collector.endpoint()])
        .ini("hearth.intercept_streams", "1")
        .workers(1)
        .start()
}

fn site() -> Site {
    let worker = "<?php while (hearth_handle_request(function () { require __DIR__ . '/public/index.php'; })) { }";
    Site::empty().with_file("public/index.php", CALLS).with_file("worker.php", worker)
}

fn get(hearth: &Hearth, target: &str, fields: &[(&str, &str)]) -> serde_json::Value {
    hearth.connect().request("GET", target, fields, b"").unwrap().json()
}

#[test]
fn a_trace_spans_client_php_and_called_services() {
    let (site, collector) = (site(), Collector::start());
    for model in of_tier(["request", "worker", "snapshot"]) {
        let hearth = traced(model, &site, &collector);
        let origin = Origin::plain(routes);
        for (way, query) in [("curl", ""), ("curl", "&slow=1"), ("stream", "")] {
            let number = u64::from(std::process::id()) << 32
                | u64::try_from(collector.spans().len() + 1).unwrap();
            let parent = format!("00-{:032x}-00f067aa0ba902b7-01", u128::from(number) << 8);
            let url = format!("/?{way}={}{query}", origin.url("/echo%3Ftoken=x"));
            let fields =
                [("traceparent", parent.as_str()), ("tracestate", "a=1"), ("User-Agent", "t")];
            let told = get(&hearth, &url, &fields);

            let trace = collector.trace_of(&parent, 4);
            let server = trace.only(SERVER, "GET");
            assert_eq!(hex(&server.parent_span_id), "00f067aa0ba902b7", "{model} {way}");
            assert_eq!(server.trace_state, "a=1");
            let of_server = attributes(server);
            for (name, value) in [
                ("http.request.method", "GET"),
                ("http.response.status_code", "200"),
                ("url.path", "/"),
                ("url.scheme", "http"),
                ("server.address", "example.org"),
                ("client.address", "127.0.0.1"),
                ("network.protocol.version", "1.1"),
                ("user_agent.original", "t"),
            ] {
                assert_eq!(of_server.get(name).map(String::as_str), Some(value), "{name}");
            }
            let server_id = hex(&server.span_id);
            let id = hex(&server.trace_id);
            assert_eq!(told["parent"], format!("00-{id}-{server_id}-01"), "{model} {way}");
            assert_eq!(told["state"], "a=1");

            let (waits, php) =
                (trace.only(INTERNAL, "wait for worker"), trace.only(INTERNAL, "php"));
            let call = trace.only(CLIENT_KIND, "GET");
            for inside in [waits, php, call] {
                assert_eq!(hex(&inside.parent_span_id), server_id, "{model} {way}");
                assert!(inside.start_time_unix_nano >= server.start_time_unix_nano);
            }
            let of_php = attributes(php);
            assert_eq!(of_php["php.model"], model);
            assert_eq!(of_php["process.pid"], hearth.worker_pid().to_string());
            assert!(of_php["php.version"].starts_with("8."));

            let of_call = attributes(call);
            let full = origin.url("/echo?token=REDACTED");
            assert_eq!(of_call["url.full"], full, "{model} {way}");
            assert_eq!(of_call["http.response.status_code"], "200");
            assert_eq!(of_call["server.port"], origin.port().to_string());
            let seen = origin.requests().pop().unwrap();
            let sent = format!("00-{id}-{}-01", hex(&call.span_id));
            assert_eq!(seen.field("traceparent"), Some(sent.as_str()), "{model} {way}");
            assert_eq!(seen.field("tracestate"), Some("a=1"), "{model} {way}");
            assert!(
                seen.fields.iter().all(|(name, _)| !name.to_lowercase().starts_with("hearth-"))
            );
        }
        assert!(hearth.stop().success());
    }
}

#[test]
fn a_trace_starts_here_without_a_tracing_client() {
    let (site, collector) = (site(), Collector::start());
    let hearth = traced("request", &site, &collector);
    let told = Command::new("curl")
        .args(["-s", "--http2-prior-knowledge", "-H", "tracestate: a=1"])
        .arg(format!("http://{}/a?token=x", hearth.address))
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["state"], serde_json::Value::Null, "a tracestate without a parent is dropped");
    let trace = collector.trace_of(told["parent"].as_str().unwrap(), 3);
    let server = trace.only(SERVER, "GET");
    assert!(server.parent_span_id.is_empty());
    let attributes = attributes(server);
    assert_eq!(attributes["network.protocol.version"], "2");
    assert_eq!(attributes["url.path"], "/a");
    assert!(!format!("{server:?}").contains("token"), "no query is reported");
    drop(hearth);
}

#[test]
fn a_span_names_its_application() {
    let (site, collector) = (site(), Collector::start());
    site.write("hearth.toml", "[applications.legacy]\npaths = ['/legacy']\n");
    let args = ["--model", "request", "--traces", &collector.endpoint()];
    let hearth = Serve::new(site.path()).args(&args).workers(1).start();
    for (target, application) in [("/", "main"), ("/legacy", "legacy")] {
        let told = get(&hearth, target, &[]);
        let trace = collector.trace_of(told["parent"].as_str().unwrap(), 3);
        let server = trace.only(SERVER, "GET");
        assert_eq!(attributes(server)["hearth.application"], application);
    }
}

#[test]
fn trace_fields_set_by_php_stay_unchanged() {
    let (site, collector) = (site(), Collector::start());
    let hearth = traced("request", &site, &collector);
    let origin = Origin::plain(routes);
    let own = format!("00-{TRACE}-1111111111111111-01");
    let url = format!("/?curl={}&own={own}", origin.url("/echo"));
    get(&hearth, &url, &[("traceparent", CLIENT)]);
    assert_eq!(origin.requests()[0].field("traceparent"), Some(own.as_str()));
    let trace = collector.trace_of(CLIENT, 4);
    let call = trace.only(CLIENT_KIND, "GET");
    assert_eq!(hex(&call.parent_span_id), "1111111111111111");
    drop(hearth);
}

#[test]
fn an_unsampled_trace_stays_unsampled_and_is_passed_on() {
    let (site, collector) = (site(), Collector::start());
    let hearth = traced("request", &site, &collector);
    let origin = Origin::plain(routes);
    let unsampled = format!("00-{TRACE}-00f067aa0ba902b7-00");
    let url = format!("/?curl={}", origin.url("/echo"));
    let told = get(&hearth, &url, &[("traceparent", &unsampled)]);
    let (begin, end) = (format!("00-{TRACE}-"), "-00");
    let parent = told["parent"].as_str().unwrap();
    assert!(parent.starts_with(&begin) && parent.ends_with(end) && parent != unsampled, "{parent}");
    let sent = origin.requests()[0].field("traceparent").unwrap().to_owned();
    assert!(sent.starts_with(&begin) && sent.ends_with(end) && sent != parent, "{sent}");
    assert!(hearth.stop().success());
    assert_eq!(collector.spans().len(), 0);
}

#[test]
fn without_a_collector_no_trace_is_mentioned() {
    let site = site();
    let hearth = Hearth::request(&site);
    let origin = Origin::plain(routes);
    let url = format!("/?curl={}", origin.url("/echo"));
    assert_eq!(get(&hearth, &url, &[])["parent"], serde_json::Value::Null);
    assert_eq!(get(&hearth, &url, &[("traceparent", CLIENT)])["parent"], CLIENT);
    assert!(origin.requests().iter().all(|seen| seen.field("traceparent").is_none()));
    drop(hearth);
}

#[test]
fn a_span_reports_why_its_worker_died() {
    let site =
        Site::empty().with_file("public/index.php", "<?php posix_kill(getmypid(), 9); sleep(20);");
    let collector = Collector::start();
    let hearth = traced("request", &site, &collector);
    let answer = hearth.connect().request("GET", "/", &[("traceparent", CLIENT)], b"").unwrap();
    assert_eq!(answer.status, 502);
    let trace = collector.trace_of(CLIENT, 3);
    for (kind, name) in [(SERVER, "GET"), (INTERNAL, "php")] {
        let status = trace.only(kind, name).status.as_ref().unwrap();
        assert_eq!(status.code, 2);
        assert!(status.message.contains("died"), "{status:?}");
    }
    assert_eq!(attributes(trace.only(SERVER, "GET"))["error.type"], "502");
    drop(hearth);
}

#[test]
fn an_unreachable_collector_delays_no_request() {
    let site = site();
    let hanging = Origin::plain(|_| Turn::Never);
    for endpoint in ["http://127.0.0.1:1".to_owned(), hanging.url("")] {
        let hearth = Serve::new(site.path())
            .args(&["--model", "request", "--traces", &endpoint])
            .workers(1)
            .start();
        for _ in 0..20 {
            assert!(get(&hearth, "/", &[])["parent"].is_string());
        }
        if hanging.url("") != endpoint {
            hearth.log_line("spans not accepted");
        }
        let metrics = String::from_utf8(hearth.admin("/metrics").body).unwrap();
        assert!(metrics.contains("hearth_traces_spans_total"), "{metrics}");
        assert!(hearth.stop().success());
    }
}

#[test]
fn rejected_spans_are_retried_and_flushed_at_exit() {
    let site = site();
    let busy = Reply::text("busy").status(503).field("Retry-After", "0");
    let origin = Origin::plain(move |seen| match seen.number {
        0 => busy.clone().into(),
        _ => Reply::text("").into(),
    });
    let collector = Collector(origin);
    let hearth = traced("request", &site, &collector);
    get(&hearth, "/", &[("traceparent", CLIENT)]);
    hearth.log_line("spans are accepted again");
    assert!(hearth.stop().success());
    // The last spans are sent once, within three seconds. If the collector was stopped for that long, the test tries
    // again.
    let sent_at_the_end = (0..5).any(|number| {
        let other = format!("00-5bf92f3577b34da6a3ce929d0e0e473{number}-00f067aa0ba902b7-01");
        let hearth = traced("request", &site, &collector);
        get(&hearth, "/", &[("traceparent", &other)]);
        assert!(hearth.stop().success());
        collector.spans_of(&other).len() == 3
    });
    assert!(sent_at_the_end, "nothing is lost at the end");
    // Every span of the refused batch was sent again.
    assert_eq!(collector.trace_of(CLIENT, 3).0.len(), 3);
    let batches = collector.batches();
    let (refused, later) = batches.split_first().unwrap();
    assert!(!refused.is_empty());
    for span in refused {
        assert!(later.iter().flatten().any(|again| again.span_id == span.span_id), "{span:?}");
    }
}

#[test]
fn a_lambda_invocation_sends_its_span_before_the_next() {
    let site = site();
    let collector = Collector::start();
    let mut command = command();
    command
        .arg("lambda")
        .arg(site.path())
        .args(["--model", "request", "--emulate", "127.0.0.1:0"])
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.endpoint());
    let process = Running::start(&mut command);
    let ready = process
        .log()
        .find(LIMIT, |line| Some(line.strip_prefix("hearth: ready on http://")?.to_owned()));
    let address: std::net::SocketAddr = ready.unwrap().parse().unwrap();
    let ask = || {
        let mut client = testkit::Client::connect(address).unwrap();
        client.request("GET", "/a", &[], b"").unwrap().json()
    };
    let told = ask();
    let trace = collector.trace_of(told["parent"].as_str().unwrap(), 3);
    let server = trace.only(SERVER, "invocation");
    let of_server = attributes(server);
    assert_eq!(of_server["faas.trigger"], "http");
    assert_eq!(of_server["faas.coldstart"], "true");
    assert_eq!(of_server["http.response.status_code"], "200");
    assert!(of_server.contains_key("faas.invocation_id"));
    assert_eq!(trace.only(INTERNAL, "php").parent_span_id, server.span_id);
    let told = ask();
    let trace = collector.trace_of(told["parent"].as_str().unwrap(), 3);
    assert_eq!(attributes(trace.only(SERVER, "invocation"))["faas.coldstart"], "false");
    drop(process);
}
