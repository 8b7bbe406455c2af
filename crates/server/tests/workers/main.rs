//! Applications that boot ahead, with real PHP in every model that supports it. They use Hearth's own worker scripts
//! for Laravel and Symfony, and frameworks' runners for FrankenPHP.
//!
//! `make test` builds what they need: a worker program, and the assembled examples with their libraries.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cli/server.rs"]
mod server;

mod laravel;
mod queues;
mod runners;
mod symfony;
mod verify;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use server::{Server, get};
use tempfile::TempDir;

/// Models in which a request finds the application in its state after the boot.
const FROM_BOOT: [&str; 3] = ["prespawn", "fork", "snapshot"];
/// Models that boot ahead.
const BOOTED: [&str; 4] = ["worker", "prespawn", "fork", "snapshot"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the path of a file in this folder.
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

/// Copies the contents of `from` into `to`.
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

    /// Returns `hearth serve` with one worker, so that each request finds the state left by the last one.
    fn command(&self, model: &str) -> Command {
        let program =
            testkit::php_worker().expect("hearth-worker-8.x is built: `make test` does it");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HEARTH_LOG_FORMAT", "text")
            .env("HEARTH_PHP_WORKER_PROGRAM", program)
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--model", model])
            .arg(self.path());
        command
    }

    fn serve(&self, model: &str) -> Site {
        Site::start(&mut self.command(model))
    }

    /// Serves it with these paths as warm-up requests, each of them sent several times.
    fn serve_warmed(&self, model: &str, paths: &[&str]) -> Site {
        Site::start(self.command(model).env("HEARTH_PHP_WARM_UP", paths.join(",")))
    }
}

/// A running application.
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

    /// Returns the whole response to a GET, head included.
    fn get(&self, path: &str) -> String {
        get(&self.address, path)
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Stops the server with TERM.
    fn end(mut self) {
        self.server.signal("TERM");
        assert_eq!(self.server.wait(), Some(0));
    }
}

/// Returns the output of `hearth serve` about an application that does not boot, and checks that it exits with 1.
fn failure(app: &App, model: &str) -> String {
    let output = app.command(model).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

/// Removes the process id, which differs each time.
fn without_pid(mut seen: Value) -> Value {
    seen.as_object_mut().unwrap().remove("pid");
    seen
}

/// Returns the paths that a process has open.
fn open_files(pid: &Value) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect()
}

/// Returns the text that a request writes after its answer, when the client has confirmed it.
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
