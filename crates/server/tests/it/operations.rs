//! What operators see: log lines, the admin address, the ready line, exit codes, and messages about a boot that fails.

mod applications;
mod boot_failures;
mod boot_trace;
mod boot_watch;
mod control;
mod development;
mod drain;
mod messages;
mod printed_commands;
mod processes;
mod reload;
mod reload_snapshots;
mod rotation;
mod top;
mod traces;
pub(crate) mod upgrade;

use std::net::TcpListener;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Running, eventually, head};

use self::upgrade::Manager;
use crate::front::sockets::get_through;
use crate::hearth::{Hearth, LIMIT, Serve, Site, command, of_tier, php_version};

#[test]
fn php_output_is_logged_with_the_request_id() {
    for model in of_tier(["request", "worker"]) {
        let (_site, path) = Site::of_scripts_in(model);
        let hearth = Serve::new(path).model(model).workers(1).start();
        hearth.get("/hello.php");
        let answer = hearth.get("/logs.php");
        assert_eq!(answer.text(), "logged", "{model}");
        let id = answer.field("x-request-id").unwrap();
        for (message, level, source) in [
            ("through error_log", "INFO", "error_log"),
            ("through trigger_error", "WARN", "error_log"),
            ("through hearth_log", "ERROR", "hearth_log"),
            ("through frankenphp_log", "WARN", "hearth_log"),
            ("through stdout", "INFO", "stdout"),
            ("through stderr", "INFO", "stderr"),
        ] {
            let line = hearth.log_line(message);
            assert_eq!(line["level"], level, "{model}: {line}");
            assert_eq!(line["source"], source, "{model}: {line}");
            assert_eq!(line["request.id"], id, "{model}: {line}");
            assert_eq!(line["target"], "php", "{model}: {line}");
        }
        let line = hearth.log_line("through hearth_log");
        let context: Value = serde_json::from_str(line["context"].as_str().unwrap()).unwrap();
        assert_eq!(context, serde_json::json!({"order": 7, "path": "/a/ü"}), "{model}");
    }
}

#[test]
fn levels_of_phps_errors_become_levels_of_the_log() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php error_reporting(E_ALL); foreach ([E_USER_NOTICE, E_USER_DEPRECATED, E_USER_WARNING] as $level) {\n\
         trigger_error(\"of level $level\", $level); } hearth_log('to debug', 'debug'); hearth_log('to alert', 'alert');\n\
         trigger_error('of level error', E_USER_ERROR);",
    );
    let hearth = Serve::new(site.path())
        .args(&["--model", "request", "--log-level", "debug"])
        .workers(1)
        .start();
    assert_eq!(hearth.get("/").status, 500);
    for (message, level) in [
        ("of level 1024", "INFO"),
        ("of level 16384", "INFO"),
        ("of level 512", "WARN"),
        ("of level error", "ERROR"),
        ("to debug", "DEBUG"),
        ("to alert", "ERROR"),
    ] {
        assert_eq!(hearth.log_line(message)["level"], level, "{message}");
    }
}

#[test]
fn a_log_lines_own_level_is_used() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php\n\
         error_log('[2026-11-22 11:40:08] production.ERROR: of the application {\"user\":7}');\n\
         error_log('[2026-11-22 11:40:08] production.DEBUG: of less weight');\n\
         file_put_contents('php://stderr', \"[2026-11-22T11:40:08.000000+00:00] app.WARNING: on stderr [] []\\n\");\n\
         trigger_error('of PHP', E_USER_WARNING);",
    );
    for model in of_tier(["request", "fpm", "cgi"]) {
        let hearth = Serve::new(site.path()).model(model).ini("log_errors", "1").workers(1).start();
        assert_eq!(hearth.get("/").status, 200, "{model}");
        for (message, level) in [
            ("of the application", "ERROR"),
            ("of less weight", "INFO"),
            ("on stderr", "WARN"),
            ("of PHP", "WARN"),
        ] {
            let line = hearth.log_line(message);
            assert_eq!(line["level"], level, "{model}: {line}");
            assert_eq!(line["target"], "php", "{model}: {line}");
        }
    }
}

#[test]
fn the_access_log_and_phps_lines_share_the_request_id() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php error_log('here'); echo $_SERVER['HEARTH_REQUEST_ID'];",
    );
    let hearth = Serve::new(site.path())
        .args(&["--model", "request", "--access-log", "json"])
        .workers(1)
        .start();
    let answer = hearth.get("/page?x=1");
    let id = answer.field("x-request-id").unwrap().to_owned();
    assert_eq!(answer.text(), id);
    assert_eq!(hearth.log_line("here")["request.id"], id);
    let entry = hearth.log_line("/page");
    assert!(entry.to_string().contains(&id), "{entry}");
    assert!(entry.to_string().contains("200"), "{entry}");
}

#[test]
fn the_admin_address_reports_activity() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path()).model("request").workers(2).start();
    hearth.wait_idle(2);
    assert_eq!(hearth.admin("/up").text(), "ok\n");
    for _ in 0..5 {
        hearth.get("/hello.php");
    }
    hearth.get("/crash.php");
    hearth.wait_idle(2);

    let status = hearth.status();
    assert_eq!(status["state"], "ready");
    assert_eq!(status["model"], "request");
    assert_eq!(status["pid"], hearth.process.pid());
    assert_eq!(status["listeners"][0], hearth.url);
    assert_eq!(status["pool"]["requests"], 6);
    assert_eq!(status["pool"]["crashes"], 1);
    assert_eq!(status["pool"]["workers"].as_array().unwrap().len(), 2);

    let metrics = hearth.admin("/metrics");
    assert!(metrics.field("content-type").unwrap().starts_with("text/plain"));
    let text = metrics.text();
    for line in [
        "hearth_worker_requests_total{application=\"main\"} 6",
        "hearth_worker_crashes_total{application=\"main\"} 1",
        "hearth_workers{application=\"main\",state=\"idle\"} 2",
        "hearth_workers{application=\"main\",state=\"busy\"} 0",
        "hearth_backlog{application=\"main\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    assert!(text.contains("hearth_request_duration_seconds_bucket"), "{text}");
    assert_eq!(hearth.admin("/nothing").status, 404);
    assert!(hearth.admin("/").text().contains("Hearth"));
    assert_eq!(hearth.get("/up").text(), "front controller", "not on the public address");
}

#[test]
fn events_are_logged_with_reasons_and_without_query_strings() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path()).model("request").workers(2).start();
    hearth.wait_idle(2);
    assert_eq!(hearth.status()["problems"], serde_json::json!([]));
    hearth.get("/crash.php");
    eventually("the crash is reported", LIMIT, || {
        let status = hearth.status();
        let end = &status["pool"]["ended"][0];
        let reason = end["reason"].as_str().unwrap_or_default();
        end["ending"] == "crashed"
            && status["problems"][0]["level"] == "error"
            && status["problems"][0]["text"].as_str().unwrap().contains(reason)
            && status["traffic"]["errors"] == 1
    });
    let mut held = hearth.connect();
    held.send(head("GET", "/sleep.php?ms=600000&token=hunter2", &[], 0)).unwrap();
    eventually("the running request is shown", LIMIT, || {
        let text = hearth.admin("/status").text();
        assert!(!text.contains("hunter2"), "{text}");
        let status: Value = serde_json::from_str(&text).unwrap();
        let workers = status["pool"]["workers"].as_array().unwrap();
        workers.iter().any(|worker| worker["running"]["path"] == "/sleep.php")
    });
    let page = hearth.admin("/").text();
    assert!(page.contains("GET /sleep.php") && !page.contains("hunter2"), "{page}");
}

#[test]
fn a_public_admin_address_requires_a_token() {
    let site = Site::of_scripts();
    let mut open = command();
    open.arg("serve").arg(site.path()).args(["--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"]);
    let (code, text) = ended(Running::start(&mut open));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("HEARTH_ADMIN_TOKEN"), "{text}");

    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("HEARTH_ADMIN_TOKEN", "0123456789abcdef")
        .start();
    assert_eq!(hearth.admin("/up").status, 200);
    let refused = hearth.admin("/status");
    assert_eq!(refused.status, 401);
    assert!(refused.field("www-authenticate").unwrap().starts_with("Basic"));
    let mut client = testkit::Client::connect(hearth.admin).unwrap();
    let token = ("Authorization", "Bearer 0123456789abcdef");
    let answer = client.request("GET", "/status", &[token], b"").unwrap();
    assert_eq!(answer.status, 200);
    let text = hearth.process.log().text() + &answer.text();
    assert!(!text.contains("0123456789abcdef"), "{text}");
}

#[test]
fn the_first_lines_explain_what_runs() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    assert!(hearth.url.starts_with("http://127.0.0.1:"));
    assert_ne!(hearth.address.port(), 0);
    let line = hearth.log().wait_for("document root");
    assert!(line.contains("request model"), "{line}");
    assert!(line.contains(&format!("PHP {}.", php_version())), "{line}");
    assert!(line.contains("1 worker"), "{line}");
}

#[test]
fn one_worker_per_processor_by_default() {
    let site = Site::of_scripts();
    let hearth = Serve::new(site.path()).model("request").start();
    let processors = std::thread::available_parallelism().unwrap().get();
    hearth.wait_idle(processors);
}

#[test]
fn systemd_is_notified_of_readiness_and_stopping() {
    let site = Site::of_scripts();
    let manager = Manager::start(site.path());
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(1)
        .set("NOTIFY_SOCKET", manager.path())
        .start();
    assert!(manager.heard().contains("READY=1"));
    assert_eq!(hearth.stop().code(), Some(0));
    assert!(manager.heard().contains("STOPPING=1"));
}

#[test]
fn several_listeners_of_both_kinds_answer() {
    let site = Site::of_scripts();
    let socket = site.path().join("app.sock");
    let hearth = Serve::new(site.path())
        .args(&["--model", "request", "--listen", &format!("unix:{}", socket.display())])
        .workers(1)
        .start();
    let text = get_through(&socket, "/hello.php");
    assert!(text.ends_with("hello world\n"), "{text}");
    assert_eq!(hearth.get("/hello.php").status, 200);
    assert_eq!(hearth.stop().code(), Some(0));
    assert!(!socket.exists(), "the socket's file goes with its server");
}

fn ended(mut process: Running) -> (Option<i32>, String) {
    let (status, text) = process.finish(LIMIT);
    (status.code(), text)
}

#[test]
fn a_worker_scripts_boot_error_is_quoted() {
    let site = Site::empty().with_script("worker.php", "worker.php");
    let serve = Serve::new(site.public().join("worker.php")).model("worker");
    let (code, text) = ended(serve.set("HEARTH_PHP_ENV", "BOOT_FAILS=1").launch());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("error: the application did not boot"), "{text}");
    let error = text.split("error: the application did not boot").nth(1).unwrap();
    assert!(error.contains("the application cannot boot"), "PHP's own words: {text}");
    assert!(!text.contains("ready on"), "{text}");

    let site = Site::empty().with_file(
        "public/worker.php",
        "<?php if (false) { hearth_handle_request(fn () => null); }",
    );
    let (code, text) = ended(Serve::new(site.public().join("worker.php")).model("worker").launch());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ended before it called hearth_handle_request()"), "{text}");
}

#[test]
fn exit_codes_distinguish_failure_from_misuse() {
    let site = Site::of_scripts();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut busy = command();
    busy.arg("serve").arg(site.path()).args(["--listen", &address]);
    let (code, text) = ended(Running::start(&mut busy));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("cannot listen on {address}")), "{text}");
    assert!(text.contains("hint: "), "{text}");

    for arguments in [["--wokers", "2"], ["--model", "wroker"], ["--workers", "none"]] {
        let (code, text) = ended(Serve::new(site.path()).args(&arguments).launch());
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
    }
    let (code, text) = ended(Serve::new(site.path()).set("HEARTH_PHP_WOKERS", "2").launch());
    assert_eq!(code, Some(2), "{text}");
    assert!(text.to_lowercase().contains("hearth_php_workers"), "the nearest name: {text}");
    assert_eq!(Hearth::request(&site).stop().code(), Some(0));
}

#[test]
fn an_interrupt_stops_like_term() {
    let site = Site::of_scripts();
    let mut hearth = Hearth::request(&site);
    hearth.process.signal(Signal::INT);
    assert_eq!(hearth.process.wait(LIMIT).code(), Some(0));
}

#[test]
fn opcache_is_on_and_its_memory_shared_by_the_workers() {
    let site = Site::of_scripts();
    // The scripts are newer than two seconds; opcache does not cache such files by default.
    let hearth = Serve::new(site.path())
        .model("request")
        .workers(2)
        .ini("opcache.file_update_protection", "0")
        .start();
    hearth.wait_idle(2);
    assert_eq!(hearth.get("/hello.php").status, 200);
    let mut seen = std::collections::BTreeMap::new();
    eventually("both workers have reported", LIMIT, || {
        // While one worker is busy, the other answers.
        let mut held = hearth.connect();
        held.send(head("GET", "/sleep.php?ms=50", &[], 0)).unwrap();
        let status = hearth.get("/opcache.php").json();
        held.answer_to("GET").unwrap();
        seen.insert(status["pid"].as_u64().unwrap(), status);
        seen.len() == 2
    });
    let all: Vec<&Value> = seen.values().collect();
    for status in &all {
        assert_eq!(status["enabled"], true, "{status}");
        assert_eq!(status["start"], all[0]["start"], "one memory, begun by the zygote");
    }
    // A script that one worker compiled is in the cache of all.
    let status = hearth.get("/opcache.php").json();
    let scripts = status["scripts"].to_string();
    assert!(scripts.contains("hello.php"), "{scripts}");
    for _ in 0..20 {
        let now = hearth.get("/opcache.php").json();
        assert!(now["scripts"].to_string().contains("sleep.php"), "{now}");
    }
}

#[test]
fn memory_of_an_idle_server_stays_small() {
    let site = Site::of_scripts();
    let hearth = Hearth::request(&site);
    assert_eq!(hearth.get("/hello.php").status, 200);
    std::thread::sleep(Duration::from_millis(50));
    let facts = testkit::ProcessFacts::of(hearth.process.pid()).unwrap();
    println!("{facts:?}");
    // The promise is 15 MB in total, for the release build. This build is not optimised, so its program pages are not
    // counted.
    assert!(facts.resident < 6 << 20, "{facts:?}");
}
