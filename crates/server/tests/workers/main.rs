//! Applications that are booted ahead, run by real PHP in every model that can: with Hearth's own worker scripts for Laravel and
//! Symfony, and with runners that frameworks bring for FrankenPHP.
//!
//! They need what `make test` brings: a worker program and the assembled examples, whose libraries they borrow.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cli/server.rs"]
mod server;

mod laravel;
mod runners;
mod symfony;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use server::{Server, get};
use tempfile::TempDir;

/// Models in which a request finds the application as the boot left it.
const FROM_BOOT: [&str; 3] = ["prespawn", "fork", "snapshot"];
/// Models that boot ahead.
const BOOTED: [&str; 4] = ["worker", "prespawn", "fork", "snapshot"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of this folder.
fn material(name: &str) -> PathBuf {
    repository().join("crates/server/tests/workers").join(name)
}

fn example(name: &str) -> PathBuf {
    let folder = repository().join("examples").join(name);
    let autoload = folder.join("vendor/autoload.php");
    assert!(
        autoload.is_file(),
        "{} is missing: `scripts/assemble-example {}`",
        autoload.display(),
        folder.display()
    );
    folder
}

/// Copies what is in `from` into `to`.
fn copy(from: &Path, to: &Path) {
    let from = from.join(".");
    assert!(Command::new("cp").arg("-a").args([&from, to]).status().unwrap().success());
}

/// An application's folder.
struct App(TempDir);

impl App {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.path().join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// `hearth serve` of it; one worker, so that each request meets what the last one left.
    fn command(&self, model: &str) -> Command {
        let program =
            testkit::php_worker().expect("hearth-worker-8.x is built: `make test` does it");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HEARTH_PHP_WORKER_PROGRAM", program)
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--model", model])
            .arg(self.path());
        command
    }

    fn serve(&self, model: &str) -> Site {
        Site::start(&mut self.command(model))
    }

    /// With these paths as warm-up requests, each of them more than once.
    fn serve_warmed(&self, model: &str, paths: &[&str]) -> Site {
        Site::start(self.command(model).env("HEARTH_PHP_WARM_UP", paths.join(",")))
    }
}

/// An application that is served.
struct Site {
    server: Server,
    address: String,
}

impl Site {
    fn start(command: &mut Command) -> Self {
        let mut server = Server::start(command);
        let address = server.address("ready on http://");
        Self { server, address }
    }

    /// The whole answer to a GET, head included.
    fn get(&self, path: &str) -> String {
        get(&self.address, path)
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Drains it.
    fn end(mut self) {
        self.server.signal("TERM");
        assert_eq!(self.server.wait(), Some(0));
    }
}

/// What `hearth serve` says about an application that does not boot, and that it ends with 1.
fn failure(app: &App, model: &str) -> String {
    let output = app.command(model).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

/// Without what differs from process to process.
fn without_pid(mut seen: Value) -> Value {
    seen.as_object_mut().unwrap().remove("pid");
    seen
}

/// The paths that a process has open.
fn open_files(pid: &Value) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect()
}

/// What a request writes behind its answer, which waits for the word that the client has it.
fn written_after_answer(app: &App) -> String {
    app.write("var/answered", "");
    let written = app.path().join("var/later");
    let mut text = String::new();
    testkit::eventually("the file is written", std::time::Duration::from_secs(30), || {
        text = fs::read_to_string(&written).unwrap_or_default();
        !text.is_empty()
    });
    for name in ["answered", "later"] {
        fs::remove_file(app.path().join("var").join(name)).unwrap();
    }
    text
}
