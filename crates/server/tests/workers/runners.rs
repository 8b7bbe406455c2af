//! Frameworks' runners for FrankenPHP, in every model that boots ahead.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::laravel::laravel;
use super::symfony::symfony;
use super::{App, BOOTED, FROM_BOOT, Site, material, repository, written_after_answer};

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

/// The runtime of `packages/symfony`, and the autoloader that it comes with.
const HEARTHS: &str = "Hearth\\Symfony\\Runtime";

fn hearths_runtime(app: &App) {
    runtime_style(app);
    let sources = repository().join("packages/symfony/src");
    app.append(
        "src/Kernel.php",
        &format!(
            "\nspl_autoload_register(static function (string $class): void {{\n\
             if (str_starts_with($class, 'Hearth\\\\Symfony\\\\')) {{\n\
             require '{}/' . str_replace('\\\\', '/', substr($class, 15)) . '.php';\n}}\n}});\n",
            sources.display()
        ),
    );
}

#[test]
fn hearths_runtime_for_symfony_boots_the_kernel_once() {
    let app = symfony();
    hearths_runtime(&app);
    for model in BOOTED {
        let mut command = app.command(model);
        let site = Site::start(command.env("APP_RUNTIME", HEARTHS).env("LISTENS_TO_THE_END", "1"));
        serves_with_a_runner(&app, &site, model);
        assert_eq!(site.get("/leave").lines().next(), Some("HTTP/1.1 200 OK"), "{model}");
        assert_eq!(site.json("/count")["calls_since_reset"], 1, "{model}: reset after exit() too");
        assert_eq!(site.json("/stack")["main"], "/stack", "{model}");
        site.end();
    }
    // It is Symfony's own where each request starts PHP.
    let site = Site::start(app.command("request").env("APP_RUNTIME", HEARTHS));
    assert_eq!(site.json("/count")["requests"], 1);
    site.end();
}

#[test]
fn hearths_runtime_for_symfony_creates_what_asks_for_the_request_with_each() {
    let app = symfony();
    hearths_runtime(&app);
    let answers = [
        // A response from the request.
        "fn (Request $request): Response => new JsonResponse([$request->query->get('a'), getmypid()])",
        // A response without one.
        "fn (): Response => new JsonResponse([$_GET['a'] ?? null, getmypid()])",
    ];
    for answer in answers {
        app.write(
            "public/index.php",
            &format!(
                "<?php\nuse Symfony\\Component\\HttpFoundation\\{{JsonResponse, Request, Response}};\n\
                 require_once dirname(__DIR__).'/vendor/autoload_runtime.php';\nreturn {answer};\n"
            ),
        );
        for model in BOOTED {
            let site = Site::start(app.command(model).env("APP_RUNTIME", HEARTHS));
            let (first, second) = (site.json("/?a=1"), site.json("/?a=2"));
            assert_eq!((&first[0], &second[0]), (&json!("1"), &json!("2")), "{model}");
            let stays = model == "worker" || model == "snapshot";
            assert_eq!(first[1] == second[1], stays, "{model}: the process");
            site.end();
        }
    }
}

#[test]
fn hearths_runtime_for_symfony_leaves_consoles_alone() {
    let app = symfony();
    hearths_runtime(&app);
    app.write(
        "bin/console",
        "<?php\nrequire_once dirname(__DIR__).'/vendor/autoload_runtime.php';\n\
         return function (array $context) {\n\
         $console = new Symfony\\Component\\Console\\Application('of ' . $context['APP_ENV']);\n\
         $console->setAutoExit(false);\nreturn $console;\n};\n",
    );
    let mut command = Command::new("php");
    command.arg(app.path().join("bin/console")).arg("--version").env("APP_RUNTIME", HEARTHS);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("of prod"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}
