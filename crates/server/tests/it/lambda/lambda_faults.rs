//! `hearth lambda` with invalid events, scripts that fail, and a Runtime API that misbehaves.

use std::net::TcpListener;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Act, LambdaEvent, Posted, ProcessFacts, eventually};

use crate::hearth::{LIMIT, Site, of_tier};
use crate::lambda::{Lambda, body, get};

const FINE: &str = "<?php echo 'fine';";

/// Returns the type and the body of a posted error.
fn error(posted: &Posted) -> (String, Value) {
    assert_eq!(posted.call, "error", "{}", String::from_utf8_lossy(&posted.body));
    let kind = posted.fields["lambda-runtime-function-error-type"].clone();
    let error = posted.json();
    assert_eq!(error["errorType"], *kind);
    assert!(error["stackTrace"].is_array());
    let cause: Value =
        serde_json::from_str(&posted.fields["lambda-runtime-function-xray-error-cause"]).unwrap();
    assert_eq!(cause["exceptions"][0]["type"], *kind);
    (kind, error["errorMessage"].clone())
}

#[test]
fn an_event_that_is_no_request_fails_and_the_next_one_is_served() {
    let (_site, lambda) = Lambda::of_script(FINE);
    for (event, expected) in [
        (
            json!({"Records": [{"eventSource": "aws:sqs"}]}).to_string(),
            "an event of aws:sqs, not an HTTP request",
        ),
        (json!([]).to_string(), "not an HTTP request"),
        ("{\"version\": \"2.0\"".to_owned(), "the event cannot be read: EOF"),
        (String::new(), "the event cannot be read: EOF"),
        ("{\"a\":".repeat(10_000), "the event cannot be read"),
        (
            {
                let mut event = get("/");
                event["body"] = "no base64".into();
                event["isBase64Encoded"] = true.into();
                event.to_string()
            },
            "no base64",
        ),
    ] {
        let (kind, message) = error(&lambda.invoke_as(LambdaEvent::new(event)));
        assert_eq!(kind, "Hearth.BadEvent");
        assert!(message.as_str().unwrap().contains(expected), "{message} for {expected}");
    }
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    assert!(lambda.stop().success());
}

#[test]
fn an_event_of_six_megabytes_is_served() {
    let (_site, lambda) = Lambda::of_script("<?php echo strlen(file_get_contents('php://input'));");
    let mut event = get("/");
    event["body"] = "x".repeat(6 * 1000 * 1000).into();
    event["headers"]["content-type"] = "text/plain".into();
    event["requestContext"]["http"]["method"] = "POST".into();
    assert_eq!(body(&lambda.invoke(&event)), "6000000");
}

#[test]
fn a_script_that_exits_early_is_answered_with_its_output() {
    let (_site, lambda) = Lambda::of_script(
        "<?php switch ($_SERVER['REQUEST_URI']) { case '/exit': echo 'so far'; exit(3); \
         case '/early': echo 'early'; flush(); header('X-Late: 1'); break; case '/throw': throw new Exception('x'); }",
    );
    assert_eq!(body(&lambda.invoke(&get("/exit"))), "so far");
    let early = lambda.invoke(&get("/early"));
    assert!(body(&early).starts_with("early"));
    assert_eq!(early.json()["headers"].get("x-late"), None);
    let nothing = lambda.invoke(&get("/nothing"));
    assert_eq!((&nothing.json()["statusCode"], &*body(&nothing)), (&json!(200), ""));
    assert_eq!(lambda.invoke(&get("/throw")).json()["statusCode"], 500);
    assert!(lambda.stop().success());
}

#[test]
fn a_crash_fails_its_invocation_and_the_next_event_is_served() {
    let act = "if ($_SERVER['REQUEST_URI'] === '/crash') { posix_kill(getmypid(), 9); sleep(60); } echo 'fine';";
    let site = Site::empty().with_file("index.php", &format!("<?php {act}")).with_file(
        "worker.php",
        &format!("<?php while (hearth_handle_request(function () {{ {act} }})) {{ }}"),
    );
    for model in of_tier(["worker", "fork", "snapshot", "request", "fpm"]) {
        let lambda = Lambda::start(site.path(), &["--model", model], &[]);
        for _ in 0..2 {
            let (kind, message) = error(&lambda.invoke(&get("/crash")));
            assert_eq!(kind, "Hearth.WorkerDied", "{model}: {message}");
            assert!(message.as_str().unwrap().contains("died"), "{model}: {message}");
            assert_eq!(body(&lambda.invoke(&get("/"))), "fine", "{model}");
        }
        assert!(lambda.stop().success());
    }
}

#[test]
fn a_script_is_stopped_before_the_deadline_and_the_next_event_is_served() {
    let act = "if ($_SERVER['REQUEST_URI'] === '/slow') { sleep(60); } echo 'fine';";
    let site = Site::empty().with_file("index.php", &format!("<?php {act}")).with_file(
        "worker.php",
        &format!("<?php while (hearth_handle_request(function () {{ {act} }})) {{ }}"),
    );
    for model in
        of_tier(["worker", "prespawn", "fork", "snapshot", "request", "fpm", "builtin", "cgi"])
    {
        // The margin is long enough for a busy machine.
        let margin = [("HEARTH_LAMBDA_DEADLINE_MARGIN", "20s")];
        let lambda = Lambda::start(site.path(), &["--model", model], &margin);
        assert_eq!(body(&lambda.invoke(&get("/"))), "fine", "{model}");
        let slow = LambdaEvent::new(get("/slow").to_string()).within(Duration::from_secs(21));
        let (kind, message) = error(&lambda.invoke_as(slow));
        assert_eq!(kind, "Hearth.TimedOut", "{model}");
        assert!(message.as_str().unwrap().starts_with("no answer within "), "{message}");
        assert_eq!(body(&lambda.invoke(&get("/"))), "fine", "{model}");
        assert!(lambda.stop().success());
    }
}

#[test]
fn a_too_large_response_fails_and_the_next_event_is_served() {
    let (_site, lambda) = Lambda::of_script(
        "<?php for ($i = 0; $i < ($_SERVER['REQUEST_URI'] === '/large' ? 7 : 1); $i++) { echo str_repeat('x', 1024 * 1024); }",
    );
    let (kind, message) = error(&lambda.invoke(&get("/large")));
    assert_eq!(kind, "Hearth.ResponseTooLarge");
    assert!(message.as_str().unwrap().contains("6 MB"), "{message}");
    assert_eq!(body(&lambda.invoke(&get("/"))).len(), 1024 * 1024);
    assert!(lambda.stop().success());
}

#[test]
fn a_broken_stream_reports_the_error_in_its_trailers() {
    let (site, _buffered) = Lambda::of_script(
        "<?php echo 'half'; ob_flush(); flush(); if ($_SERVER['REQUEST_URI'] === '/crash') { usleep(300000); posix_kill(getmypid(), 9); sleep(60); }",
    );
    let lambda = Lambda::start(site.path(), &["--model", "request", "--streaming", "on"], &[]);
    let posted = lambda.invoke(&get("/crash"));
    assert!(posted.body.ends_with(b"half"));
    assert_eq!(posted.trailers["lambda-runtime-function-error-type"], "Hearth.AnswerCut");
    assert!(!posted.trailers["lambda-runtime-function-error-body"].is_empty());
    let whole = lambda.invoke(&get("/"));
    assert!(whole.body.ends_with(b"half"));
    assert!(whole.trailers.is_empty());
    assert!(lambda.stop().success());
}

#[test]
fn an_endless_stream_waits_for_its_reader_in_bounded_memory() {
    const PIECE: usize = 65536;
    const BOUND: usize = 32 << 20;
    let script = format!(
        "<?php while (ob_get_level() > 0) {{ ob_end_flush(); }} $told = fopen(__DIR__ . '/told', 'c'); \
         for ($i = 1; !file_exists(__DIR__ . '/go'); $i++) {{ clearstatcache(); echo str_repeat('x', {PIECE}); flush(); \
         rewind($told); fwrite($told, sprintf('%012d', $i)); }}"
    );
    for model in of_tier(["request", "fpm"]) {
        let site = Site::empty().with_file("index.php", &script);
        let lambda = Lambda::start(site.path(), &["--model", model, "--streaming", "on"], &[]);
        let pieces = || {
            let told = std::fs::read_to_string(site.path().join("told")).unwrap_or_default();
            told.parse::<usize>().unwrap_or(0)
        };
        let resident = || ProcessFacts::of(lambda.process.pid()).unwrap().resident;
        lambda.api.on_post(Act::Hold);
        let id = lambda.api.push(LambdaEvent::new(get("/").to_string()));
        eventually("PHP waits for a reader", LIMIT, || {
            let so_far = pieces();
            std::thread::sleep(Duration::from_millis(200));
            so_far > 0 && pieces() == so_far
        });
        // Pieces that are in the sockets' buffers.
        let waiting = pieces();
        assert!(waiting * PIECE < BOUND, "{model}: {waiting} unread pieces");
        let before = resident();
        lambda.api.release();
        let mut most = before;
        eventually("it continues", LIMIT, || {
            most = most.max(resident());
            pieces() > waiting + 2 * BOUND / PIECE
        });
        assert!(most < before + BOUND as u64 / 2, "{model}: {before} bytes became {most}");
        site.write("go", "");
        let posted = lambda.api.answer(&id, LIMIT);
        let head = posted.body.windows(8).position(|eight| eight == [0; 8]).unwrap() + 8;
        assert_eq!(posted.body.len() - head, pieces() * PIECE, "{model}");
        assert!(posted.trailers.is_empty());
        assert!(lambda.stop().success(), "{model}");
    }
}

#[test]
fn a_stream_the_api_stops_reading_fails_only_its_invocation() {
    let script = "<?php if ($_SERVER['REQUEST_URI'] === '/endless') { while (true) { echo str_repeat('x', 65536); flush(); } } echo 'fine';";
    let site = Site::empty().with_file("index.php", script);
    let variables = [("HEARTH_LAMBDA_API_TIMEOUT", "8s")];
    let arguments = ["--model", "request", "--streaming", "on"];
    let lambda = Lambda::start(site.path(), &arguments, &variables);
    lambda.api.on_post(Act::Hold);
    lambda.api.push(LambdaEvent::new(get("/endless").to_string()));
    lambda.process.log().wait_for("response not accepted in time");
    let whole = lambda.invoke(&get("/"));
    assert!(whole.body.ends_with(b"fine"));
    assert!(lambda.stop().success());
}

#[test]
fn a_stream_past_its_deadline_reports_it_in_its_trailers() {
    let script = "<?php echo 'half'; ob_flush(); flush(); if ($_SERVER['REQUEST_URI'] === '/slow') { sleep(60); }";
    let site = Site::empty().with_file("index.php", script);
    // The margin is long enough for a busy machine.
    let variables = [("HEARTH_LAMBDA_DEADLINE_MARGIN", "20s")];
    let arguments = ["--model", "request", "--streaming", "on"];
    let lambda = Lambda::start(site.path(), &arguments, &variables);
    assert!(lambda.invoke(&get("/")).trailers.is_empty());
    let slow = LambdaEvent::new(get("/slow").to_string()).within(Duration::from_secs(21));
    let posted = lambda.invoke_as(slow);
    assert!(posted.body.ends_with(b"half"), "{}", String::from_utf8_lossy(&posted.body));
    assert_eq!(posted.trailers["lambda-runtime-function-error-type"], "Hearth.AnswerCut");
    assert!(lambda.invoke(&get("/")).trailers.is_empty());
    assert!(lambda.stop().success());
}

#[test]
fn a_stream_the_api_refuses_fails_only_its_invocation() {
    let (site, _buffered) = Lambda::of_script(
        "<?php for ($i = 0; $i < ($_SERVER['REQUEST_URI'] === '/endless' ? 100000 : 1); $i++) { echo str_repeat('x', 65536); }",
    );
    let lambda = Lambda::start(site.path(), &["--model", "request", "--streaming", "on"], &[]);
    lambda.api.on_post(Act::RefuseEarly);
    let refused = lambda.api.push(LambdaEvent::new(get("/endless").to_string()));
    let whole = lambda.invoke(&get("/"));
    assert!(whole.complete && whole.call == "response");
    assert!(lambda.api.posted(&refused).iter().all(|posted| posted.call == "error"));
    assert!(lambda.stop().success());
}

#[test]
fn a_failed_next_call_ends_the_program() {
    for (act, expected) in [
        (Act::Answer(500, "{\"errorType\":\"InternalServerError\"}"), "failed `next` with 500"),
        (Act::Answer(403, "{\"errorType\":\"InvalidStateTransition\"}"), "refused `next` with 403"),
        (Act::Answer(200, "no invocation id"), "`next` names no invocation"),
    ] {
        let (_site, lambda) = Lambda::of_script(FINE);
        lambda.api.on_next(act);
        let mut process = lambda.process;
        assert_eq!(process.wait(LIMIT).code(), Some(1));
        process.log().wait_for(expected);
    }
}

#[test]
fn a_connection_closed_by_the_api_is_reopened() {
    let (_site, lambda) = Lambda::of_script(FINE);
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    lambda.api.on_next(Act::Close);
    lambda.api.on_next(Act::Close);
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    // The answer is posted again. The API accepts one for each invocation, not a second one.
    lambda.api.on_post(Act::Close);
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    assert!(lambda.stop().success());
}

#[test]
fn an_api_that_is_gone_ends_the_program() {
    let (_site, lambda) = Lambda::of_script(FINE);
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    let Lambda { api, mut process } = lambda;
    drop(api);
    assert_eq!(process.wait(LIMIT).code(), Some(1));
    process.log().wait_for("does not answer");
}

#[test]
fn a_response_the_api_refuses_fails_only_its_invocation() {
    let (_site, lambda) = Lambda::of_script(FINE);
    for status in [400, 403, 413] {
        lambda.api.on_post(Act::Answer(status, "{\"errorType\":\"No\"}"));
        lambda.api.push(LambdaEvent::new(get("/").to_string()));
        assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
        lambda.process.log().wait_for(&format!("refused `response` with {status}"));
    }
    assert!(lambda.stop().success());
}

#[test]
fn a_response_the_platform_cannot_accept_ends_the_program() {
    let (_site, lambda) = Lambda::of_script(FINE);
    lambda.api.on_post(Act::Answer(500, ""));
    lambda.api.push(LambdaEvent::new(get("/").to_string()));
    let mut process = lambda.process;
    assert_eq!(process.wait(LIMIT).code(), Some(1));
    process.log().wait_for("failed `response` with 500");
}

#[test]
fn a_response_the_api_stalls_on_fails_only_its_invocation() {
    let site = Site::empty().with_file("index.php", FINE);
    let variables = [("HEARTH_LAMBDA_API_TIMEOUT", "8s")];
    let lambda = Lambda::start(site.path(), &["--model", "request"], &variables);
    lambda.api.on_post(Act::Stall);
    lambda.api.push(LambdaEvent::new(get("/").to_string()));
    lambda.process.log().wait_for("response not accepted in time");
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    assert!(lambda.stop().success());
}

#[test]
fn the_next_event_waits_for_a_lost_workers_successor() {
    let site = Site::empty().with_file("go", "").with_file("index.php", "").with_file(
        "worker.php",
        "<?php while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(5000); }\n\
         while (hearth_handle_request(function () { \
         if ($_SERVER['REQUEST_URI'] === '/crash') { posix_kill(getmypid(), 9); sleep(60); } echo 'fine'; })) { }",
    );
    let lambda = Lambda::start(site.path(), &["--model", "worker"], &[]);
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    for _ in 0..2 {
        eventually("the next event is requested", LIMIT, || lambda.api.waiting() == 1);
        std::fs::remove_file(site.path().join("go")).unwrap();
        assert_eq!(error(&lambda.invoke(&get("/crash"))).0, "Hearth.WorkerDied");
        // Between `next` and the next event Lambda may freeze the environment. A wait that is too short makes no test
        // fail.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(lambda.api.waiting(), 0);
        site.write("go", "");
    }
    assert_eq!(body(&lambda.invoke(&get("/"))), "fine");
    assert!(lambda.stop().success());
}

#[test]
fn a_failure_before_the_first_event_is_an_init_error() {
    let site = Site::empty()
        .with_file("index.php", FINE)
        .with_file(
            "broken.php",
            "<?php throw new Exception('no database'); hearth_handle_request(fn () => 1);",
        )
        .with_file("hearth.toml", "[php]\nworkers = 1\n");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    for (arguments, variables, expected) in [
        (&["broken.php", "--model", "worker"][..], &[][..], "the application did not boot"),
        (&["nothing.php"], &[], "nothing to run: no "),
        (&["--model", "worker"], &[], "needs a worker script"),
        (
            &["--model", "request"],
            &[("HEARTH_PHP_MODLE", "x")],
            "unknown setting `HEARTH_PHP_MODLE`",
        ),
        (
            &["--model", "request"],
            &[("HEARTH_LAMBDA_STREAMING", "maybe")],
            "wrong value for `lambda.streaming`",
        ),
        (&["--model", "request"], &[("HEARTH_ADMIN_LISTEN", "0.0.0.0:0")], "token"),
        (
            &["--model", "request"],
            &[("HEARTH_ADMIN_LISTEN", &*taken)],
            "cannot listen on 127.0.0.1",
        ),
    ] {
        let lambda = Lambda::start(site.path(), arguments, variables);
        let posted = lambda.api.answer("", LIMIT);
        assert_eq!(posted.call, "init/error");
        assert_eq!(posted.fields["lambda-runtime-function-error-type"], "Hearth.InitError");
        let message = posted.json()["errorMessage"].as_str().unwrap().to_owned();
        assert!(message.contains(expected), "{message}");
        let mut process = lambda.process;
        assert!(!process.wait(LIMIT).success());
        assert_eq!(lambda.api.waiting(), 0);
    }
}

#[test]
fn term_lets_the_running_invocation_finish() {
    let script = "<?php touch(__DIR__ . '/begun'); while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(5000); } echo 'whole';";
    let (site, lambda) = Lambda::of_script(script);
    let id = lambda.api.push(LambdaEvent::new(get("/").to_string()));
    eventually("the script runs", LIMIT, || site.path().join("begun").exists());
    lambda.process.signal(Signal::TERM);
    lambda.process.log().wait_for("draining");
    site.write("go", "");
    assert_eq!(body(&lambda.api.answer(&id, LIMIT)), "whole");
    let mut process = lambda.process;
    assert!(process.wait(LIMIT).success());
    assert_eq!(lambda.api.waiting(), 0);
}

#[test]
fn term_lets_every_stream_of_a_managed_environment_finish() {
    let script = "<?php echo 'first'; ob_flush(); flush(); while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(5000); } echo 'last';";
    let site = Site::empty().with_file("index.php", script);
    let variables = [
        ("AWS_LAMBDA_MAX_CONCURRENCY", "2"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances"),
    ];
    let arguments = ["--model", "request", "--streaming", "on"];
    let lambda = Lambda::start(site.path(), &arguments, &variables);
    let ids = [(); 2].map(|()| lambda.api.push(LambdaEvent::new(get("/").to_string())));
    for id in &ids {
        eventually("its first bytes are there", LIMIT, || {
            lambda.api.posted(id).iter().any(|posted| posted.body.ends_with(b"first"))
        });
    }
    lambda.process.signal(Signal::TERM);
    lambda.process.log().wait_for("draining");
    site.write("go", "");
    for id in &ids {
        let posted = lambda.api.answer(id, LIMIT);
        assert!(posted.body.ends_with(b"firstlast"));
        assert!(posted.trailers.is_empty(), "{:?}", posted.trailers);
    }
    let mut process = lambda.process;
    assert!(process.wait(LIMIT).success());
    assert_eq!(lambda.api.waiting(), 0);
}

#[test]
fn term_during_boot_or_wait_exits_at_once() {
    let (_site, lambda) = Lambda::of_script(FINE);
    eventually("it waits for an event", LIMIT, || lambda.api.waiting() == 1);
    assert!(lambda.stop().success());
    let site = Site::empty().with_file(
        "worker.php",
        "<?php touch(__DIR__ . '/booting'); sleep(20); hearth_handle_request(fn () => 1);",
    );
    let lambda = Lambda::start(site.path(), &["worker.php", "--model", "worker"], &[]);
    eventually("it boots", LIMIT, || site.path().join("booting").exists());
    assert!(lambda.stop().success());
}
