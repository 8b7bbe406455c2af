//! Hearth's own worker scripts for Laravel and Symfony, run by real PHP: one process answers, and nothing that the framework
//! keeps per request is left for the next one.
//!
//! They need what `make test` brings: the worker for PHP 8.2 and the assembled examples, whose libraries they borrow.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../cli/server.rs"]
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use server::{Server, get};
use tempfile::TempDir;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
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

/// One worker, so that each request meets what the last one left.
fn serve(folder: &Path) -> (Server, String) {
    let program = testkit::php_worker().expect("hearth-worker-8.x is built: `make test` does it");
    let mut server = Server::start(
        Command::new(env!("CARGO_BIN_EXE_hearth"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HEARTH_PHP_WORKER_PROGRAM", program)
            .args(["serve", "--listen", "127.0.0.1:0", "--model", "worker", "--workers", "1"])
            .arg(folder),
    );
    let address = server.address("ready on http://");
    (server, address)
}

fn get_json(address: &str, path: &str) -> Value {
    let answer = get(address, path);
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn laravel() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    copy(&example("laravel-chat"), path);
    fs::remove_file(path.join("public/worker.php")).unwrap();
    for cache in ["config.php", "routes-v7.php"] {
        drop(fs::remove_file(path.join("bootstrap/cache").join(cache)));
    }
    fs::copy(
        repository().join("crates/server/tests/workers/laravel/routes.php"),
        path.join("routes/api.php"),
    )
    .unwrap();
    let config = fs::read_to_string(path.join("config/app.php")).unwrap();
    let with_auth = config.replace(
        "'providers' => [",
        "'providers' => [Illuminate\\Auth\\AuthServiceProvider::class,",
    );
    fs::write(path.join("config/app.php"), with_auth).unwrap();
    let auth = "<?php return ['defaults' => ['guard' => 'web'], 'guards' => ['web' => ['driver' => 'session', 'provider' => \
                'users']], 'providers' => ['users' => ['driver' => 'database', 'table' => 'users']]];\n";
    fs::write(path.join("config/auth.php"), auth).unwrap();
    folder
}

#[test]
fn laravel_starts_each_request_as_it_was_after_boot() {
    let folder = laravel();
    let (mut server, address) = serve(folder.path());
    let before = get_json(&address, "/look");
    let during = get_json(&address, "/traces");
    let after = get_json(&address, "/look");

    assert_eq!(before["name"], "Fireside");
    assert_eq!(before["environment"], "Fireside", "values of .env are in $_SERVER of each request");
    let traces = json!({
        "pid": before["pid"], "controller_calls": 1, "name": "trace", "locale": "xx", "translator": "xx", "shared": true,
        "bound": true, "listener": true, "transactions": 1, "queries": 1, "cookies": 1, "url": "trace.example", "user": true,
        "environment": "Fireside",
    });
    assert_eq!(during, traces, "the traces are where the next request would find them");
    assert_eq!(after, before);

    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn laravel_keeps_its_database_connection_and_its_memory() {
    let folder = laravel();
    let (_server, address) = serve(folder.path());
    let pid = get_json(&address, "/look")["pid"].clone();
    // Cycles wait for PHP's collector (10,000 roots), so memory settles late.
    for _ in 0..1200 {
        get_json(&address, "/traces");
    }
    let resident = |pid: &Value| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let early = resident(&pid);
    for _ in 0..600 {
        get_json(&address, "/traces");
    }
    assert_eq!(get_json(&address, "/look")["pid"], pid, "no request ended the worker");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let database = open
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|to| to.ends_with("chat.sqlite"));
    assert_eq!(database.count(), 1, "one connection, still open");
    let growth = resident(&pid).saturating_sub(early);
    assert!(growth < 512, "600 requests grew the worker by {growth} KiB");
}

#[test]
fn symfony_resets_its_services_and_keeps_its_kernel() {
    let folder = tempfile::tempdir().unwrap();
    copy(&repository().join("crates/server/tests/workers/symfony"), folder.path());
    // The example's libraries; our App\Kernel comes before the example's.
    let example = example("symfony-api").join("vendor/autoload.php");
    let autoload = format!(
        "<?php $loader = require '{}'; require dirname(__DIR__) . '/src/Kernel.php'; return $loader;\n",
        example.display()
    );
    fs::create_dir(folder.path().join("vendor")).unwrap();
    fs::write(folder.path().join("vendor/autoload.php"), autoload).unwrap();
    fs::write(folder.path().join(".env"), "APP_ENV=prod\nAPP_DEBUG=0\nGREETING=hello\n").unwrap();

    let (mut server, address) = serve(folder.path());
    let first = get_json(&address, "/count");
    let second = get_json(&address, "/count");
    let expected = |requests: u32| {
        json!({
            "pid": first["pid"], "requests": requests, "calls_since_reset": 1, "environment": "prod", "debug": false,
            "greeting": "hello", "script": "/index.php",
        })
    };
    assert_eq!(first, expected(1));
    assert_eq!(second, expected(2), "one kernel, its services reset");

    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}
