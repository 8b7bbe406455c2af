//! Tests of the model that `hearth serve` chooses: the default, its replacement, and the warning about that. The fake
//! worker stands in for PHP.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::server::{Server, get};
use super::{hearth, outcome};

/// Creates an application of these files.
fn application(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn laravel() -> TempDir {
    application(&[("artisan", ""), ("bootstrap/app.php", ""), ("public/index.php", "")])
}

fn worker_script() -> TempDir {
    application(&[("worker.php", "<?php while (hearth_handle_request($handler));")])
}

fn serve(folder: &TempDir) -> Command {
    let mut command = hearth(folder.path());
    command.env("HEARTH_PHP_WORKER_PROGRAM", testkit::fake_worker()).args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--workers",
        "1",
        "--log-format",
        "json",
    ]);
    command
}

/// A server that is ready: its address, its `/status`, and its output until then.
struct Ready {
    server: Server,
    front: String,
    admin: String,
}

impl Ready {
    fn start(command: &mut Command) -> Self {
        let mut server = Server::start(command);
        let admin = server.address("admin on http://");
        let front = server.address("ready on http://");
        Self { server, front, admin }
    }

    fn status(&self) -> Value {
        let answer = get(&self.admin, "/status");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn model(&self) -> String {
        self.status()["model"].as_str().unwrap().to_owned()
    }

    fn body(&self, path: &str) -> String {
        get(&self.front, path).split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The warnings until now, one JSON object each, without the warning that PHP runs as root.
    fn warnings(&self) -> Vec<Value> {
        let lines = self.server.said.iter().filter_map(|line| serde_json::from_str(line).ok());
        let wanted =
            |line: &Value| line["level"] == "WARN" && line["message"] != "PHP runs as root";
        lines.filter(wanted).collect()
    }

    fn stop(mut self) -> Vec<String> {
        self.server.signal("TERM");
        assert_eq!(self.server.wait(), Some(0));
        std::mem::take(&mut self.server.said)
    }
}

#[test]
fn every_model_of_the_worker_program_starts_by_name_and_by_letter() {
    let folder = worker_script();
    for (letter, name) in [
        ("A", "worker"),
        ("B", "spawn"),
        ("C", "prespawn"),
        ("D", "fork"),
        ("G", "request"),
        ("S", "snapshot"),
    ] {
        for named in [name, letter] {
            let ready = Ready::start(serve(&folder).args(["--model", named]));
            assert_eq!(ready.model(), name);
            assert!(ready.warnings().is_empty(), "{name}: {:?}", ready.warnings());
            assert_eq!(ready.body("/worker.php"), "hello", "{name}");
            ready.stop();
        }
    }
}

#[test]
fn snapshot_is_the_default_for_applications_that_boot_ahead() {
    for (folder, model) in [
        (laravel(), "snapshot"),
        (worker_script(), "snapshot"),
        (application(&[("config/bundles.php", ""), ("public/index.php", "")]), "snapshot"),
        (application(&[("index.php", "")]), "request"),
    ] {
        let ready = Ready::start(&mut serve(&folder));
        assert_eq!(ready.model(), model);
        let line = ready.status()["application"].as_str().unwrap().to_owned();
        assert!(line.contains(&format!("; {model} model; ")), "{line}");
        assert!(ready.warnings().is_empty(), "{:?}", ready.warnings());
        ready.stop();
    }
}

#[test]
fn without_a_page_tracker_fork_runs_with_one_warning() {
    // An application that also has a front controller is measured first (tests/it/models/fallback.rs).
    for (flags, folder) in [(&[][..], worker_script()), (&["--model", "snapshot"], worker_script())]
    {
        let mut command = serve(&folder);
        let ready = Ready::start(command.env("HEARTH_SNAPSHOT_TRACKER", "none").args(flags));
        assert_eq!(ready.model(), "fork");
        let [warning] = &ready.warnings()[..] else { panic!("{:?}", ready.warnings()) };
        assert_eq!(warning["message"], "model cannot run here, another takes its place");
        assert_eq!((&warning["model"], &warning["instead"]), (&"snapshot".into(), &"fork".into()));
        assert!(warning["why"].as_str().unwrap().ends_with(": told so"), "{warning}");
        assert!(warning["hint"].as_str().unwrap().contains("`--model fork`"), "{warning}");
        assert_eq!(ready.body("/"), "hello");
        ready.stop();
    }
}

#[test]
fn an_application_that_cannot_fork_runs_its_front_controller_per_request() {
    let folder = laravel();
    fs::write(folder.path().join("public/request.php"), "").unwrap();
    for model in ["snapshot", "fork"] {
        let mut command = serve(&folder);
        let ready = Ready::start(command.args(["--ini", "unfit=1", "--model", model]));
        assert_eq!(ready.model(), "request");
        let [warning] = &ready.warnings()[..] else { panic!("{:?}", ready.warnings()) };
        assert_eq!(warning["why"], "fake-worker: a thread was left running");
        for (path, script) in [("/request", "/index.php"), ("/request.php", "/request.php")] {
            let variables = ready.body(path);
            assert!(variables.contains(&format!("SCRIPT_NAME={script}\n")), "{variables}");
        }
        ready.stop();
    }
}

/// Returns the lines for people that JSON objects stand for.
fn in_words(output: &str) -> String {
    output.lines().flat_map(testkit::for_people).map(|line| line + "\n").collect()
}

#[test]
fn a_worker_script_that_cannot_fork_has_no_fallback() {
    let folder = worker_script();
    let mut command = serve(&folder);
    let output = command.args(["--ini", "unfit=1"]).output().unwrap();
    let (status, _, stderr) = outcome(&output);
    let stderr = in_words(&stderr);
    assert_eq!(status, 1);
    assert!(
        stderr.contains(
            "error: the booted application cannot be forked: fake-worker: a thread was left running\n"
        ),
        "{stderr}"
    );
    assert!(stderr.lines().last().unwrap().starts_with("hint: use `--model prespawn`"), "{stderr}");
}

#[test]
fn fork_replaces_a_snapshot_that_cannot_be_taken() {
    let folder = worker_script();
    let ready = Ready::start(serve(&folder).args(["--ini", "retire-at-boot=1"]));
    assert_eq!(ready.model(), "fork");
    assert_eq!(ready.warnings().len(), 1, "{:?}", ready.warnings());
    assert_eq!(ready.body("/"), "hello");
    ready.stop();
}

#[test]
fn an_application_that_cannot_boot_ahead_still_runs_unless_ahead_was_set() {
    let folder = laravel();
    let ready = Ready::start(serve(&folder).args(["--ini", "end-early=1"]));
    assert_eq!(ready.model(), "request");
    let [warning] = &ready.warnings()[..] else { panic!("{:?}", ready.warnings()) };
    assert_eq!(warning["why"], "fake-worker: the script took no request");
    ready.stop();

    let mut command = serve(&folder);
    let asked = command.args(["--ini", "end-early=1", "--model", "snapshot"]).output().unwrap();
    let (status, _, stderr) = outcome(&asked);
    let stderr = in_words(&stderr);
    assert_eq!(status, 1);
    assert!(stderr.contains("error: the application did not boot: fake-worker: "), "{stderr}");
}

#[test]
fn one_shot_workers_exit_without_log_lines() {
    let folder = worker_script();
    let ready = Ready::start(serve(&folder).args(["--model", "fork"]));
    for _ in 0..10 {
        assert_eq!(ready.body("/"), "hello");
    }
    let pool = &ready.status()["pool"];
    assert_eq!((&pool["crashes"], &pool["recycled"]), (&0.into(), &0.into()));
    let said = ready.stop();
    let serving = said.iter().take_while(|line| !line.contains("draining"));
    let of_workers = serving.filter(|line| line.contains("worker.pid"));
    assert_eq!(of_workers.count(), 0, "{said:#?}");
}

#[test]
fn a_retired_worker_is_counted_with_its_reason() {
    let folder = worker_script();
    let ready = Ready::start(serve(&folder).args(["--model", "snapshot"]));
    assert_eq!(ready.body("/retire"), "answered");
    assert_eq!(ready.body("/"), "hello");
    assert_eq!(ready.status()["pool"]["retired"], 1);
    let metrics = get(&ready.admin, "/metrics");
    assert!(metrics.contains("hearth_worker_retired_total{application=\"main\"} 1\n"), "{metrics}");
    let said = ready.stop();
    let retired: Vec<Value> = said
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["message"] == "worker retired")
        .collect();
    let [line] = &retired[..] else { panic!("{said:#?}") };
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["reason"], "fake-worker: a thread was left running");
    assert_eq!(line["requests"], 1);
}

#[test]
fn the_warm_up_requests_the_configured_paths() {
    let folder = application(&[
        ("worker.php", "<?php while (hearth_handle_request($handler));"),
        ("hearth.toml", "[php]\nwarm_up = [\"/news?page=2\"]\n"),
    ]);
    let ready = Ready::start(&mut serve(&folder));
    let warmed = ready.body("/warmed");
    for line in [
        "REQUEST_METHOD=GET",
        "REQUEST_URI=/news?page=2",
        "HTTP_HOST=localhost",
        "SERVER_NAME=localhost",
        "HEARTH_WARM_UP=1",
        "SCRIPT_NAME=/worker.php",
    ] {
        assert_eq!(warmed.lines().filter(|one| *one == line).count(), 3, "{line}: {warmed}");
    }
    ready.stop();
}
