//! The lines of a server's log: JSON for programs, and one line for what would be many.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Client;

use crate::hearth::{Serve, Site, admin_of, command};

/// Runs `hearth serve` with its output in a pipe and no setting of a format, ends it once it is ready, and returns its lines.
fn lines_of(site: &Site, arguments: &[&str]) -> Vec<Value> {
    let mut serve = command();
    serve
        .arg("serve")
        .arg(site.path())
        .args(["--listen", "127.0.0.1:0", "--workers", "1"])
        .args(arguments);
    let mut process = serve.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let parsed = |line: String| {
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let mut lines = Vec::new();
    for line in BufReader::new(process.stderr.take().unwrap()).lines() {
        let line = parsed(line.unwrap());
        if line["message"] == "ready" {
            kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        }
        lines.push(line);
    }
    process.wait().unwrap();
    lines
}

#[test]
fn a_pipe_gets_json_lines_only_and_the_ready_line_is_an_event() {
    let site = Site::empty().with_file("public/index.php", "<?php echo 'here';");
    let lines = lines_of(&site, &["--admin", "127.0.0.1:0", "--model", "request"]);
    for line in &lines {
        for field in ["timestamp", "level", "message", "target"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
    }
    let ready = lines.iter().find(|line| line["message"] == "ready").unwrap();
    let address = ready["addresses"][0].as_str().unwrap();
    assert!(address.starts_with("http://127.0.0.1:"), "{ready}");
    assert_eq!((&ready["model"], &ready["workers"]), (&"request".into(), &1.into()));

    // The failure that ends a server is an event, too.
    let broken = Site::empty().with_file(
        "worker.php",
        "<?php throw new LogicException('no boot'); hearth_handle_request(fn () => 1);",
    );
    let lines = lines_of(&broken, &[]);
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{last}");
    assert!(last["message"].as_str().unwrap().contains("no boot"), "{last}");
    assert!(last["hint"].as_str().unwrap().starts_with("correct the application"), "{last}");
}

#[test]
fn repeated_lines_are_counted_and_pages_of_html_are_one_line() {
    let page = "<!DOCTYPE html>\n<html>\n<title>Whoops</title>\n<p>secret</p>\n</html>\n";
    let site = Site::empty().with_file(
        "worker.php",
        &format!(
            "<?php echo {page:?}; while (hearth_handle_request(function () {{\n\
             for ($i = 0; $i < 38; $i++) {{ error_log('PHP Warning:  again'); }} error_log('after'); }})) {{ }}"
        ),
    );
    let hearth = Serve::new(site.path()).workers(1).start();
    let page = hearth.log_line("an HTML page of 5 lines is left out: Whoops");
    assert_eq!(page["source"], "stdout");
    let answer = hearth.get("/");
    let id = answer.field("x-request-id").unwrap();
    let of_request = |part: &str| {
        let line = hearth.log().find(crate::hearth::LIMIT, |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let said = line["message"].as_str()?.contains(part);
            (said && line["request.id"] == id).then_some(line)
        });
        line.unwrap_or_else(|| panic!("no {part}: {}", hearth.log().text()))
    };
    let repeated = of_request("… repeated 37 times in ");
    assert_eq!(repeated["level"], "WARN");
    assert!(
        repeated["message"].as_str().unwrap().ends_with(" s: PHP Warning:  again"),
        "{repeated}"
    );
    of_request("after");
    let text = hearth.log().text();
    let of_id = text.lines().filter(|line| line.contains(id) && line.contains("Warning:  again"));
    assert_eq!(of_id.count(), 2, "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_failed_warm_up_is_logged_with_path_status_and_reason() {
    let worker =
        |body: &str| format!("<?php while (hearth_handle_request(function () {{ {body} }})) {{ }}");
    for (body, message) in [
        (
            "http_response_code(503); trigger_error('no stock', E_USER_WARNING);",
            "the warm-up request GET /news was answered with status 503: no stock",
        ),
        (
            "throw new LogicException('no news');",
            "the warm-up request GET /news ended the worker script (Uncaught LogicException: no news in ",
        ),
    ] {
        let site = Site::empty().with_file("worker.php", &worker(body));
        let hearth = Serve::new(site.path()).workers(1).set("HEARTH_PHP_WARM_UP", "/news").start();
        let line = hearth.log_line(message);
        assert_eq!(line["level"], "WARN", "{line}");
    }
}

#[test]
fn a_log_that_is_not_read_stops_nothing_and_its_lost_lines_are_counted() {
    const LINES: &str =
        "<?php for ($i = 0; $i < 40; $i++) { error_log($i . str_repeat('x', 1000)); } echo 'here';";
    let site = Site::empty().with_file("public/index.php", LINES);
    let mut serve = command();
    serve.arg("serve").arg(site.path());
    serve.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--model", "request"]);
    let mut process = serve.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str::<Value>(&line).unwrap())
    };
    let mut find = |part: &str| loop {
        let line = next().expect("the log goes on");
        let message = line["message"].as_str().unwrap().to_owned();
        if message.contains(part) {
            break (message, line["addresses"][0].as_str().map(str::to_owned));
        }
    };
    let (admin, _) = find("admin on ");
    let admin = admin.strip_prefix("admin on http://").unwrap().parse().unwrap();
    let (_, url) = find("ready");
    let url = url.unwrap();
    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    // More than a pipe and the server keep; no one reads.
    let mut client = Client::connect(address).unwrap();
    let lost = || {
        let metrics = admin_of(admin, "/metrics").text();
        let line = metrics.lines().find_map(|line| line.strip_prefix("hearth_log_lost_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    while lost() == 0 {
        assert_eq!(client.get("/").unwrap().text(), "here");
    }
    let (said, _) = find("of the log were lost");
    assert!(said.ends_with("what reads stderr was too slow"), "{said}");
    // It can write again; a stop does not wait for a reader that is gone for good.
    for _ in 0..3 {
        client.get("/").unwrap();
    }
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
}
