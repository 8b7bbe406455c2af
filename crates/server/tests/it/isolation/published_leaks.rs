//! Leaks between requests that users of worker modes have published, in a Laravel and a Symfony application
//! (tests/php/leaks). The next request sees what a request of the user Ada left if the model shares state, and nothing
//! in models that isolate.
//!
//! The tests need the libraries of the assembled examples.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pool::Model;
use serde_json::{Map, Value};

use crate::hearth::{Hearth, Serve, Site, each_isolating, root};

pub(crate) fn example(name: &str) -> PathBuf {
    let folder = root().join("examples").join(name);
    let there = folder.join("vendor/autoload.php").is_file();
    assert!(there, "`scripts/assemble-example {}`", folder.display());
    folder
}

/// Copies the Laravel example into a new folder, without its caches.
pub(crate) fn laravel_example() -> Site {
    let site = Site::empty();
    let example = example("laravel-chat");
    let copied = Command::new("cp").arg("-a").args([&example.join("."), site.path()]).status();
    assert!(copied.unwrap().success());
    // These caches are compiled from the example's own configuration and routes.
    for cache in ["config.php", "routes-v7.php"] {
        drop(fs::remove_file(site.path().join("bootstrap/cache").join(cache)));
    }
    site
}

fn laravel() -> Site {
    let site = laravel_example();
    let config = fs::read_to_string(site.path().join("config/app.php")).unwrap();
    let with_auth = config.replace(
        "'providers' => [",
        "'providers' => [Illuminate\\Auth\\AuthServiceProvider::class,",
    );
    site.write("config/app.php", &with_auth);
    site.with_folder("leaks/laravel")
}

fn symfony() -> Site {
    // The autoloader uses the example's libraries; the test's App\Kernel takes precedence over the example's.
    let autoload = format!(
        "<?php $loader = require '{}'; require dirname(__DIR__) . '/src/Kernel.php'; return $loader;",
        example("symfony-api").join("vendor/autoload.php").display()
    );
    Site::empty().with_folder("leaks/symfony").with_file("vendor/autoload.php", &autoload)
}

fn serve(site: &Site, model: Model) -> Hearth {
    Serve::new(site.public().join("worker.php")).model(model.name()).workers(1).start()
}

/// Returns what another visitor sees, without the process id.
fn look(hearth: &Hearth) -> Map<String, Value> {
    let answer = hearth.get("/look");
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), hearth.log().text());
    let mut seen: Map<String, Value> = serde_json::from_slice(&answer.body).unwrap();
    seen.remove("pid").unwrap();
    seen
}

/// Checks which state of one request reaches the next: `leaks` in a model that shares, none in others.
fn leaks(make: impl Fn() -> Site, leaks: &[&str]) {
    let site = make();
    let hearth = serve(&site, Model::Worker);
    let before = look(&hearth);
    assert_eq!(hearth.get("/leave?user=ada").status, 200);
    let after = look(&hearth);
    let differs = before.iter().filter(|(name, value)| after[*name] != **value);
    let differs: BTreeSet<_> = differs.map(|(name, _)| name.as_str()).collect();
    assert_eq!(differs, leaks.iter().copied().collect(), "shared: {before:?}\n{after:?}");

    for model in each_isolating().into_iter().filter(|model| model.runs_worker_script()) {
        let site = make();
        let hearth = serve(&site, model);
        assert_eq!(look(&hearth), before, "{model:?}: the first request");
        for _ in 0..3 {
            assert_eq!(hearth.get("/leave?user=ada").status, 200);
            assert_eq!(look(&hearth), before, "{model:?}: the one after Ada's");
        }
        assert_eq!(hearth.status()["pool"]["crashes"], 0);
    }
}

#[test]
fn laravel_requests_leave_nothing_to_others() {
    let shared = [
        "clock",
        "config",
        "cookies",
        "ini",
        "invalid input",
        "listeners",
        "locale",
        "macro",
        "page",
        "page number",
        "queries",
        "routes",
        "shared with views",
        "tenant",
        "transactions",
        "url",
        "user",
        "uuid",
    ];
    leaks(laravel, &shared);
}

#[test]
fn symfony_requests_leave_nothing_to_others() {
    leaks(symfony, &["collector", "environment", "ini", "listeners", "user"]);
}
