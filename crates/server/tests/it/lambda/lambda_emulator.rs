//! `hearth lambda --emulate` and `hearth lambda invoke`: both sides of the Runtime API in one process, with real PHP.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Answer, Client, Running, eventually};

use crate::hearth::{LIMIT, Site, command};

const TELLS: &str = "<?php header('Content-Type: application/json'); setcookie('a', '1'); setcookie('b', '2'); http_response_code(201); \
                     echo json_encode(['uri' => $_SERVER['REQUEST_URI'], 'method' => $_SERVER['REQUEST_METHOD'], 'post' => $_POST, 'cookie' => $_COOKIE, \
                     'body' => base64_encode(file_get_contents('php://input')), 'address' => $_SERVER['REMOTE_ADDR'], 'https' => $_SERVER['HTTPS'] ?? null, \
                     'host' => $_SERVER['HTTP_HOST']]);";

struct Emulated {
    address: SocketAddr,
    process: Running,
}

impl Emulated {
    fn start(path: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command();
        command
            .arg("lambda")
            .arg(path)
            .args(["--model", "request", "--emulate", "127.0.0.1:0"])
            .args(arguments)
            .envs(variables.iter().copied());
        let process = Running::start(&mut command);
        let ready = process
            .log()
            .find(LIMIT, |line| Some(line.strip_prefix("hearth: ready on http://")?.to_owned()));
        let ready = ready.unwrap_or_else(|| panic!("never ready:\n{}", process.log().text()));
        Self { address: ready.parse().unwrap(), process }
    }

    fn request(&self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        Client::connect(self.address).unwrap().request(method, target, fields, body).unwrap()
    }

    fn get(&self, target: &str) -> Answer {
        self.request("GET", target, &[], b"")
    }

    /// Runs `hearth lambda invoke` with an event on stdin.
    fn invoke(&self, arguments: &[&str], stdin: &str) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let event = folder.path().join("stdin");
        fs::write(&event, stdin).unwrap();
        command()
            .args(["lambda", "invoke", "--to", &self.address.to_string()])
            .args(arguments)
            .stdin(Stdio::from(fs::File::open(event).unwrap()))
            .output()
            .unwrap()
    }

    fn stop(mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait(LIMIT)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_browser_sees_the_same_application_through_every_integration() {
    let site = Site::empty().with_file("index.php", TELLS);
    for integration in ["function-url", "apigw-v1", "apigw-v2", "alb", "alb-multi"] {
        let emulated = Emulated::start(site.path(), &["--as", integration], &[]);
        let fields = [
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Cookie", "x=1; y=2"),
            ("Host", "shop.test:8080"),
        ];
        let answer = emulated.request("POST", "/a%20b/?q=%26&q=2", &fields, b"c=3&d=%00");
        assert_eq!(answer.status, 201, "{integration}: {}", emulated.process.log().text());
        assert_eq!(answer.field("content-type"), Some("application/json"), "{integration}");
        let mut cookies = answer.all("set-cookie");
        cookies.sort_unstable();
        assert_eq!(cookies, ["a=1", "b=2"], "{integration}");
        let told = answer.json();
        assert_eq!(told["method"], "POST");
        // An event with single values has only the last of two values with the same name.
        let uri = if integration == "alb" { "/a%20b/?q=2" } else { "/a%20b/?q=%26&q=2" };
        assert_eq!(told["uri"], uri, "{integration}");
        assert_eq!(told["post"], json!({"c": "3", "d": "\0"}), "{integration}");
        assert_eq!(told["cookie"], json!({"x": "1", "y": "2"}), "{integration}");
        assert_eq!(told["address"], "127.0.0.1");
        assert_eq!((&told["https"], &told["host"]), (&Value::Null, &json!("shop.test:8080")));
        let report = emulated.process.log().wait_for("REPORT RequestId: ");
        for part in ["\tDuration: ", "\tMemory Size: 3008 MB\t", "\tInit Duration: "] {
            assert!(report.contains(part), "{report}");
        }
        assert!(!report.contains("Max Memory Used: 0 MB"), "{report}");
        assert!(emulated.stop().success());
    }
}

#[test]
fn invoke_prints_the_result_and_exits_with_1_on_failure() {
    let script = "<?php error_log('seen'); echo 'hello from ', $_SERVER['REQUEST_URI'];";
    let site = Site::empty().with_file("index.php", script);
    let emulated = Emulated::start(site.path(), &[], &[]);
    let done = emulated.invoke(&["function-url"], "");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["body"], "hello from /hello?name=Ada&tag=a&tag=b");
    let log = text(&done.stderr);
    assert!(log.starts_with("START RequestId: "), "{log}");
    assert!(log.contains("REPORT RequestId: "), "{log}");

    let sample = command().args(["lambda", "invoke", "--sample", "alb"]).output().unwrap();
    let done = emulated.invoke(&["-"], &text(&sample.stdout));
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["statusDescription"], "200 OK", "{result}");

    let failed = emulated.invoke(&["sqs"], "");
    assert_eq!((failed.status.code(), text(&failed.stdout).as_str()), (Some(1), ""));
    assert!(text(&failed.stderr).contains("error: the function failed: {"));
    let refused = emulated.invoke(&[], "no JSON");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("Could not parse request body into json"));
    let unknown = emulated.invoke(&["nothing.json"], "");
    assert!(text(&unknown.stderr).contains("no file and no sample `nothing.json`"));
    assert!(emulated.stop().success());
}

#[test]
fn invoke_without_an_emulator_or_sample_gives_a_hint() {
    let unreachable =
        command().args(["lambda", "invoke", "warmer", "--to", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(
        text(&unreachable.stderr).contains("hint: start it with `hearth lambda PATH --emulate")
    );
    let sample = command().args(["lambda", "invoke", "--sample", "sqss"]).output().unwrap();
    assert_eq!(sample.status.code(), Some(2));
    assert!(text(&sample.stderr).ends_with("hint: did you mean `sqs`?\n"));
    let list = command().args(["lambda", "invoke", "--samples"]).output().unwrap();
    assert_eq!(text(&list.stdout).lines().count(), 15);
}

#[test]
fn a_timed_out_invocation_is_answered_and_the_next_one_works() {
    let script = "<?php if ($_SERVER['REQUEST_URI'] === '/long') { sleep(60); } echo 'done';";
    let site = Site::empty().with_file("index.php", script);
    let variables = [("AWS_LAMBDA_FUNCTION_TIMEOUT", "2")];
    let emulated = Emulated::start(site.path(), &[], &variables);
    let late = emulated.get("/long");
    assert!(matches!(late.status, 502 | 504), "{}", late.text());
    // This invocation has the same limit: on a busy machine PHP may exceed it.
    eventually("the next one works", LIMIT, || emulated.get("/").text() == "done");
    assert!(emulated.stop().success());
}

#[test]
fn a_streamed_answer_reaches_the_browser_before_the_script_ends() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let script = format!(
        "<?php echo 'first'; flush(); while (!file_exists('{}')) {{ usleep(1000); clearstatcache(); }} echo 'last';",
        gate.display()
    );
    let site = Site::empty().with_file("index.php", &script);
    let emulated =
        Emulated::start(site.path(), &["--streaming", "on", "--ini", "output_buffering=0"], &[]);
    let mut client = Client::connect(emulated.address).unwrap();
    client.send(testkit::head("GET", "/", &[], 0)).unwrap();
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.chunk().unwrap().unwrap(), b"first");
    fs::write(gate, "").unwrap();
    assert_eq!(client.chunk().unwrap().unwrap(), b"last");
    assert_eq!(client.chunk().unwrap(), None);
    assert!(emulated.stop().success());
}

#[test]
fn a_failed_boot_is_reported_and_ends_the_emulator() {
    let script = "<?php throw new Exception('no'); hearth_handle_request(fn () => null);";
    let site = Site::empty().with_file("worker.php", script);
    let mut command = command();
    command.args(["lambda", "--model", "worker", "--emulate", "127.0.0.1:0"]);
    let mut process = Running::start(command.arg(site.path().join("worker.php")));
    let (status, said) = process.finish(LIMIT);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("error: "), "{said}");
}

#[test]
fn one_handler_serves_websockets_of_serve_and_those_of_api_gateway() {
    let site = Site::empty()
        .with_file("public/index.php", "<?php http_response_code(404);")
        .with_file("public/chat.php", include_str!("../../../../../tests/php/websocket.php"));
    let routes = [("HEARTH_WEBSOCKETS_ROUTES", "/chat=/chat.php")];
    let emulated = Emulated::start(site.path(), &[], &routes);
    let event = |kind: &str, context: Value, event: Value| {
        let mut context = context;
        for (name, value) in [
            ("eventType", kind),
            ("connectionId", "L0SM9cOFvHcCIhw="),
            ("domainName", "abc.execute-api.eu-west-1.amazonaws.com"),
            ("stage", "prod"),
            ("apiId", "abc"),
            ("requestId", "r"),
        ] {
            context[name] = value.into();
        }
        let mut event = event;
        event["requestContext"] = context;
        let done = emulated.invoke(&["-"], &event.to_string());
        assert!(done.status.success(), "{}", text(&done.stderr));
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let connect = |query: Value| {
        let head = json!({
            "headers": {"Host": "abc.execute-api.eu-west-1.amazonaws.com"},
            "multiValueHeaders": {"Host": ["abc.execute-api.eu-west-1.amazonaws.com"], "Sec-WebSocket-Protocol": ["talk"]},
            "queryStringParameters": query,
        });
        event("CONNECT", json!({"routeKey": "$connect"}), head)
    };
    let refused = connect(json!({"refuse": "403"}));
    assert_eq!(refused["statusCode"], 403);
    let accepted = connect(json!({"name": "ann"}));
    assert_eq!(accepted["statusCode"], 200);
    // API Gateway sends the chosen subprotocol to the client.
    let headers = accepted["headers"].to_string().to_ascii_lowercase();
    assert!(headers.contains("\"sec-websocket-protocol\":\"talk\""), "{accepted}");
    let message = |body: Value| event("MESSAGE", json!({"routeKey": "$default"}), body);
    let answer = message(json!({"body": "who", "isBase64Encoded": false}));
    assert_eq!(
        (&answer["statusCode"], &answer["body"]),
        (&json!(200), &json!("message POST /chat.php     0"))
    );
    let answer = message(json!({"body": "id", "isBase64Encoded": false}));
    assert_eq!(answer["body"], "L0SM9cOFvHcCIhw=");
    // Binary messages arrive, and leave, in base64.
    let answer = message(json!({"body": "/wA=", "isBase64Encoded": true}));
    assert_eq!((&answer["body"], &answer["isBase64Encoded"]), (&json!("/wA="), &json!(true)));
    let failed = message(json!({"body": "fail", "isBase64Encoded": false}));
    assert_eq!(failed["statusCode"], 500);
    let ended = json!({"routeKey": "$disconnect", "disconnectStatusCode": 1001, "disconnectReason": "Going away"});
    assert_eq!(event("DISCONNECT", ended, json!({}))["statusCode"], 200);
    let seen = fs::read_to_string(site.path().join("events")).unwrap();
    let id = "L0SM9cOFvHcCIhw=";
    let expected = [
        &format!("connect {id}"),
        &format!("connect {id}"),
        "message who",
        "message id",
        "message ff00",
        "message fail",
        "close 1001 Going away",
    ];
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
    assert!(emulated.stop().success());
}
