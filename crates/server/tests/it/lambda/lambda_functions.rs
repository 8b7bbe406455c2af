//! Functions and consoles behind `hearth lambda`: the results that they may return, the errors that Lambda gets, and
//! that the next invocation works.

use serde_json::{Value, json};
use testkit::LambdaEvent;

use std::path::Path;
use std::time::Duration;

use crate::hearth::{LIMIT, Site, every_model, of_tier};
use crate::lambda::Lambda;

/// All nine.
const FUNCTION: &str = r"<?php
echo 'said at boot';
return static function (mixed $event, Hearth\Lambda\Context $context): mixed {
    static $count = 0;
    $count++;
    switch ($event['do'] ?? '') {
        case 'count': return $count;
        case 'context': return [$context, $context->getRemainingTimeInMillis(), getcwd(), getenv('_X_AMZN_TRACE_ID')];
        case 'print': echo 'printed'; ob_start(); echo 'in a buffer'; register_shutdown_function(static fn () => print('at the end')); return 'result';
        case 'nothing': return null;
        case 'throw': throw new DomainException('no such domain');
        case 'exit': echo 'leaving'; exit(3);
        case 'memory': ini_set('memory_limit', '16M'); return str_repeat('x', 1 << 30);
        case 'fatal': return new class implements Countable {};
        case 'error': return null->method();
        case 'utf8': return ['a' => chr(255)];
        case 'nan': return NAN;
        case 'resource': return [fopen('php://memory', 'r')];
        case 'large': return str_repeat('x', 7 << 20);
        case 'closure': return static fn () => 1;
        case 'loop': $a = []; $a['a'] = &$a; return $a;
        case 'slow': sleep(60); return 'late';
        case 'flush': echo 'progress'; ob_flush(); flush(); return 'flushed';
        case 'flush and throw': flush(); throw new DomainException('no such domain');
        case 'flush and exit': flush(); exit;
        case 'past': while (ob_get_level() > 0) { ob_end_clean(); } echo 'past the buffer'; return 'and on';
        case 'kill': exec('kill -9 ' . getmypid()); sleep(60); return 'late';
    }
    return $event;
};
";

/// Returns the error of a failed invocation: its type in the header field, and its body.
fn failed(lambda: &Lambda, what: &str) -> (String, Value) {
    let posted = lambda.invoke(&json!({"do": what}));
    assert_eq!(posted.call, "error", "{what}: {}", String::from_utf8_lossy(&posted.body));
    let error = posted.json();
    assert!(error["errorMessage"].as_str().is_some_and(|text| !text.is_empty()), "{what}: {error}");
    assert!(error["stackTrace"].is_array(), "{what}: {error}");
    let kind = posted.fields["lambda-runtime-function-error-type"].clone();
    (kind, error)
}

/// Returns the function's result.
fn result(lambda: &Lambda, event: &Value) -> Value {
    let posted = lambda.invoke(event);
    assert_eq!(posted.call, "response", "{event}: {}", String::from_utf8_lossy(&posted.body));
    posted.json()
}

fn function(script: &str, arguments: &[&str]) -> (Site, Lambda) {
    let site = Site::empty().with_file("handler.php", script);
    let variables = [("_HANDLER", "handler.php")];
    let lambda = Lambda::start(site.path(), arguments, &variables);
    (site, lambda)
}

#[test]
fn a_function_answers_in_every_model_and_keeps_its_state_in_worker_alone() {
    for model in &every_model() {
        let (_site, lambda) = function(FUNCTION, &["--model", model]);
        for event in [json!({"a": [1, 2.5, "ü/"], "b": null}), json!("text"), json!(7), json!(null)]
        {
            assert_eq!(result(&lambda, &event), event, "{model}");
        }
        let counts: Vec<Value> = (0..2).map(|_| result(&lambda, &json!({"do": "count"}))).collect();
        let expected =
            if *model == "worker" { vec![json!(5), json!(6)] } else { vec![json!(1); 2] };
        assert_eq!(counts, expected, "{model}");
        let (kind, error) = failed(&lambda, "throw");
        assert_eq!(
            (kind.as_str(), &error["errorType"]),
            ("Function.DomainException", &json!("DomainException")),
            "{model}"
        );
        let posted = lambda.invoke(&json!({"do": "throw"}));
        let cause = &posted.fields["lambda-runtime-function-xray-error-cause"];
        let cause: Value = serde_json::from_str(cause).unwrap();
        let exception = &cause["exceptions"][0];
        assert_eq!(exception["type"], "DomainException", "{model}");
        assert_eq!(exception["message"], "no such domain", "{model}");
        let place = &exception["stack"][0];
        assert!(place["path"].as_str().unwrap().ends_with("/handler.php"), "{model}: {place}");
        assert!(place["line"].as_u64().unwrap() > 1, "{model}: {place}");
        assert_eq!(cause["paths"][0], place["path"], "{model}");
        assert_eq!(failed(&lambda, "exit").0, "Function.Exited", "{model}");
        assert_eq!(failed(&lambda, "fatal").0, "Function.Fatal", "{model}");
        assert_eq!(failed(&lambda, "memory").0, "Function.Fatal", "{model}");
        assert_eq!(result(&lambda, &json!({"do": "print"})), "result", "{model}");
        assert_eq!(lambda.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn a_failed_function_is_reported_and_the_next_invocation_works() {
    for model in of_tier(["request", "snapshot", "worker"]) {
        let (site, lambda) = function(FUNCTION, &["--model", model]);
        let (kind, error) = failed(&lambda, "throw");
        assert_eq!(kind, "Function.DomainException");
        assert_eq!(error["errorMessage"], "no such domain");
        let place =
            format!("{}:11", site.path().canonicalize().unwrap().join("handler.php").display());
        assert_eq!(error["stackTrace"][0], json!(place), "the place that threw comes first");
        let table = [
            ("exit", "Function.Exited", "has ended its script"),
            ("fatal", "Function.Fatal", "abstract"),
            ("memory", "Function.Fatal", "Allowed memory size of 16777216 bytes exhausted"),
            ("error", "Function.Error", "Call to a member function method() on null"),
            ("utf8", "Function.InvalidResult", "Malformed UTF-8"),
            ("nan", "Function.InvalidResult", "NaN"),
            ("resource", "Function.InvalidResult", "not supported"),
            ("closure", "Function.InvalidResult", "Closure"),
            ("loop", "Function.InvalidResult", "ecursion"),
        ];
        for (what, expected, part) in table {
            let (kind, error) = failed(&lambda, what);
            assert_eq!(kind, expected, "{model}, {what}: {error}");
            assert!(
                error["errorMessage"].as_str().unwrap().contains(part),
                "{model}, {what}: {error}"
            );
            assert_eq!(result(&lambda, &json!({"next": what})), json!({"next": what}), "{model}");
        }
        failed(&lambda, "kill");
        let late = lambda.invoke_as(
            LambdaEvent::new(json!({"do": "slow"}).to_string()).within(Duration::from_secs(2)),
        );
        assert_eq!(late.call, "error");
        assert_eq!(result(&lambda, &json!({"do": "nothing"})), Value::Null);
        assert_eq!(lambda.stop().code(), Some(0));
    }
}

#[test]
fn a_functions_output_is_logged_and_not_returned() {
    let (_site, lambda) = function(FUNCTION, &["--model", "snapshot"]);
    assert_eq!(result(&lambda, &json!({"do": "print"})), "result");
    for text in ["said at boot", "printedin a buffer", "at the end"] {
        testkit::eventually("it is logged", LIMIT, || {
            lambda.process.log().lines().iter().any(|line| line.contains(text))
        });
    }
}

#[test]
fn a_function_that_flushes_its_output_has_the_same_outcome() {
    for model in &every_model() {
        let (_site, lambda) = function(FUNCTION, &["--model", model]);
        assert_eq!(result(&lambda, &json!({"do": "flush"})), "flushed", "{model}");
        assert_eq!(result(&lambda, &json!({"do": "past"})), "and on", "{model}");
        let (kind, error) = failed(&lambda, "flush and throw");
        assert_eq!(kind, "Function.DomainException", "{model}");
        assert_eq!(error["errorMessage"], "no such domain", "{model}");
        let posted = lambda.invoke(&json!({"do": "flush and throw"}));
        let cause = &posted.fields["lambda-runtime-function-xray-error-cause"];
        assert!(cause.contains("handler.php"), "{model}: {cause}");
        assert_eq!(failed(&lambda, "flush and exit").0, "Function.Exited", "{model}");
        for text in ["progress", "past the buffer"] {
            testkit::eventually("it is logged", LIMIT, || {
                lambda.process.log().lines().iter().any(|line| line.contains(text))
            });
        }
        assert_eq!(lambda.stop().code(), Some(0), "{model}");
    }
}

#[test]
fn a_functions_result_is_sent_whole_in_streaming_mode() {
    let (_site, lambda) = function(FUNCTION, &["--model", "request", "--streaming", "on"]);
    let http = json!({"statusCode": 201, "cookies": ["a=1", "b=2"], "body": "made"});
    let posted = lambda.invoke(&http);
    assert_eq!((&*posted.call, posted.json()), ("response", http));
    assert_eq!(posted.fields.get("lambda-runtime-function-response-mode"), None);
    let (kind, error) = failed(&lambda, "large");
    assert_eq!(kind, "Hearth.ResponseTooLarge");
    let message = error["errorMessage"].as_str().unwrap();
    assert!(message.ends_with("send less"), "{message}");
    assert_eq!(result(&lambda, &json!("next")), "next");
}

#[test]
fn a_function_gets_lambdas_context() {
    let (site, lambda) = function(FUNCTION, &["--model", "snapshot"]);
    let event = LambdaEvent::new(json!({"do": "context"}).to_string())
        .field("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700")
        .field("Lambda-Runtime-Client-Context", r#"{"client":{"app_title":"shop"}}"#);
    let told = lambda.invoke_as(event).json();
    assert!(!told[0]["awsRequestId"].as_str().unwrap().is_empty());
    assert_eq!(told[0]["clientContext"]["client"]["app_title"], "shop");
    assert!(told[1].as_u64().unwrap() > 0);
    assert_eq!(told[2], json!(site.path().canonicalize().unwrap()));
    assert_eq!(told[3], "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700");
}

#[test]
fn a_file_may_return_any_kind_of_function() {
    let table = [
        (
            "return new class { public function handle(array $event, $context) { return 'object'; } };",
            "object",
        ),
        (
            "return new class { public function __invoke(object $event) { return $event->name; } };",
            "given",
        ),
        (
            "class H { public function handle($event, $context) { return 'class'; } }\nreturn H::class;",
            "class",
        ),
        ("function named(stdClass $event) { return $event->name; }\nreturn 'named';", "given"),
        ("return fn () => 'no parameters';", "no parameters"),
    ];
    for (script, expected) in table {
        let (_site, lambda) = function(&format!("<?php\n{script}"), &["--model", "request"]);
        assert_eq!(result(&lambda, &json!({"name": "given"})), expected, "{script}");
    }
    for (script, part) in [
        ("return 7;", "it returns int"),
        (
            "class H { public function __construct(int $a) {} public function handle($a) {} }\nreturn H::class;",
            "wants arguments",
        ),
    ] {
        let (_site, lambda) = function(&format!("<?php\n{script}"), &["--model", "request"]);
        let (kind, error) = failed(&lambda, "it");
        assert_eq!(kind, "Function.InvalidHandler");
        assert!(error["errorMessage"].as_str().unwrap().contains(part), "{error}");
    }
}

#[test]
fn package_functions_get_typed_events_and_partial_batch_failures() {
    let core = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packages/core/src/");
    let autoload = format!(
        "<?php spl_autoload_register(static function (string $class): void {{\n\
         $file = '{core}' . strtr(substr($class, 7), '\\\\', '/') . '.php'; if (is_file($file)) {{ require $file; }} }});"
    );
    let site = Site::empty()
        .with_file("vendor/autoload.php", &autoload)
        .with_file(
            "src/orders.php",
            "<?php return new class extends Hearth\\Lambda\\Sqs\\SqsMessageHandler {\n\
             public function handleMessage(Hearth\\Lambda\\Sqs\\SqsRecord $record, Hearth\\Lambda\\Context $context): void {\n\
             if ($record->getBody() === 'bad') { throw new RuntimeException('bad'); } } };",
        )
        .with_file(
            "src/bus.php",
            "<?php return fn (Hearth\\Lambda\\EventBridge\\EventBridgeEvent $event) => $event->getDetailType();",
        );
    let record = |id: &str, body: &str| {
        json!({"messageId": id, "body": body, "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:orders"})
    };
    let orders = Lambda::start(site.path(), &[], &[("_HANDLER", "src/orders.php")]);
    let batch = json!({"Records": [record("1", "good"), record("2", "bad"), record("3", "good")]});
    assert_eq!(result(&orders, &batch), json!({"batchItemFailures": [{"itemIdentifier": "2"}]}));
    let posted = orders.invoke(&json!({"something": "else"}));
    assert_eq!(posted.json()["errorType"], "Hearth\\Lambda\\InvalidEvent");

    let bus = Lambda::start(site.path(), &[], &[("_HANDLER", "src/bus.php")]);
    let event = json!({"detail-type": "Order placed", "source": "shop", "detail": {}});
    assert_eq!(result(&bus, &event), "Order placed");
}

#[test]
fn a_function_that_cannot_be_loaded_is_an_init_error() {
    let site = Site::empty().with_file(
        "handler.php",
        "<?php throw new LogicException('no configuration');\nreturn fn () => 1;",
    );
    let mut lambda =
        Lambda::start(site.path(), &["--handler", "function"], &[("_HANDLER", "handler.php")]);
    let (status, log) = lambda.process.finish(LIMIT);
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("no configuration"), "{log}");

    let (_site, lambda) = function(
        "<?php throw new LogicException('no configuration');\nreturn fn () => 1;",
        &["--model", "request"],
    );
    assert_eq!(failed(&lambda, "it").0, "Function.LogicException");
}

const CONSOLE: &str = r"#!/usr/bin/env php
<?php
switch ($argv[1] ?? '') {
    case 'fail': fwrite(STDERR, 'went wrong'); exit(3);
    case 'slow': echo 'begun'; sleep(60);
    case 'silent': file_put_contents($argv[2], getmypid()); sleep(300);
    case 'large': for ($i = 0; $i < 7000; $i++) { echo str_repeat('x', 1023), PHP_EOL; } echo 'end'; exit;
    case 'where': echo PHP_SAPI, ' ', getcwd(), ' ', json_encode([isset($_SERVER['REQUEST_METHOD']), getenv('LAMBDA_INVOCATION_CONTEXT') !== false]); exit;
}
echo implode('|', array_slice($argv, 1));
";

#[test]
fn commands_run_without_a_shell_and_return_output_and_exit_status() {
    let site = Site::empty().with_file("artisan", CONSOLE);
    let lambda = Lambda::start(site.path(), &[], &[("_HANDLER", "artisan")]);
    let output = |event: &Value| {
        let answer = result(&lambda, event);
        assert_eq!(answer["exitCode"], 0);
        answer["output"].as_str().unwrap().to_owned()
    };
    assert_eq!(output(&json!({"cli": "migrate --force"})), "migrate|--force");
    assert_eq!(
        output(&json!("say 'a b' \"c \\\" d\" e\\ f ; ls | $HOME `id`")),
        "say|a b|c \" d|e f|;|ls|||$HOME|`id`"
    );
    assert_eq!(output(&json!({"cli": ["say", "a b", "'"]})), "say|a b|'");
    let root = site.path().canonicalize().unwrap();
    assert_eq!(output(&json!("where")), format!("cli {} [false,true]", root.display()));
    let large = output(&json!("large"));
    assert!(large.starts_with('['), "{}", large.get(..80).unwrap_or_default());
    assert!(large.contains("bytes before this were left out") && large.ends_with("end"));
    assert!(large.len() < 6 * 1024 * 1024);

    let posted = lambda.invoke(&json!("fail"));
    assert_eq!(posted.call, "error");
    assert_eq!(posted.json()["errorType"], "CommandFailed");
    assert_eq!(
        posted.json()["errorMessage"],
        "The command has ended with exit status 3.\nwent wrong"
    );
    for event in [json!({"cli": 7}), json!(null), json!("'open"), json!({"other": 1})] {
        assert_eq!(lambda.invoke(&event).json()["errorType"], "InvalidEvent", "{event}");
    }
    let slow = LambdaEvent::new("\"slow\"").within(Duration::from_secs(16));
    let posted = lambda.invoke_as(slow);
    assert_eq!(posted.json()["errorType"], "TimedOut", "{}", String::from_utf8_lossy(&posted.body));
    assert!(posted.json()["errorMessage"].as_str().unwrap().ends_with("begun"));
    assert_eq!(output(&json!("still there")), "still|there");
    assert_eq!(lambda.stop().code(), Some(0));
}

#[test]
fn a_command_always_ends_before_its_invocation() {
    let site = Site::empty().with_file("artisan", CONSOLE);
    let variables = [("_HANDLER", "artisan"), ("HEARTH_LAMBDA_DEADLINE_MARGIN", "4s")];
    let lambda = Lambda::start(site.path(), &[], &variables);
    let pid = site.path().join("pid");
    let event = json!(["silent", pid]);
    let event = LambdaEvent::new(json!({"cli": event}).to_string()).within(Duration::from_secs(8));
    let posted = lambda.invoke_as(event);
    let kind = &posted.fields["lambda-runtime-function-error-type"];
    assert_eq!(kind, "Function.TimedOut", "{}", String::from_utf8_lossy(&posted.body));
    let process = Path::new("/proc").join(std::fs::read_to_string(pid).unwrap());
    assert!(!process.exists(), "{} lives on", process.display());
}
