//! Tests the emulator with a scripted runtime.

use std::num::NonZeroUsize;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use front_lambda::emulator::{FunctionError, Integration, Options};
use serde_json::json;

use crate::bootstrap::{Bootstrap, INVOCATIONS, LIMIT, Running};

const PRELUDED: &str = "application/vnd.awslambda.http-integration-response";

fn start() -> (Running, Bootstrap) {
    start_with(Options::default())
}

fn start_with(options: Options) -> (Running, Bootstrap) {
    let running = Running::start(options);
    let bootstrap = running.bootstrap();
    (running, bootstrap)
}

fn as_integration(integration: Integration) -> (Running, Bootstrap) {
    start_with(Options { integration, ..Options::default() })
}

/// Returns status, `errorType` and `errorMessage` of a response.
fn told(answer: &testkit::Answer) -> (u16, String, String) {
    let json = answer.json();
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    (answer.status, text("errorType"), text("errorMessage"))
}

#[test]
fn an_event_reaches_the_runtime_and_its_response_returns() {
    let (running, mut runtime) = start();
    let context = STANDARD.encode(r#"{"custom":1}"#);
    let fields = [
        ("X-Amzn-Trace-Id", "Root=1-2-3"),
        ("X-Amz-Client-Context", context.as_str()),
        ("X-Amz-Tenant-Id", "tenant"),
        ("X-Amz-Log-Type", "Tail"),
    ];
    let caller = running.invoke_with(&fields, r#"{"a":1}"#);
    let event = runtime.next();
    assert_eq!(event.answer.text(), r#"{"a":1}"#);
    assert_eq!(event.answer.field("lambda-runtime-trace-id"), Some("Root=1-2-3"));
    assert_eq!(event.answer.field("lambda-runtime-client-context"), Some(r#"{"custom":1}"#));
    assert_eq!(event.answer.field("lambda-runtime-aws-tenant-id"), Some("tenant"));
    let arn = "arn:aws:lambda:us-east-1:123456789012:function:test_function";
    assert_eq!(event.answer.field("lambda-runtime-invoked-function-arn"), Some(arn));
    let deadline: u128 = event.answer.field("lambda-runtime-deadline-ms").unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(deadline > now.as_millis() && deadline <= now.as_millis() + 300_000);
    let accepted = runtime.respond(&event.id, br#"{"b":2}"#);
    assert_eq!((accepted.status, accepted.text()), (202, "{\"status\":\"OK\"}\n".into()));
    runtime.ask_next();
    let answer = caller.join().unwrap();
    assert_eq!((answer.status, answer.text()), (200, r#"{"b":2}"#.into()));
    assert_eq!(answer.field("x-amz-function-error"), None);
    assert_eq!(answer.field("x-amzn-requestid"), Some(event.id.as_str()));
    let log = STANDARD.decode(answer.field("x-amz-log-result").unwrap()).unwrap();
    let log = String::from_utf8(log).unwrap();
    assert!(log.starts_with(&format!("START RequestId: {} Version: $LATEST\nEND ", event.id)));
    assert!(log.contains("\tMax Memory Used: 0 MB\tInit Duration: "), "{log}");
}

#[test]
fn an_error_reaches_the_caller_and_is_logged() {
    let (running, mut runtime) = start();
    let caller = running.invoke("{}");
    let event = runtime.next();
    let body = br#"{"errorMessage":"no","errorType":"RuntimeException","stackTrace":[]}"#;
    assert_eq!(runtime.error(&event.id, "Function.RuntimeException", body).status, 202);
    runtime.ask_next();
    let answer = caller.join().unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_slice()));
    assert_eq!(answer.field("x-amz-function-error"), Some("Unhandled"));
    assert_eq!(answer.field("error-type"), Some("Function.RuntimeException"));
    let report = &running.lines(3)[2];
    assert!(
        report.ends_with("\tStatus: error\tError Type: Function.RuntimeException\t"),
        "{report}"
    );
}

#[test]
fn an_out_of_order_answer_gets_aws_error_text() {
    let (running, mut runtime) = start();
    let unknown = (400, "InvalidRequestID".into(), "Invalid request ID".into());
    assert_eq!(told(&runtime.respond("nothing", b"1")), unknown);
    let caller = running.invoke("{}");
    let event = runtime.next();
    assert_eq!(told(&runtime.respond("other", b"1")), unknown);
    assert_eq!(runtime.respond(&event.id, b"1").status, 202);
    let twice = "State transition from RuntimeResponseSentState to InvocationResponse failed for runtime. Error: State transition is not allowed";
    let forbidden = (403, "InvalidStateTransition".into(), twice.into());
    assert_eq!(told(&runtime.respond(&event.id, b"2")), forbidden);
    assert_eq!(runtime.error(&event.id, "Function.Broken", b"{}").status, 403);
    assert_eq!(runtime.post("init/error", &[], b"{}").status, 403);
    runtime.ask_next();
    assert_eq!(caller.join().unwrap().text(), "1");
    assert_eq!(told(&running.bootstrap().respond(&event.id, b"3")), unknown);
}

#[test]
fn a_response_of_more_than_6_megabytes_is_an_error_of_the_function() {
    let (running, mut runtime) = start();
    let caller = running.invoke("{}");
    let event = runtime.next();
    let limit = 6 * 1024 * 1024 + 100;
    let refused = runtime.respond(&event.id, &vec![b'x'; limit + 1]);
    let message = "Exceeded maximum allowed payload size (6291556 bytes).".to_owned();
    assert_eq!(told(&refused), (413, "RequestEntityTooLarge".into(), message));
    runtime.ask_next();
    let answer = caller.join().unwrap();
    assert_eq!(answer.json()["errorType"], "Function.ResponseSizeTooLarge");
    let caller = running.invoke("{}");
    let event = runtime.take_next();
    assert_eq!(runtime.respond(&event.id, &vec![b'x'; limit]).status, 202);
    runtime.ask_next();
    assert_eq!(caller.join().unwrap().body.len(), limit);
}

#[test]
fn an_incomplete_response_fails_and_the_runtime_continues() {
    let (running, mut runtime) = start();
    let caller = running.invoke("{}");
    let event = runtime.next();
    let path = format!("/2018-06-01/runtime/invocation/{}/response", event.id);
    let mut broken = running.connect();
    broken.send(testkit::head("POST", &path, &[], 100)).unwrap();
    broken.send("half").unwrap();
    let next = "/2018-06-01/runtime/invocation/next";
    testkit::eventually("the response has begun", LIMIT, || {
        runtime.client.get(next).unwrap().status == 403
    });
    drop(broken);
    testkit::eventually("the loss is seen", LIMIT, || {
        let (status, _, message) = told(&runtime.respond(&event.id, b"again"));
        assert_eq!(status, 403);
        message.contains("from RuntimeResponseSentState")
    });
    runtime.ask_next();
    assert_eq!(caller.join().unwrap().json()["errorType"], "Runtime.TruncatedResponse");
}

#[test]
fn another_response_mode_than_streaming_is_refused() {
    let (running, mut runtime) = start();
    let caller = running.invoke("{}");
    let event = runtime.next();
    let path = format!("invocation/{}/response", event.id);
    let fields = [("Lambda-Runtime-Function-Response-Mode", "buffered")];
    let refused = runtime.post(&path, &fields, b"{}");
    let words = ("InvalidFunctionResponseMode".into(), "Invalid function response mode".into());
    assert_eq!(told(&refused), (400, words.0, words.1));
    runtime.ask_next();
    let answer = caller.join().unwrap();
    assert_eq!(answer.json()["errorType"], "Runtime.InvalidResponseModeHeader");
}

#[test]
fn an_error_that_is_no_json_reaches_the_caller_as_it_was_posted() {
    let (running, mut runtime) = start();
    for (media_type, posted, expected) in [
        ("text/plain", "out of order", "out of order"),
        ("application/json", "", ""),
        ("application/vnd.aws.lambda.error.cause+json", "{", "\"Invalid error body\""),
    ] {
        let caller = running.invoke("{}");
        let event = runtime.next();
        let fields =
            [("Lambda-Runtime-Function-Error-Type", "Function.Told"), ("Content-Type", media_type)];
        let path = format!("invocation/{}/error", event.id);
        assert_eq!(runtime.post(&path, &fields, posted.as_bytes()).status, 202);
        runtime.ask_next();
        let answer = caller.join().unwrap();
        assert_eq!(answer.field("error-type"), Some("Function.Told"), "{media_type}");
        assert_eq!(answer.text(), expected, "{media_type}");
        let page = running.browse("GET", "/", &[], b"");
        let event = runtime.take_next();
        assert_eq!(
            runtime
                .post(&format!("invocation/{}/error", event.id), &fields, posted.as_bytes())
                .status,
            202
        );
        assert_eq!(page.join().unwrap().status, 502, "{media_type}");
    }
}

#[test]
fn a_slow_invocation_times_out_and_the_next_one_works() {
    let options = Options { timeout: Duration::from_millis(300), ..Options::default() };
    let (running, mut runtime) = start_with(options);
    let caller = running.invoke("{}");
    let event = runtime.next();
    let answer = caller.join().unwrap();
    assert_eq!(answer.json()["errorType"], "Sandbox.Timedout");
    let message = format!("RequestId: {} Error: Task timed out after 0.30 seconds", event.id);
    assert_eq!(answer.json()["errorMessage"], message);
    assert_eq!(runtime.respond(&event.id, b"late").status, 400);
    let report = &running.lines(3)[2];
    assert!(report.contains("\tDuration: 300.00 ms\tBilled Duration: "), "{report}");
    assert!(report.ends_with("\tStatus: timeout\t"), "{report}");
    let caller = running.invoke("{}");
    let event = runtime.next();
    assert_eq!(runtime.respond(&event.id, b"1").status, 202);
    runtime.ask_next();
    assert_eq!(caller.join().unwrap().text(), "1");
}

#[test]
fn several_run_at_once_and_a_late_answer_gets_410() {
    let concurrency = NonZeroUsize::new(2).unwrap();
    let timeout = Duration::from_secs(5);
    let (running, mut first) = start_with(Options { concurrency, timeout, ..Options::default() });
    let mut second = running.bootstrap();
    let callers = [running.invoke("1"), running.invoke("2")];
    let events = [first.next(), second.next()];
    assert_ne!(events[0].id, events[1].id);
    assert_eq!(second.respond(&events[1].id, b"\"second\"").status, 202);
    assert_eq!(second.respond(&events[1].id, b"\"again\"").status, 400);
    let [one, two] = callers.map(|caller| caller.join().unwrap().text());
    let late = first.respond(&events[0].id, b"late");
    assert_eq!(told(&late), (410, "InvokeTimeout".into(), "Invoke timeout".into()));
    let texts = [one, two];
    assert!(texts.iter().any(|text| text == "\"second\""), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("Sandbox.Timedout")), "{texts:?}");
}

#[test]
fn an_init_error_reaches_every_caller() {
    let (running, mut runtime) = start();
    let waits = running.invoke("{}");
    let body = br#"{"errorMessage":"no PHP","errorType":"Runtime.BootFailed","stackTrace":[]}"#;
    let fields = [("Lambda-Runtime-Function-Error-Type", "Runtime.BootFailed")];
    assert_eq!(runtime.post("init/error", &fields, body).status, 202);
    for caller in [waits, running.invoke("{}")] {
        let answer = caller.join().unwrap();
        assert_eq!(answer.body, body);
        assert_eq!(answer.field("error-type"), Some("Runtime.BootFailed"));
    }
    let page = running.browse("GET", "/", &[], b"").join().unwrap();
    assert_eq!(page.status, 502);
}

#[test]
fn bad_events_and_unknown_calls_are_refused_before_they_reach_the_runtime() {
    let (running, _runtime) = start();
    let refused = |event: &str| {
        let answer = running.invoke(event).join().unwrap();
        (answer.status, answer.field("x-amzn-errortype").unwrap_or_default().to_owned())
    };
    assert_eq!(refused("{"), (400, "InvalidRequestContentException".into()));
    let large = format!("\"{}\"", "x".repeat(6 << 20));
    assert_eq!(refused(&large), (413, "RequestTooLargeException".into()));
    let get = running.connect().get(INVOCATIONS).unwrap();
    assert_eq!(get.status, 404);
    let mut client = running.connect();
    assert_eq!(client.get("/2018-06-01/ping").unwrap().text(), "pong");
    assert_eq!(client.get("/2018-06-01/runtime/nothing").unwrap().status, 404);
    assert_eq!(client.get("/2018-06-01/runtime/restore/next").unwrap().status, 404);
    let dry = running.invoke_with(&[("X-Amz-Invocation-Type", "DryRun")], "{}");
    assert_eq!(dry.join().unwrap().status, 204);
}

#[test]
fn too_many_waiting_invocations_are_throttled() {
    let (running, _runtime) = start_with(Options { backlog: 1, ..Options::default() });
    let fields = [("X-Amz-Invocation-Type", "Event")];
    assert_eq!(running.invoke_with(&fields, "{}").join().unwrap().status, 202);
    let throttled = running.invoke("{}").join().unwrap();
    assert_eq!(throttled.status, 429);
    assert_eq!(throttled.json()["Reason"], "ConcurrentInvocationLimitExceeded");
    assert_eq!(running.browse("GET", "/", &[], b"").join().unwrap().status, 429);
}

#[test]
fn a_caller_that_disconnects_early_leaves_no_invocation() {
    let (running, mut runtime) = start_with(Options { backlog: 1, ..Options::default() });
    let mut gone = running.connect();
    gone.send(testkit::head("POST", INVOCATIONS, &[], 3) + "\"a\"").unwrap();
    testkit::eventually("the first one waits", LIMIT, || {
        running.invoke_with(&[("X-Amz-Invocation-Type", "Event")], "\"x\"").join().unwrap().status
            == 429
    });
    drop(gone);
    testkit::eventually("there is room again", LIMIT, || {
        running.invoke_with(&[("X-Amz-Invocation-Type", "Event")], "\"b\"").join().unwrap().status
            == 202
    });
    let event = runtime.next();
    assert_ne!(event.answer.text(), "\"a\"");
}

#[test]
fn a_browser_sees_what_the_function_answers() {
    let (running, mut runtime) = start();
    let fields = [("Cookie", "a=1; b=2"), ("Content-Type", "text/plain")];
    let browser = running.browse("POST", "/path?q=%20", &fields, b"hello");
    let event = runtime.next();
    let json = event.answer.json();
    assert_eq!(json["version"], "2.0");
    assert_eq!((&json["rawPath"], &json["rawQueryString"]), (&json!("/path"), &json!("q=%20")));
    assert_eq!(json["cookies"], json!(["a=1", "b=2"]));
    assert_eq!(json["body"], "hello");
    assert_eq!(json["requestContext"]["requestId"], event.id);
    let reply = json!({"statusCode": 201, "headers": {"x-a": "b"}, "cookies": ["c=3", "d=4"],
        "body": STANDARD.encode(b"\0binary\xff"), "isBase64Encoded": true});
    runtime.respond(&event.id, reply.to_string().as_bytes());
    // The response does not wait for the end of the invocation.
    let answer = browser.join().unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (201, &b"\0binary\xff"[..]));
    assert_eq!(answer.field("x-a"), Some("b"));
    assert_eq!(answer.all("set-cookie"), ["c=3", "d=4"]);
    assert_eq!(answer.field("x-amzn-requestid"), Some(event.id.as_str()));
}

#[test]
fn each_integration_answers_for_a_function_that_fails() {
    for (integration, status, body) in [
        (Integration::FunctionUrl, 502, "Internal Server Error"),
        (Integration::ApiGatewayV1, 502, r#"{"message": "Internal server error"}"#),
        (Integration::ApiGatewayV2, 500, r#"{"message":"Internal Server Error"}"#),
        (Integration::Alb, 502, "502 Bad Gateway"),
        (Integration::AlbMultiValue, 502, "502 Bad Gateway"),
    ] {
        let (running, mut runtime) = as_integration(integration);
        let failed = running.browse("GET", "/", &[], b"");
        let event = runtime.next();
        runtime.error(&event.id, "Function.Broken", b"{}");
        runtime.ask_next();
        let answer = failed.join().unwrap();
        assert_eq!(answer.status, status, "{integration}");
        assert!(answer.text().contains(body), "{integration}: {}", answer.text());
        let misunderstood = running.browse("GET", "/", &[], b"");
        let event = runtime.take_next();
        runtime.respond(&event.id, br#"{"statusCode":"none"}"#);
        assert_eq!(misunderstood.join().unwrap().status, status, "{integration}");
    }
}

#[test]
fn a_load_balancer_has_its_own_events_reasons_and_limits() {
    let (running, mut runtime) = as_integration(Integration::AlbMultiValue);
    let browser = running.browse("GET", "/?a=%20&a=2", &[], b"");
    let event = runtime.next();
    let json = event.answer.json();
    assert_eq!(json["multiValueQueryStringParameters"], json!({"a": ["%20", "2"]}));
    let reply = r#"{"statusCode":200,"statusDescription":"200 Very Fine","multiValueHeaders":{"set-cookie":["a=1","b=2"]},"body":"x"}"#;
    runtime.respond(&event.id, reply.as_bytes());
    let answer = browser.join().unwrap();
    assert_eq!(answer.status_line, "HTTP/1.1 200 Very Fine");
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    let large = running.browse("POST", "/", &[], &vec![b'x'; (1 << 20) + 1]).join().unwrap();
    assert_eq!(large.status, 413);
    runtime.ask_next();
    let browser = running.browse("GET", "/", &[], b"");
    let event = runtime.take_next();
    let reply =
        json!({"statusCode": 200, "multiValueHeaders": {}, "body": "x".repeat((1 << 20) + 1)});
    runtime.respond(&event.id, reply.to_string().as_bytes());
    assert_eq!(browser.join().unwrap().status, 502);
}

#[test]
fn a_streamed_answer_reaches_the_browser_before_the_function_ends() {
    let (running, mut runtime) = start_with(Options { streams: true, ..Options::default() });
    let mut browser = running.connect();
    browser.send(testkit::head("GET", "/", &[], 0)).unwrap();
    let event = runtime.next();
    runtime.begin_stream(&event.id, PRELUDED);
    runtime.chunk(br#"{"statusCode":203,"headers":{"x-a":"b"},"cookies":["c=1"]}"#);
    runtime.chunk(b"\0\0\0\0\0\0\0\0first");
    let head = browser.head().unwrap();
    assert_eq!((head.status, head.field("x-a")), (203, Some("b")));
    assert_eq!(head.field("set-cookie"), Some("c=1"));
    assert_eq!(browser.chunk().unwrap().unwrap(), b"first");
    runtime.chunk(b"\0\0second\xff");
    assert_eq!(browser.chunk().unwrap().unwrap(), b"\0\0second\xff");
    assert_eq!(runtime.end_stream("").status, 202);
    assert_eq!(browser.chunk().unwrap(), None);
    runtime.ask_next();
    assert!(!running.lines(3)[2].contains("Status:"));
}

#[test]
fn a_failed_stream_is_cut_and_reported() {
    let (running, mut runtime) = start_with(Options { streams: true, ..Options::default() });
    let mut browser = running.connect();
    browser.send(testkit::head("GET", "/", &[], 0)).unwrap();
    let event = runtime.next();
    runtime.begin_stream(&event.id, "text/plain");
    runtime.chunk(b"half");
    assert_eq!(browser.head().unwrap().field("content-type"), Some("text/plain"));
    assert_eq!(browser.chunk().unwrap().unwrap(), b"half");
    let body = STANDARD.encode(r#"{"errorType":"Function.Broken","errorMessage":"no"}"#);
    let trailers = format!(
        "Lambda-Runtime-Function-Error-Type: Function.Broken\r\nLambda-Runtime-Function-Error-Body: {body}\r\n"
    );
    assert_eq!(runtime.end_stream(&trailers).status, 202);
    browser.chunk().unwrap_err();
    runtime.ask_next();
    let report = &running.lines(3)[2];
    assert!(report.ends_with("\tStatus: error\tError Type: Function.Broken\t"), "{report}");
    let caller = running.invoke("{}");
    let event = runtime.take_next();
    runtime.begin_stream(&event.id, "text/plain");
    runtime.chunk(b"half");
    runtime.end_stream(&trailers);
    runtime.ask_next();
    let answer = caller.join().unwrap();
    assert_eq!(answer.json()["errorMessage"], "no");
    assert_eq!(answer.field("error-type"), Some("Function.Broken"));
}

#[test]
fn a_timed_out_stream_is_cut() {
    let timeout = Duration::from_secs(5);
    let (running, mut runtime) =
        start_with(Options { streams: true, timeout, ..Options::default() });
    let mut browser = running.connect();
    browser.send(testkit::head("GET", "/", &[], 0)).unwrap();
    let event = runtime.next();
    runtime.begin_stream(&event.id, "text/plain");
    runtime.chunk(b"half");
    browser.head().unwrap();
    assert_eq!(browser.chunk().unwrap().unwrap(), b"half");
    browser.chunk().unwrap_err();
    assert!(running.lines(3)[2].ends_with("\tStatus: timeout\t"));
}

#[test]
fn a_streamed_answer_to_an_integration_that_waits_has_its_prelude_in_the_body() {
    let (running, mut runtime) = start();
    let browser = running.browse("GET", "/", &[], b"");
    let event = runtime.next();
    runtime.begin_stream(&event.id, PRELUDED);
    runtime.chunk(b"{\"statusCode\":203}\0\0\0\0\0\0\0\0body");
    runtime.end_stream("");
    let answer = browser.join().unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, b"{\"statusCode\":203}\0\0\0\0\0\0\0\0body");
}

#[test]
fn an_extension_gets_invoke_and_shutdown_events() {
    let external_extensions = vec!["outside".to_owned()];
    let (mut running, mut runtime) =
        start_with(Options { external_extensions, ..Options::default() });
    let register = |name: &str, events: &str| {
        let path = "/2020-01-01/extension/register";
        let fields = [("Lambda-Extension-Name", name)];
        running.connect().request("POST", path, &fields, events.as_bytes()).unwrap()
    };
    let refused = register("inside", r#"{"events":["SHUTDOWN"]}"#);
    assert_eq!((refused.status, told(&refused).1.as_str()), (403, "Extension.InvalidEventType"));
    assert_eq!(register("", "{}").status, 403);
    assert_eq!(told(&register("inside", "no JSON")).1, "InvalidRequestFormat");
    assert_eq!(register("inside", r#"{"events":[]}"#).status, 200);
    let registered = register("outside", r#"{"events":["INVOKE","SHUTDOWN"]}"#);
    assert_eq!(registered.json()["functionName"], "test_function");
    let id = registered.field("lambda-extension-identifier").unwrap();
    let next = testkit::head(
        "GET",
        "/2020-01-01/extension/event/next",
        &[("Lambda-Extension-Identifier", id)],
        0,
    );
    let mut extension = running.connect();
    extension.send(&next).unwrap();
    let caller = running.invoke("{}");
    let event = runtime.next();
    let heard = extension.answer_to("GET").unwrap().json();
    assert_eq!((&heard["eventType"], &heard["requestId"]), (&json!("INVOKE"), &json!(event.id)));
    runtime.respond(&event.id, b"1");
    runtime.ask_next();
    extension.send(&next).unwrap();
    assert_eq!(caller.join().unwrap().text(), "1");
    let mut telemetry = running.connect();
    let told = telemetry.request("PUT", "/2022-07-01/telemetry", &[], b"{}").unwrap().json();
    assert_eq!(told["errorType"], "Telemetry.NotSupported");
    running.stop();
    let heard = extension.answer_to("GET").unwrap().json();
    assert_eq!(
        (&heard["eventType"], &heard["shutdownReason"]),
        (&json!("SHUTDOWN"), &json!("spindown"))
    );
}

#[test]
fn a_restored_runtime_runs_its_hooks_before_the_first_event() {
    let (running, mut runtime) = start_with(Options { snap_start: true, ..Options::default() });
    runtime.client.send(testkit::head("GET", "/2018-06-01/runtime/restore/next", &[], 0)).unwrap();
    let caller = running.invoke("{}");
    assert_eq!(runtime.client.answer_to("GET").unwrap().status, 200);
    let event = runtime.next();
    runtime.respond(&event.id, b"1");
    runtime.ask_next();
    assert_eq!(caller.join().unwrap().text(), "1");
    assert!(running.lines(3)[2].contains("\tRestore Duration: "));
}

#[test]
fn a_runtime_that_exits_fails_its_invocation() {
    let (running, mut runtime) = start();
    let caller = running.invoke("{}");
    runtime.next();
    drop(runtime);
    running.handle.exited(&FunctionError::new("Runtime.ExitError", "exit status 1"));
    assert_eq!(caller.join().unwrap().json()["errorType"], "Runtime.ExitError");
    let caller = running.invoke("{}");
    let mut another = running.bootstrap();
    let event = another.next();
    another.respond(&event.id, b"1");
    another.ask_next();
    assert_eq!(caller.join().unwrap().text(), "1");
}

#[test]
fn a_disconnected_poll_loses_no_event() {
    let (running, mut runtime) = start();
    // Fewer than may wait at once: the emulator may not have noticed yet that they are gone.
    for _ in 0..10 {
        running.bootstrap().ask_next();
    }
    let caller = running.invoke("{}");
    let event = runtime.next();
    runtime.respond(&event.id, b"1");
    runtime.ask_next();
    assert_eq!(caller.join().unwrap().text(), "1");
}
