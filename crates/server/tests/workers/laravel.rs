//! Laravel, with Hearth's own worker script.

use std::fs;

use serde_json::{Value, json};

use super::{
    App, BOOTED, FROM_BOOT, Site, copy, example, failure, material, open_files, without_pid,
    written_after_answer,
};

pub(super) fn laravel() -> App {
    let app = App::new();
    copy(&example("laravel-chat"), app.path());
    for cache in ["config.php", "routes-v7.php"] {
        drop(fs::remove_file(app.path().join("bootstrap/cache").join(cache)));
    }
    fs::copy(material("laravel/routes.php"), app.path().join("routes/api.php")).unwrap();
    let config = fs::read_to_string(app.path().join("config/app.php")).unwrap();
    let with_auth = config.replace(
        "'providers' => [",
        "'providers' => [Illuminate\\Auth\\AuthServiceProvider::class,",
    );
    app.write("config/app.php", &with_auth);
    let auth = "<?php return ['defaults' => ['guard' => 'web'], 'guards' => ['web' => ['driver' => 'session', 'provider' => \
                'users']], 'providers' => ['users' => ['driver' => 'database', 'table' => 'users']]];\n";
    app.write("config/auth.php", auth);
    app
}

#[test]
fn laravel_starts_each_request_as_it_was_after_boot() {
    let app = laravel();
    for model in BOOTED {
        let site = app.serve(model);
        let before = site.json("/look");
        assert_eq!(before["name"], "Fireside", "{model}");
        let environment = "values of .env are in $_SERVER of each request";
        assert_eq!(before["environment"], "Fireside", "{model}: {environment}");
        let traces = json!({
            "controller_calls": 1, "name": "trace", "locale": "xx", "translator": "xx", "shared": true, "bound": true,
            "listener": true, "transactions": 1, "queries": 1, "cookies": 1, "url": "trace.example", "user": true,
            "environment": "Fireside",
        });
        for path in ["/traces", "/traces-and-exit"] {
            let during = without_pid(site.json(path));
            assert_eq!(
                during, traces,
                "{model}: the traces are where the next request would find them"
            );
            let after = site.json("/look");
            if ["worker", "snapshot"].contains(&model) {
                assert_eq!(after["pid"], before["pid"], "{model}");
            }
            assert_eq!(without_pid(after), without_pid(before.clone()), "{model} after {path}");
        }
        site.end();
    }
}

#[test]
fn laravel_gets_each_request_as_it_would_read_it_itself() {
    let app = laravel();
    for model in ["worker", "snapshot"] {
        let site = app.serve(model);
        let mut client = testkit::Client::connect(site.address.parse().unwrap()).unwrap();
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let json = [("Content-Type", "application/json; charset=utf-8")];
        let fields = [("Cookie", "a=1; b[x]=2"), ("Accept-Language", "de"), ("X-Name", "é")];
        for (method, target, fields, body, all) in [
            ("GET", "/captured", &[][..], "", json!([])),
            ("GET", "/captured?a=1&b[]=2", &fields, "", json!({"a": "1", "b": ["2"]})),
            ("GET", "/captured?a=1", &json, "{\"b\": 2}", json!({"a": "1", "b": 2})),
            ("POST", "/captured?a=1", &form, "b=2", json!({"b": "2", "a": "1"})),
            ("PUT", "/captured", &form, "b=2", json!({"b": "2"})),
            ("POST", "/captured", &json, "{\"b\": 2}", json!({"b": 2})),
            ("DELETE", "/captured?a=1", &[], "", json!({"a": "1"})),
        ] {
            let seen = client.request(method, target, fields, body.as_bytes()).unwrap().json();
            assert_eq!(seen["differences"], json!([]), "{model}: {method} {target} {body}");
            assert_eq!(seen["all"], all, "{model}: {method} {target} {body}");
        }
        drop(client);
        site.end();
    }
}

#[test]
fn laravel_booted_ahead_equals_laravel_under_request() {
    let app = laravel();
    let site = app.serve("request");
    let expected = without_pid(site.json("/deeper"));
    assert_eq!(expected["made"], 2, "the early one and this one");
    assert_eq!(expected["seen"], json!(["look", "look"]));
    site.end();
    for model in FROM_BOOT {
        let site = app.serve_warmed(model, &["/traces", "/traces-and-exit", "/deeper", "/nowhere"]);
        for path in ["/deeper", "/traces", "/deeper", "/deeper"] {
            let seen = site.json(path);
            if path == "/deeper" {
                assert_eq!(without_pid(seen), expected, "{model}");
            }
        }
        site.end();
    }
}

#[test]
fn laravel_workers_inherit_no_database_connection_of_a_warm_up() {
    let app = laravel();
    let database =
        |pid: &Value| open_files(pid).iter().filter(|path| path.ends_with("chat.sqlite")).count();
    let mut command = app.command("snapshot");
    command.env("HEARTH_PHP_WARM_UP", "/traces,/look");
    // A file stands in for a socket: code that keeps one open would keep the other. A worker opens none by itself.
    let site = Site::start(command.env("HEARTH_DATABASES_KEEP", "off"));
    let pid = site.json("/pid")["pid"].clone();
    assert_eq!(database(&pid), 0);
    site.end();
}

#[test]
fn laravel_keeps_its_database_connection_and_its_memory_in_the_model_worker() {
    let app = laravel();
    let site = app.serve("worker");
    let pid = site.json("/look")["pid"].clone();
    // Cycles wait for PHP's collector (10,000 roots), so memory use becomes stable late.
    for _ in 0..1200 {
        site.json("/traces");
    }
    let resident = |pid: &Value| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let early = resident(&pid);
    for _ in 0..600 {
        site.json("/traces");
    }
    assert_eq!(site.json("/look")["pid"], pid, "no request ended the worker");
    let database = open_files(&pid).into_iter().filter(|to| to.ends_with("chat.sqlite"));
    assert_eq!(database.count(), 1, "one connection, still open");
    let growth = resident(&pid).saturating_sub(early);
    assert!(growth < 512, "600 requests grew the worker by {growth} KiB");
}

#[test]
fn laravel_terminates_after_the_client_has_its_answer() {
    let app = laravel();
    for model in BOOTED {
        let site = app.serve(model);
        let ways = ["/later", "/later-by-middleware", "/later-by-body", "/later-by-binding"];
        for path in ways.into_iter().chain(ways) {
            assert_eq!(site.json("/look")["controller_calls"], 1, "{model}");
            assert!(site.get(path).ends_with("now"), "{model}: {path}");
            assert_eq!(written_after_answer(&app), "done", "{model}: {path}");
        }
        // A `terminate` callback does not delay the answer.
        assert_eq!(site.json("/look")["controller_calls"], 1, "{model}");
        site.end();
    }
}

#[test]
fn laravel_in_maintenance_shows_its_page_and_comes_back() {
    let app = laravel();
    let page = "<?php http_response_code(503); echo 'back soon'; exit;";
    for model in BOOTED {
        let site = app.serve(model);
        assert_eq!(site.json("/look")["name"], "Fireside", "{model}");
        app.write("storage/framework/maintenance.php", page);
        let down = site.get("/look");
        assert!(
            down.starts_with("HTTP/1.1 503 ") && down.ends_with("back soon"),
            "{model}: {down}"
        );
        fs::remove_file(app.path().join("storage/framework/maintenance.php")).unwrap();
        assert_eq!(site.json("/look")["name"], "Fireside", "{model}");
        site.end();
    }
}

#[test]
fn laravel_that_fails_to_boot_gives_the_reason_in_one_line() {
    let app = laravel();
    let config = fs::read_to_string(app.path().join("config/app.php")).unwrap();
    app.write("config/app.php", &config.replace("'providers' => [", "'providers' => ['Nowhere',"));
    for model in ["worker", "snapshot"] {
        let said = failure(&app, model);
        let wanted = "the application did not boot: Error: Class \"Nowhere\" not found in ";
        assert!(said.contains(wanted), "{model}: {said}");
        assert!(!said.contains("#0 "), "{model}: no stack of what Laravel does with it: {said}");
    }
}
