//! `hearth verify` on an application with planted leaks (tests/php/verify), with the requests of a crawl, a HAR file and a log.

use std::collections::BTreeMap;
use std::process::Output;

use serde_json::{Value, json};

use crate::hearth::{Site, command};

/// Puts the fixture's files back.
const RESET: &str = "mkdir -p var; rm -f var/*";

fn site() -> Site {
    Site::empty().with_folder("verify")
}

/// Returns an application that stores a visitor's name in a static variable: `/set?name=Ada` leaves it, and `/hello` shows what `$then` makes of it.
fn leaking(then: &str) -> Site {
    let code =
        "<?php function answer(): void { static $name = 'Eve'; $name = $_GET['name'] ?? $name;";
    let code =
        format!("{code} if (str_starts_with($_SERVER['REQUEST_URI'], '/hello')) {{ {then} }} }}");
    site().with_file("app.php", &code)
}

/// Returns the report on the leak of [`leaking`] in `worker`, which has one finding: its cause is the request that leaves the name.
fn report_on_leak(site: &Site, reset: &str) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = |path: &str| format!("{}\n", json!({"method": "GET", "path": path}));
    let log = ["/hello", "/set?name=Ada"].map(line).concat();
    std::fs::write(file.path(), log).unwrap();
    let log = file.path().to_str().unwrap();
    let arguments = ["--log", log, "--models", "worker", "--requests", "12"];
    let report = report_after(reset, site, &arguments, 1);
    let leak = ("GET /hello".to_owned(), json!(["GET /set?name=Ada"]));
    assert_eq!(causes(&report, "worker"), BTreeMap::from([leak]), "{report:#}");
    assert_eq!(report["models"][0]["findings"].as_array().unwrap().len(), 1, "{report:#}");
    report
}

fn verify(site: &Site, arguments: &[&str]) -> Output {
    verify_after(RESET, site, arguments)
}

fn verify_after(reset: &str, site: &Site, arguments: &[&str]) -> Output {
    let mut command = command();
    command.arg("verify").arg(site.path()).args(["--reset", reset]).args(arguments);
    command.output().unwrap()
}

/// Returns the report, and checks the exit status.
fn report(site: &Site, arguments: &[&str], status: i32) -> Value {
    report_after(RESET, site, arguments, status)
}

fn report_after(reset: &str, site: &Site, arguments: &[&str], status: i32) -> Value {
    let output = verify_after(reset, site, &[arguments, &["--format", "json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(status), "{stdout}\n{stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// Returns the causes of a model's findings, by the request that shows them.
fn causes(report: &Value, model: &str) -> BTreeMap<String, Value> {
    let mut models = report["models"].as_array().unwrap().iter();
    let model = models.find(|one| one["model"] == model).unwrap();
    assert_eq!(model["not_run"], Value::Null);
    assert_eq!(model["not_seen_again"], json!([]), "{report:#}");
    let findings = model["findings"].as_array().unwrap().iter();
    findings
        .map(|one| (one["request"].as_str().unwrap().to_owned(), one["predecessors"].clone()))
        .collect()
}

#[test]
fn verify_finds_every_planted_leak_in_worker_and_the_request_that_caused_it() {
    let planted = [
        "static-variable",
        "static-property",
        "singleton",
        "global",
        "constant",
        "class",
        "autoloader",
        "error-handler",
        "time-zone",
        "locale",
        "json-error",
        "environment",
        "directory",
        "umask",
        "stream-wrapper",
        "database-variable",
        "file-position",
        "listener",
        "header",
        "status",
        "session",
        "file",
        // The boot reads what it writes, which is old in each booted process.
        "settings",
    ];
    let report = report(&site(), &["--requests", "60"], 1);
    let cause = |name: &str| (format!("GET /look/{name}"), json!([format!("GET /leave/{name}")]));
    assert_eq!(causes(&report, "worker"), planted.into_iter().map(cause).collect(), "{report:#}");
    assert_eq!(causes(&report, "snapshot"), BTreeMap::from([cause("settings")]), "{report:#}");
    assert_eq!(report["not_comparable"], json!([]));
}

#[test]
fn verify_reports_nothing_about_clean_pages_with_clocks_tokens_and_sessions() {
    let site = site().with_file("hearth.toml", "[php.env]\nWITHOUT_LEAKS = \"1\"\n");
    let report = report(&site, &["--requests", "60"], 0);
    for model in ["snapshot", "worker"] {
        assert_eq!(causes(&report, model), BTreeMap::new());
    }
    assert_eq!(report["replayed"], 60);
    assert_eq!(report["requests"], 10, "the home page, its links, a form and a redirect");
    assert_eq!(report["reference"], "request");
}

#[test]
fn verify_replays_a_har_with_its_login_and_names_the_requests_that_leak() {
    let entry = |method: &str, path: &str, body: Option<&str>| {
        json!({"request": {
            "method": method, "url": format!("https://shop.test{path}"),
            "headers": [{"name": "Cookie", "value": "PHPSESSID=old"}],
            "postData": body.map(|text| json!({"mimeType": "application/x-www-form-urlencoded", "text": text})),
        }, "response": {"headers": [{"name": "set-cookie", "value": "PHPSESSID=old; path=/"}]}})
    };
    let login = "_token=recorded&user=ada";
    let har = json!({"log": {"entries": [
        entry("GET", "/clean/clock", None),
        entry("GET", "/login", None),
        entry("POST", "/login", Some(login)),
        entry("GET", "/account", None),
        entry("GET", "/clean/cart", None),
        entry("GET", "/look/static-property", None),
    ]}});
    let site = site();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), har.to_string()).unwrap();
    let report = report(&site, &["--har", file.path().to_str().unwrap(), "--requests", "6"], 1);
    // The login succeeds with the token that its form has in this run, not with the recorded one.
    let cause = json!(["GET /login", format!("POST /login ({} bytes)", login.len())]);
    let leak = ("GET /look/static-property".to_owned(), cause);
    assert_eq!(causes(&report, "worker"), BTreeMap::from([leak]), "{report:#}");
    assert_eq!(causes(&report, "snapshot"), BTreeMap::new());
}

#[test]
fn verify_replays_a_log_without_its_unsafe_requests() {
    let log = "::1 - - [27/Nov/2026:03:06:13 +0000] \"POST /login HTTP/1.1\" 419 12\n\
               ::1 - - [27/Nov/2026:03:06:13 +0000] \"GET /leave/status HTTP/1.1\" 200 12\n\
               {\"method\":\"GET\",\"path\":\"/look/status\",\"status\":200}\nnonsense\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), log).unwrap();
    let log = file.path().to_str().unwrap();
    let output = verify(&site(), &["--log", log, "--models", "worker"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for line in [
        "2 requests (log ",
        "note: 1 lines of the log hold no request that can be sent",
        "note: 1 requests with other methods than GET, HEAD and OPTIONS are left out",
        "worker: 1 difference in ",
        "1. `worker`: GET /look/status",
        "   after GET /leave/status",
        "     `request`: 200",
        "     `worker`: 503",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn verify_reports_a_token_of_the_boot_that_each_request_shares() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "{\"method\":\"GET\",\"path\":\"/nonce\"}\n").unwrap();
    let log = file.path().to_str().unwrap();
    let report = report(&site(), &["--log", log, "--models", "snapshot"], 1);
    let finding = &report["models"][0]["findings"][0];
    assert_eq!(finding["request"], "GET /nonce");
    assert_eq!(finding["cause"], "fixed_at_boot");
    assert_eq!(report["models"][0]["findings"].as_array().unwrap().len(), 1, "{report:#}");
}

#[test]
fn verify_finds_a_leak_where_the_server_would_answer_in_phps_place() {
    let users = "ann:$2y$04$Cunbpthv3MQoS.v99DdMhOp8yUcVn41mI8u8U5AH.mvhI5YXV6kxe\n";
    let site = leaking("header('Cache-Control: public, max-age=60'); echo \"Hello, $name!\";")
        .with_file("users", users);
    for (settings, named) in [
        ("cache = true", "`http.cache`"),
        ("rate_limits = [\"/ 2/m\"]", "`http.rate_limits`"),
        ("basic_auth = { \"/\" = \"users\" }", "`http.basic_auth`"),
        ("redirects = { \"/hello\" = \"/welcome\" }", "`http.redirects`"),
        ("proxy_protocol = true\ncache = true", "`http.proxy_protocol`, `http.cache`"),
    ] {
        site.write("hearth.toml", &format!("[http]\n{settings}\n"));
        let report = report_on_leak(&site, RESET);
        let note = format!("not applied, so that PHP gets every request: {named}");
        assert_eq!(report["notes"], json!([note]), "{settings}");
    }
}

#[test]
fn verify_finds_a_leak_into_files_behind_a_symbolic_link() {
    let shared = tempfile::tempdir().unwrap();
    let site = leaking("file_put_contents(__DIR__ . '/storage/visitor', $name);");
    std::os::unix::fs::symlink(shared.path(), site.path().join("storage")).unwrap();
    let report = report_on_leak(&site, "rm -f storage/*");
    let difference = json!([
        {"part": "file storage/visitor", "expected": "Eve", "got": "Ada", "further_places": 0},
    ]);
    assert_eq!(report["models"][0]["findings"][0]["differences"], difference, "{report:#}");
    let note = "links lead out of the application's folder, and requests write there: storage -> ";
    let shared = shared.path().canonicalize().unwrap();
    assert_eq!(report["notes"], json!([format!("{note}{}", shared.display())]));
}

#[test]
fn verify_compares_the_whole_of_a_rewritten_file_that_has_grown() {
    // What is behind the first three bytes is the same in both models.
    let site = leaking("file_put_contents(__DIR__ . '/var/visitor', \"$name was here\");");
    let report = report_on_leak(&site, "mkdir -p var; printf abc > var/visitor");
    let differences = &report["models"][0]["findings"][0]["differences"];
    let parts: Vec<_> = differences.as_array().unwrap().iter().map(|one| &one["part"]).collect();
    assert_eq!(parts, ["file var/visitor"], "{report:#}");
}

#[test]
fn verify_that_cannot_be_run_exits_with_2_and_says_why() {
    let cannot = |site: &Site, arguments: &[&str], wanted: &[&str]| {
        let output = verify(site, arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        for text in wanted {
            assert!(stderr.contains(text), "{text}\n{stderr}");
        }
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let site = site();
    cannot(&site, &["--log", path], &["no request to replay in log"]);
    cannot(&site, &["--har", path], &["is no HAR file", "developer tools"]);
    cannot(&site, &["--log", "/nonexistent"], &["cannot read /nonexistent", "correct `--log`"]);
    cannot(&site, &["--models", "request"], &["the models that can be compared are worker, "]);
    let plain = Site::empty().with_file("public/index.php", "<?php echo 1;");
    cannot(&plain, &[], &["the application does not boot in `snapshot`"]);
    let mut failing = command();
    failing.arg("verify").arg(site.path()).args(["--reset", "echo not there >&2; exit 3"]);
    let output = failing.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("failed (exit status: 3): not there"), "{stderr}");
    let broken = site.with_file("app.php", "<?php throw new LogicException('not today');");
    cannot(&broken, &[], &["answers every request with a server error in `request`"]);
    let broken = broken.with_file("public/index.php", "<?php echo 1;");
    cannot(
        &broken,
        &[],
        &["the application does not boot in `snapshot`", "LogicException: not today"],
    );
}
