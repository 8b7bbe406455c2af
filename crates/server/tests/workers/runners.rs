//! Frameworks' runners for FrankenPHP, in every model that boots ahead.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::laravel::laravel;
use super::symfony::symfony;
use super::{App, BOOTED, FROM_BOOT, Site, material, written_after_answer};

#[test]
fn a_script_like_octanes_runs() {
    let app = laravel();
    fs::copy(material("runners/octane.php"), app.path().join("public/frankenphp-worker.php"))
        .unwrap();
    for model in BOOTED {
        let mut command = app.command(model);
        command.arg("--worker-script").arg(app.path().join("public/frankenphp-worker.php"));
        let site = Site::start(command.env("HEARTH_PHP_ENV", "REQUEST_MAX_EXECUTION_TIME=17"));
        for round in 1..4 {
            let answer = site.get("/look");
            let requests = if model == "worker" { round } else { 1 };
            let sandbox = format!("{requests} {}", json!(["", "1", "1", 17]));
            let field = answer.lines().find_map(|line| line.strip_prefix("x-sandbox: "));
            assert_eq!(field, Some(sandbox.as_str()), "{model}: {answer}");
            assert!(answer.contains("\"name\":\"Fireside\""), "{model}: {answer}");
        }
        let terminated = app.path().join("var/terminated");
        testkit::eventually("each request terminates", std::time::Duration::from_secs(10), || {
            fs::read_to_string(&terminated).is_ok_and(|text| text == "+++")
        });
        fs::remove_file(terminated).unwrap();
        site.end();
    }
}

const COMPONENT: &str = "/usr/share/php/Symfony/Component/Runtime";

/// Writes `public/index.php` and `vendor/autoload_runtime.php` like the Runtime component's Composer plug-in.
fn runtime_style(app: &App) {
    let template = Path::new(COMPONENT).join("Internal/autoload_runtime.template");
    let template = fs::read_to_string(template).expect("php-symfony-runtime is installed");
    app.write(
        "public/index.php",
        "<?php\nrequire_once dirname(__DIR__).'/vendor/autoload_runtime.php';\n\
         return function (array $context) {\n    return new App\\Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);\n};\n",
    );
    let autoload_runtime = template
        .replace("%project_dir%", "dirname(__DIR__)")
        .replace("%runtime_class%", "'Symfony\\\\Component\\\\Runtime\\\\SymfonyRuntime'")
        .replace("%runtime_options%", "['project_dir' => dirname(__DIR__)]");
    app.write("vendor/autoload_runtime.php", &autoload_runtime);
    fs::copy(material("runners/runtime.php"), app.path().join("src/runtime.php")).unwrap();
    app.append(
        "src/Kernel.php",
        "\nrequire_once '/usr/share/php/Symfony/Component/Runtime/autoload.php';\nrequire_once __DIR__ . '/runtime.php';\n",
    );
}

/// Sends three requests, each of which terminates after its answer.
fn serves_with_a_runner(app: &App, site: &Site, model: &str) {
    for round in 1..4 {
        let seen = site.json("/count");
        let requests = if model == "worker" { round } else { 1 };
        assert_eq!(seen["requests"], requests, "{model}");
        assert_eq!(seen["calls_since_reset"], 1, "{model}");
        assert_eq!(seen["greeting"], "hello", "{model}: values of .env");
        assert_eq!(seen["script"], "/index.php", "{model}");
    }
    assert_eq!(site.json("/later"), "now", "{model}");
    assert_eq!(written_after_answer(app), "done", "{model}: what comes behind the handler runs");
}

#[test]
fn a_runtime_named_for_frankenphp_runs_the_front_controller() {
    let app = symfony();
    runtime_style(&app);
    for model in BOOTED {
        let mut command = app.command(model);
        command.env("APP_RUNTIME", "App\\RuntimeForFrankenPhp").env("LISTENS_TO_THE_END", "1");
        let site = Site::start(&mut command);
        serves_with_a_runner(&app, &site, model);
        site.end();
    }
    // After a warm-up, the runner's own reset must work.
    for model in FROM_BOOT {
        let mut command = app.command(model);
        command.env("APP_RUNTIME", "App\\RuntimeForFrankenPhp").env("HEARTH_PHP_WARM_UP", "/count");
        let site = Site::start(&mut command);
        assert_eq!(site.json("/count")["calls_since_reset"], 1, "{model}");
        site.end();
    }
}

#[test]
fn symfony_runtimes_frankenphp_loop_runs_on_request() {
    let app = symfony();
    runtime_style(&app);
    // Symfony 7.4 and newer. The front controller of older versions answers one request and ends, so it is no worker
    // script.
    if !Path::new(COMPONENT).join("Runner/FrankenPhpWorkerRunner.php").is_file() {
        let mut command = app.command("snapshot");
        command.arg("--worker-script").arg(app.path().join("public/index.php"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("ended before it called hearth_handle_request()"), "{said}");
        return;
    }
    for model in BOOTED {
        let mut command = app.command(model);
        command.env("LISTENS_TO_THE_END", "1");
        command.arg("--worker-script").arg(app.path().join("public/index.php"));
        let site = Site::start(&mut command);
        serves_with_a_runner(&app, &site, model);
        site.end();
    }
}
