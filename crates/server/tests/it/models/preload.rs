//! Learned preloading (`php.preload`): which files are preloaded, that answers stay the same, and where it switches itself off.

use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site, command};

/// Returns for each name of a comma-separated list whether a request finds it declared before it has loaded anything. In a form that
/// Hearth does not read.
const EARLY: &str = "$early = array_map(function ($name) { try { new ReflectionClass($name); return 1; } \
    catch (ReflectionException) { return (int) is_callable($name); } }, explode(',', $_GET['early'] ?? ''));\n";
/// A front controller with Composer's autoloader.
const INDEX: &str = "<?php /* early */ require __DIR__ . '/../vendor/autoload.php';\n\
    require_once __DIR__ . '/../src/functions.php';\n\
    foreach (explode(',', $_GET['load'] ?? '') as $file) { if ($file !== '') { require_once __DIR__ . \"/../src/$file.php\"; } }\n\
    header('X-Early: ' . implode($early));\n\
    echo greeting(), ' ', (new Child)->name(), ' ', defined('LOADED') ? LOADED : 'nothing';";

fn site() -> Site {
    Site::empty()
        .with_file("composer.json", r#"{"name": "hearth/site", "autoload": {"classmap": ["src/"]}}"#)
        .with_file("public/index.php", &INDEX.replace("/* early */", EARLY))
        .with_file("src/functions.php", "<?php const LOADED = 'constants'; function greeting() { static $n = 0; return 'hello' . ++$n; }")
        .with_file("src/Base.php", "<?php abstract class Base { public static $count = 0; function name() { return static::class . ++self::$count; } }")
        .with_file("src/Child.php", "<?php class Child extends Base {}")
}

/// Has Composer write its autoloader.
fn install(site: &Site) {
    let mut composer = Command::new("composer");
    composer.args(["dump-autoload", "--quiet", "--no-interaction"]).current_dir(site.path());
    let status = composer.env("COMPOSER_ALLOW_SUPERUSER", "1").status();
    assert!(status.expect("composer is missing: `scripts/setup test`").success());
}

fn serve(site: &Site) -> Serve {
    install(site);
    learned(site)
}

fn learned(site: &Site) -> Serve {
    Serve::new(site.path()).model("request").workers(1).set("HEARTH_PHP_PRELOAD", "learned")
}

/// What the status says of preloading.
fn preloaded(hearth: &Hearth) -> Value {
    hearth.status()["applications"][0]["preload"].clone()
}

fn early(hearth: &Hearth, names: &str) -> String {
    let answer = hearth.get(&format!("/?early={names}"));
    assert_eq!(answer.text(), "hello1 Child1 constants");
    answer.field("x-early").unwrap().to_owned()
}

fn reload(site: &Site) -> Output {
    command().arg("reload").arg(site.path()).output().unwrap()
}

#[test]
fn files_that_requests_include_are_preloaded_and_answers_stay_the_same() {
    let site = site();
    let hearth = serve(&site).start();
    let report = preloaded(&hearth);
    assert_eq!((&report["files"], &report["off"]), (&json!(3), &Value::Null), "{report}");
    for _ in 0..3 {
        assert_eq!(early(&hearth, "Base,Child,greeting,Never"), "1110");
    }
    let metrics = hearth.admin("/metrics").text();
    assert!(metrics.contains("hearth_preloaded_files{application=\"main\"} 3\n"), "{metrics}");
    assert!(metrics.contains("hearth_preload_off{application=\"main\"} 0\n"), "{metrics}");
    let without = Hearth::request(&site);
    assert_eq!(early(&without, "Base,Child,greeting"), "000");
    assert_eq!(without.status()["applications"][0]["preload"], Value::Null);
}

#[test]
fn a_reload_learns_from_the_requests_of_clients() {
    let site = site().with_file("src/Late.php", "<?php class Late {}");
    let hearth = serve(&site).ini("opcache.file_update_protection", "0").start();
    assert_eq!(early(&hearth, "Late"), "0");
    assert_eq!(hearth.get("/?load=Late").status, 200);
    assert!(reload(&site).status.success());
    assert_eq!(preloaded(&hearth)["files"], 4);
    assert_eq!(early(&hearth, "Late,Child"), "11");
    assert!(reload(&site).status.success());
    assert_eq!(preloaded(&hearth)["files"], 4, "what is preloaded stays learned");
}

#[test]
fn an_edit_of_a_preloaded_file_is_a_reload() {
    let site = site();
    let hearth = serve(&site).start();
    assert_eq!(hearth.get("/").text(), "hello1 Child1 constants");
    site.write(
        "src/Child.php",
        "<?php class Child extends Base { function name() { return 'edited'; } }",
    );
    eventually("the edit is served", LIMIT, || hearth.get("/").text() == "hello1 edited constants");
    assert_eq!(hearth.status()["generation"], 2);
    assert_eq!(preloaded(&hearth)["files"], 3);
}

#[test]
fn a_file_whose_early_declaration_could_be_told_is_not_preloaded() {
    for (planted, loads, why) in [
        // A polyfill, and what it stands in for.
        (
            &[(
                "src/polyfill.php",
                "<?php if (!function_exists('greeting')) { function greeting() { return 'poly'; } }",
            )][..],
            "functions",
            "another file declares the same",
        ),
        // The same class in two files, one of which no request has loaded yet.
        (
            &[("src/old/Child.php", "<?php class Child extends Base {}")],
            "Child",
            "another file declares the same",
        ),
        // A guard around an optional part.
        (
            &[("src/guard.php", "<?php if (class_exists('Child', false)) { echo 'special'; }")],
            "Child",
            "code asks whether its declarations exist",
        ),
        // An autoloader that is skipped would skip the constant, too.
        (
            &[("src/Child.php", "<?php define('CHILD', 1); class Child extends Base {}")],
            "Child",
            "it declares a class and has other code, which an autoloader would skip",
        ),
    ] {
        let site = planted.iter().fold(site(), |site, (name, text)| site.with_file(name, text));
        let hearth = serve(&site).start();
        let report = preloaded(&hearth);
        let refused = report["refused"].as_array().unwrap();
        let one = refused.iter().find(|one| one["why"] == why);
        let one = one.unwrap_or_else(|| panic!("{why}: {report}"));
        // Of two files with the same class, releases of Composer map another one.
        assert!(one["first"].as_str().unwrap().ends_with(&format!("/{loads}.php")), "{report}");
        assert_eq!(early(&hearth, "Base,greeting,Child").matches('1').count(), 2, "{report}");
        for file in ["polyfill", "guard"].iter().filter(|file| planted[0].0.contains(**file)) {
            assert_eq!(hearth.get(&format!("/?load={file}")).text(), "hello1 Child1 constants");
        }
    }
}

/// Pages whose answers tell whether a file of another page is declared early.
const PAGES: &[(&str, &str)] = &[
    ("prices", "VAT 19 %"),
    ("clock", "ok"),
    ("year", "now"),
    ("log", "Logger"),
    ("cart", "__PHP_Incomplete_Class"),
    ("conf", "1"),
    ("constant", "no Conf"),
    ("module", "ok"),
    ("hooks", "none"),
];

#[test]
fn pages_that_no_warm_up_asks_for_answer_the_same_after_a_reload() {
    let index = "<?php\n\
        spl_autoload_register(function ($class) {\n\
            $file = __DIR__ . \"/../classes/$class.php\";\n\
            if (is_file($file)) {\n\
                require $file;\n\
                if (method_exists($class, '_init')) { $class::_init(); }\n\
            }\n\
        });\n\
        $lib = __DIR__ . '/../lib';\n\
        require \"$lib/start.php\";\n\
        switch ($_GET['page'] ?? '') {\n\
        case 'prices': echo Prices::show(); break;\n\
        case 'clock': require \"$lib/clock.php\"; echo 'ok'; break;\n\
        case 'year': require \"$lib/year.php\"; break;\n\
        case 'log': require \"$lib/Logger.php\"; echo get_class(new Logger); break;\n\
        case 'cart': echo get_class(unserialize('O:6:\"Logger\":0:{}')); break;\n\
        case 'conf': require \"$lib/Conf.php\"; echo Conf::A; break;\n\
        case 'constant': echo defined('Conf::A') ? 'Conf' : 'no Conf'; break;\n\
        case 'module': require \"$lib/module.php\"; echo 'ok'; break;\n\
        case 'hooks': $module = 'a'; echo /* hook */ ? 'hook' : 'none'; break;\n\
        default: echo start();\n\
        }";
    for (hook, files) in
        [("is_callable([$module, 'hook'])", 2), ("function_exists(\"{$module}_hook\")", 0)]
    {
        let site = Site::empty()
            .with_file("public/index.php", &index.replace("/* hook */", hook))
            .with_file("classes/Prices.php", "<?php class Prices { private static $vat = 0; static function _init() { self::$vat = 19; } static function show() { return 'VAT ' . self::$vat . ' %'; } }")
            .with_file("lib/clock.php", "<?php namespace App; function date($format) { return 'frozen'; }")
            .with_file("lib/year.php", "<?php namespace App; echo date('Y') === \\date('Y') ? 'now' : 'frozen';")
            .with_file("lib/Logger.php", "<?php class Logger {}")
            .with_file("lib/Conf.php", "<?php class Conf { const A = 1; }")
            .with_file("lib/module.php", "<?php function a_hook() {}")
            .with_file("lib/start.php", "<?php function start() { return 'home'; }");
        let hearth = learned(&site).ini("opcache.file_update_protection", "0").start();
        for _ in 0..2 {
            for (page, expected) in PAGES {
                assert_eq!(
                    hearth.get(&format!("/?page={page}")).text(),
                    *expected,
                    "{page}, {hook}"
                );
            }
            assert!(reload(&site).status.success());
        }
        assert_eq!(preloaded(&hearth)["files"], files, "{}", preloaded(&hearth));
        assert_eq!(hearth.get("/").text(), "home");
    }
}

#[test]
fn it_switches_itself_off_where_answers_change() {
    // No text in the code names what is asked for.
    let guard = "$name = strrev('gniteerg'); if (is_callable($name)) { echo 'early '; }";
    let index = INDEX.replace("/* early */", &format!("{EARLY} {guard}"));
    let site = site().with_file("public/index.php", &index);
    let hearth = serve(&site).start();
    let report = preloaded(&hearth);
    let why = report["off"].as_str().unwrap();
    assert!(why.starts_with("it changes the answer to GET /: "), "{report}");
    assert_eq!(early(&hearth, "Child,greeting"), "00");
    assert_eq!(hearth.log_line("`php.preload` is off: ")["level"], "WARN");
    assert!(
        hearth.admin("/metrics").text().contains("hearth_preload_off{application=\"main\"} 1\n")
    );
}

#[test]
fn it_is_off_where_it_cannot_work_and_says_why() {
    let site = site().with_file("own.php", "<?php");
    let own = site.path().join("own.php");
    for (serve, why) in [
        (serve(&site).ini("opcache.enable", "0"), "OPcache is off"),
        (
            serve(&site)
                .ini("opcache.preload_user", "root")
                .ini("opcache.preload", &own.display().to_string()),
            "`php.ini` sets opcache.preload",
        ),
        (serve(&site).args(&["--dev"]), "development mode"),
        (serve(&site).set("HEARTH_PHP_WARM_UP", "off"), "`php.warm_up` is off"),
    ] {
        let hearth = serve.start();
        let report = preloaded(&hearth);
        assert!(report["off"].as_str().unwrap_or_default().starts_with(why), "{why}: {report}");
        assert_eq!(hearth.get("/").text(), "hello1 Child1 constants");
    }
}

#[test]
fn check_says_what_would_be_preloaded() {
    let check = |site: &Site, arguments: &[&str]| {
        install(site);
        let mut check = command();
        check.arg("check").arg(site.path()).args(["--model", "request", "--listen", "127.0.0.1:0"]);
        let output = check.args(arguments).env("HEARTH_PHP_PRELOAD", "learned").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = check(&site().with_file("src/guard.php", "<?php class_exists('Child');"), &[]);
    assert!(text.contains("2 of 8 included files are preloaded"), "{text}");
    assert!(
        text.contains("not preloaded: 1, code asks whether its declarations exist ("),
        "{text}"
    );
    let text = check(&site(), &["--dev"]);
    assert!(text.contains("`php.preload` is off: development mode"), "{text}");
}
