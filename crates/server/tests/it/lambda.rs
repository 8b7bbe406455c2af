//! `hearth lambda` with real PHP and a Runtime API that the test controls: events of every shape, every model, streams,
//! lanes.

mod lambda_emulator;
mod lambda_faults;
mod lambda_functions;
mod lambda_rules;
mod lambda_websockets;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use pool::Model;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{LambdaEvent, Origin, Posted, ProcessFacts, Running, RuntimeApi, eventually, routes};

use crate::hearth::{LIMIT, Site, command, every_model, isolating, of_tier, refusing};

/// `hearth lambda` with its own Runtime API.
#[derive(Debug)]
pub(crate) struct Lambda {
    pub(crate) api: RuntimeApi,
    pub(crate) process: Running,
}

impl Lambda {
    /// Starts it with settings and Lambda's own variables.
    pub(crate) fn start(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::launch(command(), root, arguments, variables)
    }

    /// Starts it with another command.
    pub(crate) fn launch(
        mut command: Command,
        root: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let api = RuntimeApi::start();
        command
            .arg("lambda")
            .args(arguments)
            .env("AWS_LAMBDA_RUNTIME_API", api.address())
            .env("LAMBDA_TASK_ROOT", root)
            .envs(variables.iter().copied());
        let process = Running::start(&mut command);
        Self { api, process }
    }

    /// Starts it with a script as `index.php`, in the model `request`.
    pub(crate) fn of_script(script: &str) -> (Site, Self) {
        let site = Site::empty().with_file("index.php", script);
        let lambda = Self::start(site.path(), &["--model", "request"], &[]);
        (site, lambda)
    }

    /// Sends an event and waits for the answer.
    pub(crate) fn invoke(&self, event: &Value) -> Posted {
        self.invoke_as(LambdaEvent::new(event.to_string()))
    }

    pub(crate) fn invoke_as(&self, event: LambdaEvent) -> Posted {
        let id = self.api.push(event);
        let posted = || self.api.posted(&id).iter().any(|posted| posted.complete);
        eventually("something was posted", LIMIT, || {
            let lines = self.process.log().lines();
            assert!(!lines.iter().any(|line| line.starts_with("error: ")), "{lines:#?}");
            posted()
        });
        self.api.answer(&id, LIMIT)
    }

    /// Stops it with TERM, and returns its exit status.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait(LIMIT)
    }
}

/// An event of a Function URL.
pub(crate) fn get(path: &str) -> Value {
    json!({
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": "abc.lambda-url.eu-west-1.on.aws", "x-forwarded-proto": "https"},
        "requestContext": {
            "domainName": "abc.lambda-url.eu-west-1.on.aws",
            "stage": "$default",
            "http": {"method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "203.0.113.7"},
        },
        "isBase64Encoded": false,
    })
}

/// Returns the body of an HTTP answer.
pub(crate) fn body(posted: &Posted) -> String {
    assert_eq!(posted.call, "response", "{}", String::from_utf8_lossy(&posted.body));
    posted.json()["body"].as_str().unwrap().to_owned()
}

const TELLS: &str = "<?php header('Content-Type: application/json'); header('Set-Cookie: a=1'); header('Set-Cookie: b=2', false); \
                     http_response_code(201); \
                     echo json_encode(['server' => $_SERVER, 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE, 'body' => file_get_contents('php://input')]);";

#[test]
fn each_event_shape_is_answered_in_the_same_shape() {
    let (_site, lambda) = Lambda::of_script(TELLS);
    let version_1 = json!({
        "httpMethod": "POST", "path": "/cart", "body": "a=1", "isBase64Encoded": false,
        "multiValueHeaders": {"Host": ["api.example.com"], "Cookie": ["x=1; y=2"], "X-Forwarded-Proto": ["https"]},
        "multiValueQueryStringParameters": {"q[]": ["a b", "c"]},
        "requestContext": {"stage": "prod", "path": "/prod/cart", "identity": {"sourceIp": "203.0.113.7"}},
    });
    let posted = lambda.invoke(&version_1);
    let answer = posted.json();
    assert_eq!(answer["statusCode"], 201);
    assert_eq!(answer["multiValueHeaders"]["set-cookie"], json!(["a=1", "b=2"]));
    let told: Value = serde_json::from_str(&body(&posted)).unwrap();
    assert_eq!(told["get"], json!({"q": ["a b", "c"]}));
    assert_eq!(told["post"], json!({"a": "1"}));
    assert_eq!(told["cookie"], json!({"x": "1", "y": "2"}));
    assert_eq!(told["server"]["REQUEST_URI"], "/cart?q%5B%5D=a%20b&q%5B%5D=c");
    assert_eq!(told["server"]["REMOTE_ADDR"], "203.0.113.7");
    assert_eq!(told["server"]["HTTPS"], "on");
    assert_eq!(told["server"]["HTTP_X_FORWARDED_PREFIX"], "/prod");

    let mut url = get("/users/7");
    url["cookies"] = json!(["x=1", "y=2"]);
    url["rawQueryString"] = "p=%26&p2".into();
    let posted = lambda.invoke(&url);
    let answer = posted.json();
    assert_eq!(answer["statusCode"], 201);
    assert_eq!(answer["cookies"], json!(["a=1", "b=2"]));
    let told: Value = serde_json::from_str(&body(&posted)).unwrap();
    assert_eq!(told["server"]["QUERY_STRING"], "p=%26&p2");
    assert_eq!(told["server"]["SCRIPT_NAME"], "/index.php");
    assert_eq!(told["cookie"], json!({"x": "1", "y": "2"}));

    let mut gateway = url.clone();
    gateway["requestContext"]["domainName"] = "api.example.com".into();
    gateway["body"] = "AAECAw==".into();
    gateway["isBase64Encoded"] = true.into();
    gateway["requestContext"]["http"]["method"] = "PUT".into();
    let told: Value = serde_json::from_str(&body(&lambda.invoke(&gateway))).unwrap();
    assert_eq!(told["body"], "\u{0}\u{1}\u{2}\u{3}");
    assert_eq!(told["server"]["CONTENT_LENGTH"], "4");
    assert_eq!(told["server"]["CONTENT_TYPE"], "application/x-www-form-urlencoded");

    let balancer = json!({
        "requestContext": {"elb": {}}, "httpMethod": "GET", "path": "/cart", "body": "", "isBase64Encoded": false,
        "queryStringParameters": {"q": "a%20b"},
        "headers": {"host": "lb.example.com", "x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "http", "x-forwarded-port": "80"},
    });
    let posted = lambda.invoke(&balancer);
    assert_eq!(posted.json()["statusDescription"], "201 Created");
    assert_eq!(posted.json()["headers"]["Set-cookie"], "b=2");
    let told: Value = serde_json::from_str(&body(&posted)).unwrap();
    assert_eq!(told["get"], json!({"q": "a b"}));
    assert_eq!(told["server"]["REMOTE_ADDR"], "203.0.113.9");
    assert_eq!(told["server"].get("HTTPS"), None);
    // One connection for all events, and one for the extension.
    assert_eq!(lambda.api.connections(), 2);
    assert!(lambda.stop().success());
}

#[test]
fn every_model_answers_events_and_gives_php_the_invocation() {
    let tells = "echo json_encode([$_SERVER['LAMBDA_INVOCATION_CONTEXT'], $_SERVER['LAMBDA_REQUEST_CONTEXT'], \
                 $_SERVER['_X_AMZN_TRACE_ID'], $_SERVER['HTTP_X_AMZN_TRACE_ID'], $_SERVER['HEARTH_REQUEST_ID']]);";
    let site = Site::empty().with_file("index.php", &format!("<?php {tells}")).with_file(
        "worker.php",
        &format!("<?php while (hearth_handle_request(function () {{ {tells} }})) {{ }}"),
    );
    for model in &every_model() {
        let lambda = Lambda::start(site.path(), &["--model", model], &[]);
        for _ in 0..3 {
            let event = LambdaEvent::new(get("/").to_string())
                .field("Lambda-Runtime-Trace-Id", "Root=1-5e1b4151-5ac6c58f;Sampled=1")
                .field("Lambda-Runtime-Client-Context", "{\"client\":{\"app_title\":\"x\"}}")
                .field("Lambda-Runtime-Aws-Tenant-Id", "blue");
            let posted = lambda.invoke_as(event);
            let told: Vec<String> = serde_json::from_str(&body(&posted))
                .unwrap_or_else(|error| panic!("{model}: {error} in {}", body(&posted)));
            let [invocation, request, trace, field, id] = told.try_into().unwrap();
            let invocation: Value = serde_json::from_str(&invocation).unwrap();
            assert_eq!(invocation["awsRequestId"], *id, "{model}");
            assert!(invocation["deadlineMs"].as_u64().unwrap() > 1_700_000_000_000);
            assert_eq!(invocation["traceId"], "Root=1-5e1b4151-5ac6c58f;Sampled=1");
            assert_eq!(invocation["clientContext"]["client"]["app_title"], "x");
            assert_eq!(invocation["tenantId"], "blue");
            assert_eq!((&*trace, &*field), ("Root=1-5e1b4151-5ac6c58f;Sampled=1", &*trace));
            let request: Value = serde_json::from_str(&request).unwrap();
            assert_eq!(request["http"]["sourceIp"], "203.0.113.7");
        }
        assert!(lambda.stop().success(), "{model}");
    }
}

#[test]
fn the_handler_of_the_environment_is_run_unless_a_path_is_named() {
    let site = Site::empty()
        .with_file("public/index.php", "<?php echo 'front controller';")
        .with_file("src/other.php", "<?php echo 'other';");
    let answers = |arguments: &[&str], handler: &str| {
        let arguments = [arguments, &["--model", "request"]].concat();
        let lambda = Lambda::start(site.path(), &arguments, &[("_HANDLER", handler)]);
        body(&lambda.invoke(&get("/")))
    };
    assert_eq!(answers(&[], "public/index.php"), "front controller");
    assert_eq!(answers(&[], "src/other.php"), "other");
    assert_eq!(answers(&["src/other.php"], "public/index.php"), "other");
    assert_eq!(answers(&[], ""), "front controller");
}

#[test]
fn binary_responses_are_posted_as_base64() {
    let (_site, lambda) =
        Lambda::of_script("<?php header('Content-Type: image/png'); echo \"\\x89PNG\\x00\\xff\";");
    let posted = lambda.invoke(&get("/")).json();
    assert_eq!((&posted["isBase64Encoded"], &posted["body"]), (&json!(true), &json!("iVBORwD/")));
}

#[test]
fn invocations_run_concurrently_if_the_environment_allows_it() {
    // Each of the two requests waits for the other.
    let script = "<?php $me = $_SERVER['REQUEST_URI']; touch(__DIR__ . $me); \
                  for ($i = 0; $i < 3000 && !(file_exists(__DIR__ . '/one') && file_exists(__DIR__ . '/two')); $i++) { clearstatcache(); usleep(10000); } \
                  echo $i < 3000 ? 'met ' : 'alone ', getmypid();";
    let site = Site::empty().with_file("index.php", script);
    let variables = [
        ("AWS_LAMBDA_MAX_CONCURRENCY", "2"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances"),
    ];
    let lambda = Lambda::start(site.path(), &["--model", "request"], &variables);
    eventually("two lanes wait for events", LIMIT, || lambda.api.waiting() == 2);
    assert!(lambda.api.extensions().is_empty());
    let one = lambda.api.push(LambdaEvent::new(get("/one").to_string()));
    let two = lambda.api.push(LambdaEvent::new(get("/two").to_string()));
    let [one, two] = [one, two].map(|id| body(&lambda.api.answer(&id, LIMIT)));
    assert!(one.starts_with("met "), "{one}");
    assert!(two.starts_with("met "), "{two}");
    assert_ne!(one, two);
    assert!(lambda.stop().success());
}

#[test]
fn a_streamed_answer_begins_before_its_script_has_ended() {
    let script = "<?php header('Content-Type: text/plain'); header('Set-Cookie: a=1'); echo 'first'; ob_flush(); flush(); \
                  while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(5000); } echo \" \\xff last\";";
    for model in of_tier(["request", "fpm"]) {
        let site = Site::empty().with_file("index.php", script);
        let lambda = Lambda::start(site.path(), &["--model", model, "--streaming", "on"], &[]);
        let id = lambda.api.push(LambdaEvent::new(get("/").to_string()));
        eventually("the first bytes are there", LIMIT, || {
            lambda.api.posted(&id).iter().any(|posted| posted.body.ends_with(b"first"))
        });
        assert!(!lambda.api.posted(&id)[0].complete);
        site.write("go", "");
        let posted = lambda.api.answer(&id, LIMIT);
        assert_eq!(posted.fields["lambda-runtime-function-response-mode"], "streaming");
        assert_eq!(
            posted.fields["content-type"],
            "application/vnd.awslambda.http-integration-response"
        );
        let at = posted.body.windows(8).position(|eight| eight == [0; 8]).unwrap();
        let head: Value = serde_json::from_slice(&posted.body[..at]).unwrap();
        assert_eq!(head["statusCode"], 200, "{model}");
        assert_eq!(head["cookies"], json!(["a=1"]));
        assert_eq!(&posted.body[at + 8..], b"first \xff last");
        assert!(posted.trailers.is_empty());
        assert!(lambda.stop().success());
    }
}

#[test]
fn work_after_the_response_ends_before_the_next_event() {
    let script = "<?php echo 'answer'; hearth_finish_request(); \
                  while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(5000); }";
    let (site, lambda) = Lambda::of_script(script);
    assert_eq!(body(&lambda.invoke(&get("/"))), "answer");
    // Between `next` and the next event Lambda may freeze the environment. A wait that is too short makes no test fail.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(lambda.api.waiting(), 0);
    site.write("go", "");
    eventually("the next event is requested", LIMIT, || lambda.api.waiting() == 1);
}

#[test]
fn log_lines_have_the_ids_of_the_invocation_and_the_platforms_format_and_level() {
    let site = Site::empty().with_file(
        "index.php",
        "<?php error_log('kept'); hearth_log('dropped', 'info'); posix_kill(getmypid(), 9);",
    );
    let variables = [("AWS_LAMBDA_LOG_FORMAT", "JSON"), ("AWS_LAMBDA_LOG_LEVEL", "ERROR")];
    let lambda = Lambda::start(site.path(), &["--model", "request"], &variables);
    let event =
        LambdaEvent::new(get("/").to_string()).field("Lambda-Runtime-Trace-Id", "Root=1-2-3");
    let posted = lambda.invoke_as(event);
    assert_eq!(posted.call, "error");
    let line = lambda.process.log().wait_for("invocation failed");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert_eq!(line["request.id"], "8476a536-e9f4-11e8-9739-000000000001");
    assert_eq!(line["span"]["trace.id"], "Root=1-2-3");
    assert!(!lambda.process.log().text().contains("dropped"));

    let text =
        Lambda::start(site.path(), &["--model", "request"], &[("AWS_LAMBDA_LOG_FORMAT", "Text")]);
    text.invoke(&get("/"));
    let line = text.process.log().wait_for("invocation failed");
    assert!(line.contains("request.id=\"8476a536-e9f4-11e8-9739-000000000001\""), "{line}");
}

#[test]
fn outgoing_connections_stay_open_from_one_invocation_to_the_next() {
    let origin = Origin::plain(routes);
    let script = format!(
        "<?php $curl = curl_init('{}'); curl_setopt($curl, CURLOPT_RETURNTRANSFER, true); curl_exec($curl); echo curl_getinfo($curl, CURLINFO_HTTP_CODE);",
        origin.url("/headers")
    );
    let (_site, lambda) = Lambda::of_script(&script);
    for _ in 0..3 {
        assert_eq!(body(&lambda.invoke(&get("/"))), "200");
    }
    assert_eq!(origin.requests().len(), 3);
    assert_eq!(origin.connections().len(), 1);
}

#[test]
fn an_extension_without_events_is_registered_and_shutdown_drains() {
    let (_site, lambda) = Lambda::of_script("<?php echo 1;");
    lambda.invoke(&get("/"));
    assert_eq!(lambda.api.extensions(), ["{\"events\":[]}"]);
    lambda.api.shut_down();
    let mut process = lambda.process;
    assert!(process.wait(LIMIT).success());
}

/// Returns all processes below one.
fn descendants(pid: u32) -> BTreeSet<u32> {
    let children = ProcessFacts::children(pid);
    children.iter().flat_map(|child| descendants(*child)).chain(children.iter().copied()).collect()
}

#[test]
fn a_restored_environment_has_new_workers_and_a_new_broker() {
    let origin = Origin::plain(routes);
    // One call during the boot, one in each invocation.
    let call = format!(
        "(static function () {{ $curl = curl_init('{}'); curl_setopt($curl, CURLOPT_RETURNTRANSFER, true); curl_exec($curl); }})();",
        origin.url("/headers")
    );
    let site = Site::empty().with_file("index.php", "<?php echo 'front controller';").with_file(
        "worker.php",
        &format!(
            "<?php file_put_contents(__DIR__ . '/booted', getmypid() . \"\\n\", FILE_APPEND); {call} \
             while (hearth_handle_request(function () {{ {call} echo getmypid(); }})) {{ }}"
        ),
    );
    let variables = [("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")];
    let lambda = Lambda::start(site.path(), &["worker.php", "--model", "worker"], &variables);
    eventually("it waits to be restored", LIMIT, || lambda.api.restore_asked());
    assert_eq!(lambda.api.waiting(), 0);
    let booted = || fs::read_to_string(site.path().join("booted")).unwrap();
    let before = booted();
    assert_eq!(origin.connections().len(), 1);
    lambda.api.restore();
    let serves = body(&lambda.invoke(&get("/")));
    assert!(!before.lines().any(|pid| pid == serves), "{before} serves after the restore");
    assert_eq!(booted().lines().last(), Some(&*serves));
    // Every other environment has a copy of the connection from before the restore, so it is not used.
    assert_eq!((origin.connections().len(), origin.requests().len()), (2, 3));
    assert!(lambda.stop().success());
}

#[test]
fn a_restored_environment_has_new_processes_in_every_model() {
    let site = Site::empty().with_file("index.php", "<?php echo getmypid();").with_file(
        "worker.php",
        "<?php while (hearth_handle_request(function () { echo getmypid(); })) { }",
    );
    let variables = [("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")];
    for model in &every_model() {
        let lambda = Lambda::start(site.path(), &["--model", model], &variables);
        eventually("it waits to be restored", LIMIT, || lambda.api.restore_asked());
        let before = descendants(lambda.process.pid());
        lambda.api.restore();
        for _ in 0..2 {
            let serves = body(&lambda.invoke(&get("/"))).parse::<u32>().unwrap();
            assert!(!before.contains(&serves), "{model}: {serves} was there before the restore");
        }
        if matches!(*model, "fpm" | "builtin" | "cgi") {
            let kept: Vec<_> =
                descendants(lambda.process.pid()).intersection(&before).copied().collect();
            assert!(kept.is_empty(), "{model}: {kept:?} were there before the restore");
        }
        assert!(lambda.stop().success(), "{model}");
    }
}

#[test]
fn a_failed_restore_is_reported_and_ends_the_program() {
    let site = Site::empty().with_file(
        "worker.php",
        "<?php if (file_exists(__DIR__ . '/broken')) { throw new Exception('no database'); } \
         while (hearth_handle_request(function () { echo 'fine'; })) { }",
    );
    let variables = [("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")];
    let lambda = Lambda::start(site.path(), &["worker.php", "--model", "worker"], &variables);
    eventually("it waits to be restored", LIMIT, || lambda.api.restore_asked());
    site.write("broken", "");
    lambda.api.restore();
    let posted = lambda.api.answer("", LIMIT);
    assert_eq!(posted.call, "restore/error");
    assert_eq!(posted.json()["errorType"], "Hearth.RestoreError");
    let mut process = lambda.process;
    assert_eq!(process.wait(LIMIT).code(), Some(1));
}

/// Returns the command `hearth`, with system calls that the kernel refuses to it and its children.
fn refused(calls: &str) -> Command {
    let hearth = command();
    let launcher = refusing(calls);
    let mut command = Command::new(&launcher[0]);
    command.env_clear().args(&launcher[1..]).arg(env!("CARGO_BIN_EXE_hearth"));
    for (name, value) in hearth.get_envs() {
        command.env(name, value.unwrap());
    }
    command
}

#[test]
fn without_memfd_create_fork_answers_with_one_warning() {
    let script = "<?php $count = 0; while (hearth_handle_request(function () use (&$count) { echo ++$count, ' ', getmypid(); })) { }";
    let site = Site::empty().with_file("worker.php", script);
    // EPERM is the error of a sandbox, ENOSYS that of a kernel without the call.
    for calls in ["memfd_create=1", "memfd_create=38"] {
        for arguments in [&["worker.php"][..], &["worker.php", "--model", "snapshot"]] {
            let lambda = Lambda::launch(refused(calls), site.path(), arguments, &[]);
            let told = [(); 2].map(|()| body(&lambda.invoke(&get("/"))));
            let pids = told
                .map(|text| text.strip_prefix("1 ").unwrap_or_else(|| panic!("{text}")).to_owned());
            assert_ne!(pids[0], pids[1], "one process for both");
            let lines = lambda.process.log().lines();
            let warnings: Vec<_> = lines.iter().filter(|line| line.contains("WARN")).collect();
            let [warning] = &warnings[..] else { panic!("{lines:#?}") };
            assert!(warning.contains("fork") && warning.contains("snapshot"), "{warning}");
            assert!(lambda.stop().success());
        }
    }
}

#[test]
fn snapshot_works_where_lambda_refuses_write_tracking() {
    if !isolating().contains(&Model::Snapshot) {
        return;
    }
    let script = "<?php $count = 0; while (hearth_handle_request(function () use (&$count) { echo ++$count, ' ', getmypid(); })) { }";
    let site = Site::empty().with_file("worker.php", script);
    let command = refused("userfaultfd=38,pagemap_scan=25");
    let lambda = Lambda::launch(command, site.path(), &["worker.php"], &[]);
    let told = [(); 2].map(|()| body(&lambda.invoke(&get("/"))));
    assert!(told[0].starts_with("1 "), "{told:?}");
    assert_eq!(told[0], told[1], "one process, put back after each answer");
    assert!(lambda.stop().success());
}

#[test]
fn static_files_are_not_served_and_a_hint_is_logged_once() {
    let site = Site::empty()
        .with_file(
            "public/index.php",
            "<?php http_response_code(404); echo 'not found: ', $_SERVER['REQUEST_URI'];",
        )
        .with_file("public/css/a b.css", "a {}");
    let lambda = Lambda::start(site.path(), &["--model", "request"], &[]);
    let told = || {
        let lines = lambda.process.log().lines();
        lines.iter().filter(|line| line.contains("file not served")).count()
    };
    for path in ["/nothing", "/css", "/css/other.css", "/..%2fhearth.toml"] {
        assert_eq!(body(&lambda.invoke(&get(path))), format!("not found: {path}"));
    }
    assert_eq!(told(), 0);
    for _ in 0..2 {
        assert_eq!(lambda.invoke(&get("/css/a%20b.css")).json()["statusCode"], 404);
    }
    let line = lambda.process.log().wait_for("file not served");
    assert!(line.contains("S3") && line.contains("/css/a%20b.css"), "{line}");
    assert!(lambda.process.log().text().matches("file not served").count() == 1);
    assert!(lambda.stop().success());
}
