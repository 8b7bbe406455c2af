//! Symfony, with Hearth's own worker script.

use serde_json::json;

use super::{
    App, BOOTED, FROM_BOOT, copy, example, failure, material, without_pid, written_after_answer,
};

/// A kernel of the test's own with the example's libraries.
pub(super) fn symfony() -> App {
    let app = App::new();
    copy(&material("symfony"), app.path());
    let example = example("symfony-api").join("vendor/autoload.php");
    // The test's App\Kernel takes precedence over the example's.
    let autoload = format!(
        "<?php $loader = require '{}'; require_once dirname(__DIR__) . '/src/Kernel.php'; return $loader;\n",
        example.display()
    );
    app.write("vendor/autoload.php", &autoload);
    app.write(".env", "APP_ENV=prod\nAPP_DEBUG=0\nGREETING=hello\n");
    app
}

#[test]
fn symfony_resets_its_services_and_keeps_its_kernel() {
    let app = symfony();
    for model in BOOTED {
        let site = app.serve(model);
        let first = site.json("/count");
        let second = site.json("/count");
        let expected = |requests: u32| {
            json!({
                "requests": requests, "calls_since_reset": 1, "environment": "prod", "debug": false, "greeting": "hello",
                "script": "/index.php",
            })
        };
        assert_eq!(without_pid(first), expected(1), "{model}");
        let shared = model == "worker";
        assert_eq!(without_pid(second), expected(if shared { 2 } else { 1 }), "{model}");

        assert_eq!(site.get("/leave").lines().next(), Some("HTTP/1.1 200 OK"), "{model}");
        let after = site.json("/count");
        assert_eq!(after["calls_since_reset"], 1, "{model}: services are reset after exit() too");
        assert_eq!(site.json("/stack")["main"], "/stack", "{model}: nor its request on the stack");
        site.end();
    }
}

#[test]
fn symfony_gets_each_request_as_it_would_create_it_itself() {
    let app = symfony();
    for model in ["worker", "snapshot"] {
        let site = app.serve(model);
        let mut client = testkit::Client::connect(site.address.parse().unwrap()).unwrap();
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let fields = [("Cookie", "a=1; b[x]=2"), ("Accept-Language", "de"), ("X-Name", "é")];
        for (method, target, fields, body, all) in [
            ("GET", "/created", &[][..], "", json!([[], []])),
            ("GET", "/created?a=1&b[]=2", &fields, "", json!([{"a": "1", "b": ["2"]}, []])),
            ("POST", "/created?a=1", &form, "b=2", json!([{"a": "1"}, {"b": "2"}])),
            ("PATCH", "/created", &form, "b=2", json!([[], {"b": "2"}])),
            ("POST", "/created", &[], "text", json!([[], []])),
        ] {
            let seen = client.request(method, target, fields, body.as_bytes()).unwrap().json();
            assert_eq!(seen["differences"], json!([]), "{model}: {method} {target} {body}");
            assert_eq!(seen["all"], all, "{model}: {method} {target} {body}");
            assert_eq!(seen["greeting"], "hello", "{model}: of .env");
        }
        drop(client);
        site.end();
    }
}

#[test]
fn symfony_booted_ahead_equals_symfony_under_request() {
    let app = symfony();
    let site = app.serve("request");
    let expected = site.json("/deeper");
    assert_eq!(expected["first"], "/deeper");
    assert_eq!(expected["one_for_all"], true);
    site.end();
    for model in FROM_BOOT {
        let site = app.serve_warmed(model, &["/count", "/leave", "/deeper", "/nowhere"]);
        for path in ["/deeper", "/count", "/deeper", "/deeper"] {
            let seen = site.json(path);
            if path == "/deeper" {
                assert_eq!(seen, expected, "{model}");
            }
        }
        site.end();
    }
}

#[test]
fn symfony_terminates_after_the_client_has_its_answer() {
    for listens in [true, false] {
        let app = symfony();
        for model in BOOTED {
            let mut command = app.command(model);
            if listens {
                command.env("LISTENS_TO_THE_END", "1");
            }
            let site = super::Site::start(&mut command);
            // This request compiles the container and writes it.
            assert_eq!(site.json("/count")["calls_since_reset"], 1, "{model}");
            assert_eq!(site.json("/later"), "now", "{model}");
            if listens {
                assert_eq!(written_after_answer(&app), "done", "{model}");
            }
            assert_eq!(site.json("/count")["calls_since_reset"], 1, "{model}");
            site.end();
        }
    }
}

#[test]
fn symfonys_front_controller_creates_its_kernel() {
    let app = symfony();
    app.write(
        "public/index.php",
        "<?php\nrequire_once dirname(__DIR__).'/vendor/autoload_runtime.php';\n\
         class Special extends App\\Kernel {}\n\
         return function (array $context) {\n    return new Special($context['APP_ENV'], (bool) $context['APP_DEBUG']);\n};\n",
    );
    // Like the Runtime component's file, which leaves everything to the script that included the autoloader.
    app.write(
        "vendor/autoload_runtime.php",
        "<?php if (true === (require_once __DIR__.'/autoload.php')) { return; } throw new LogicException('it ran');",
    );
    for model in BOOTED {
        let site = app.serve(model);
        assert_eq!(site.json("/deeper")["kernel"], "Special", "{model}");
        site.end();
    }
}

#[test]
fn symfony_that_fails_to_boot_gives_the_reason() {
    let app = symfony();
    app.append("src/Kernel.php", "\nthrow new \\LogicException('not today');\n");
    for model in ["worker", "snapshot"] {
        let said = failure(&app, model);
        let wanted = "Uncaught LogicException: not today in ";
        assert!(said.contains(wanted), "{model}: {said}");
    }
}
