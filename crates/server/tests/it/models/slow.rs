//! Slow requests are reported once, while they run, with PHP's current function. The report does not disturb them.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use testkit::{Answer, eventually, head};

use crate::hearth::{Hearth, LIMIT, Serve, Site, models};

/// The report about PHP code whose position changes during each reading.
const TOO_FAST: &str = "it runs too fast to be read";
/// Maximum number of requests until a report has the place where PHP waits.
const TRIES: u32 = 20;

/// Line numbers matter: the report contains them.
const SCRIPT: &str = "<?php
if (!class_exists('Job', false)) {
    class Job {
        public function wait(string $fifo): string {
            return file_get_contents($fifo);
        }
        public static function spin(string $flag): string {
            while (!file_exists($flag)) {
                clearstatcache();
            }
            return unlink($flag) ? 'spun' : 'gone';
        }
    }
}
echo isset($_GET['fifo']) ? (new Job())->wait($_GET['fifo']) : Job::spin($_GET['flag']);
";

fn start(site: &Site, served: &Path, model: &str) -> Hearth {
    site.write("public/slow.php", SCRIPT);
    Serve::new(served).args(&["--model", model, "--slow", "100ms"]).workers(1).start()
}

/// Waits for `count` reports and returns the newest.
fn told(hearth: &Hearth, count: u64) -> Value {
    let mut newest = Value::Null;
    eventually("the slow request is reported", LIMIT, || {
        let status = hearth.status();
        newest = status["pool"]["slow"][0].clone();
        status["pool"]["slow_requests"] == count
    });
    newest
}

/// Requests `target`, and calls `release` when the slow request is logged. If PHP had not reached `place` by then, the
/// request is repeated.
fn told_at(
    hearth: &Hearth,
    asked: &mut u64,
    (target, place): (&str, &str),
    release: impl Fn(),
) -> (Value, Answer) {
    let mut tries = 0;
    loop {
        let mut held = hearth.connect();
        held.send(head("GET", target, &[], 0)).unwrap();
        *asked += 1;
        tries += 1;
        let slow = told(hearth, *asked);
        release();
        let answer = held.answer_to("GET").unwrap();
        let seen = slow["stack"].to_string().contains(place) || slow["why"] == TOO_FAST;
        if seen || tries == TRIES {
            return (slow, answer);
        }
    }
}

fn stack(slow: &Value) -> Vec<&str> {
    slow["stack"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

#[test]
fn a_slow_request_is_logged_with_phps_stack_in_every_model() {
    for model in &models() {
        println!("model {model}");
        let (site, served) = Site::of_scripts_in(model);
        let hearth = start(&site, &served, model);
        let file = format!("{}/slow.php", site.public().display());

        // It waits in a system call, which no signal may interrupt.
        let fifo = site.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let target = format!("/slow.php?fifo={}&secret=hunter2", fifo.display());
        let mut asked = 0;
        let (slow, answer) = told_at(&hearth, &mut asked, (&target, "file_get_contents()"), || {
            std::fs::write(&fifo, "undisturbed").unwrap();
        });
        let lines = stack(&slow);
        assert_eq!(lines[0], "#0 file_get_contents()", "{model}: {slow}");
        assert_eq!(lines[1], format!("#1 Job->wait() at {file}:5"), "{model}: {slow}");
        assert!(lines[2..].iter().any(|line| line.contains(&format!(" at {file}:15"))), "{slow}");
        assert!(lines.last().unwrap().contains("{main} at "), "{model}: {slow}");
        assert_eq!(slow["why"], Value::Null, "{model}: {slow}");
        assert_eq!((&slow["method"], &slow["path"]), (&"GET".into(), &"/slow.php".into()));
        assert_eq!(slow["model"], *model);
        assert_eq!(answer.text(), "undisturbed", "{model}");
        assert_eq!(slow["id"], answer.field("x-request-id").unwrap(), "{model}");
        let line = hearth.log_line(slow["id"].as_str().unwrap());
        assert_eq!(line["message"], "slow request");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["url.path"], "/slow.php");
        assert!(line["stack"].as_str().unwrap().contains("< #1 Job->wait() at "), "{line}");

        // It runs without a pause.
        let flag = site.path().join("flag");
        let target = format!("/slow.php?flag={}", flag.display());
        let place = format!("Job::spin() at {file}:");
        let (slow, answer) = told_at(&hearth, &mut asked, (&target, &place), || {
            std::fs::write(&flag, "").unwrap();
        });
        let found = stack(&slow).iter().any(|line| line.contains(&place));
        assert!(found || slow["why"] == TOO_FAST, "{model}: {slow}");
        assert_eq!(answer.text(), "spun", "{model}");

        let status = hearth.status();
        assert_eq!(status["pool"]["slow_requests"], asked, "each of them once: {status}");
        assert_eq!(status["pool"]["crashes"], 0, "{status}");
        assert!(!hearth.log().text().contains("hunter2"), "{}", hearth.log().text());
        assert!(hearth.admin("/").text().contains("Job-&gt;wait()"));
        let metrics = hearth.admin("/metrics").text();
        let counted =
            format!("hearth_worker_slow_requests_total{{application=\"main\"}} {asked}\n");
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[test]
fn foreign_models_log_slow_requests_without_a_stack() {
    let site = Site::of_scripts();
    let hearth = start(&site, site.path(), "builtin");
    let flag = site.path().join("flag");
    let mut held = hearth.connect();
    held.send(head("GET", &format!("/slow.php?flag={}", flag.display()), &[], 0)).unwrap();
    let slow = told(&hearth, 1);
    assert_eq!(stack(&slow), Vec::<&str>::new());
    assert_eq!(slow["why"], "PHP runs in a program of its own");
    std::fs::write(&flag, "").unwrap();
    assert_eq!(held.answer_to("GET").unwrap().text(), "spun");
}

#[test]
fn slow_requests_are_not_logged_when_disabled() {
    let site = Site::of_scripts();
    let hearth =
        Serve::new(site.path()).args(&["--model", "request", "--slow", "off"]).workers(1).start();
    assert_eq!(hearth.get("/sleep.php?ms=700").status, 200);
    assert_eq!(hearth.status()["pool"]["slow_requests"], 0);
}
