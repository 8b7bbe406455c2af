//! The lines of a server's log: JSON for programs, and one line for what would be many.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Stdio};

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

/// A server whose log is read by the test only.
struct Unread {
    _site: Site,
    process: Child,
    log: Option<BufReader<ChildStderr>>,
    admin: SocketAddr,
    client: Client,
}

impl Unread {
    /// Starts a server with a site that logs 40 KB for each request.
    fn start() -> Self {
        const LINES: &str = "<?php for ($i = 0; $i < 40; $i++) { error_log($i . str_repeat('x', 1000)); } echo 'here';";
        let site = Site::empty().with_file("public/index.php", LINES);
        let mut serve = command();
        serve.arg("serve").arg(site.path());
        serve.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--model", "request"]);
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = serve.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let admin = find(&mut log, "admin on ")["message"].as_str().unwrap().to_owned();
        let admin = admin.strip_prefix("admin on http://").unwrap().parse().unwrap();
        let ready = find(&mut log, "ready");
        let url = ready["addresses"][0].as_str().unwrap();
        let client = Client::connect(url.strip_prefix("http://").unwrap().parse().unwrap());
        Self { _site: site, process, log: Some(log), admin, client: client.unwrap() }
    }

    fn get(&mut self) {
        assert_eq!(self.client.get("/").unwrap().text(), "here");
    }

    fn lost(&self) -> u64 {
        let metrics = admin_of(self.admin, "/metrics").text();
        let line = metrics.lines().find_map(|line| line.strip_prefix("hearth_log_lost_total "));
        line.unwrap().parse().unwrap()
    }

    /// Sends requests until further lines are lost.
    fn lose(&mut self) {
        let before = self.lost();
        while self.lost() == before {
            self.get();
        }
    }

    fn ends(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // Of a test that failed.
        drop(self.process.kill());
    }
}

/// Reads the log up to a message that contains `part`.
fn find(log: &mut BufReader<ChildStderr>, part: &str) -> Value {
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "the log has no {part}");
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["message"].as_str().unwrap().contains(part) {
            return line;
        }
    }
}

#[test]
fn a_log_that_is_not_read_stops_nothing_and_its_lost_lines_are_counted() {
    let mut unread = Unread::start();
    unread.lose();
    let said = find(unread.log.as_mut().unwrap(), "of the log were lost");
    assert!(
        said["message"].as_str().unwrap().ends_with("what reads stderr was too slow"),
        "{said}"
    );
    // A stop does not wait for a reader that is gone for good.
    unread.lose();
    unread.ends();
}

#[test]
fn a_log_whose_reader_has_ended_stops_nothing_and_its_lines_are_counted() {
    let mut unread = Unread::start();
    drop(unread.log.take());
    unread.lose();
    unread.ends();
}
