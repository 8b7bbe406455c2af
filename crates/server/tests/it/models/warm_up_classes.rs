//! What a warm-up has loaded behind a wait point is loaded again by each request: no answer shows that there was one.

use crate::hearth::{Hearth, Serve, Site, of_tier};

/// The models whose processes learn by a warm-up.
fn learning() -> impl Iterator<Item = &'static str> {
    of_tier(["snapshot", "fork"]).into_iter()
}

fn serve(site: &Site, model: &str) -> Hearth {
    let serve = Serve::new(site.path()).model(model).workers(1);
    serve.ini("display_errors", "1").ini("html_errors", "0").ini("error_reporting", "-1").start()
}

fn site(files: &[(&str, &str)]) -> Site {
    let site = Site::empty();
    for (path, text) in files {
        site.write(&format!("public/{path}"), &format!("<?php {text}"));
    }
    site
}

/// The path of a class's file follows from its name.
const BY_NAME: &str = "spl_autoload_register(function ($class) { $file = __DIR__ . \"/lib/$class.php\"; if (is_file($file)) { require $file; } });";
const WAIT: &str = "hearth_await_request();";

/// Status, a field and the body of the answers to these requests, each with a target and a site.
fn answers(hearth: &Hearth, requests: &[(&str, &str)]) -> Vec<(u16, Option<String>, String)> {
    let mut client = hearth.connect();
    // Twice: no request is told by the one before it either.
    let twice = requests.iter().chain(requests);
    let answers = twice.map(|&(target, site)| {
        let answer = client.request("GET", target, &[("X-Site", site)], b"").unwrap();
        (answer.status, answer.field("x-by").map(str::to_owned), answer.text())
    });
    answers.collect()
}

/// Serves the files in each model, and compares the answers with those of `request`.
fn compare(name: &str, files: &[(&str, &str)], requests: &[(&str, &str)]) {
    let site = site(files);
    let expected = answers(&serve(&site, "request"), requests);
    for model in learning() {
        assert_eq!(answers(&serve(&site, model), requests), expected, "{name} in {model}");
    }
}

#[test]
fn no_request_can_tell_what_a_warm_up_has_loaded() {
    let lines = |lines: &[&str]| lines.concat();
    let with = |below: &str| lines(&[BY_NAME, WAIT, below]);
    let hosts: &[(&str, &str)] = &[("/?q=de", "a"), ("/?q=fr", "b"), ("/", "")];
    let code_of_request = with("echo Lang::$l, ' ', Helper::N, SITE;");
    compare(
        "a class's file has code",
        &[
            ("index.php", &*code_of_request),
            ("lib/Lang.php", "class Lang { static $l; } Lang::$l = $_GET['q'] ?? 'none';"),
            (
                "lib/Helper.php",
                "class Helper { const N = 1; } define('SITE', $_SERVER['HTTP_X_SITE'] ?? '-');",
            ),
        ],
        hosts,
    );
    let by_host = lines(&[
        "class Site { static $name; } spl_autoload_register(function ($c) { $f = __DIR__ . '/sites/' . (Site::$name ?? 'default') . \"/$c.php\"; if (is_file($f)) require $f; });",
        WAIT,
        "Site::$name = is_dir(__DIR__ . '/sites/' . $_SERVER['HTTP_X_SITE']) ? $_SERVER['HTTP_X_SITE'] : 'default'; echo Theme::NAME;",
    ]);
    compare(
        "an autoloader reads what the request has set",
        &[
            ("index.php", &*by_host),
            ("sites/default/Theme.php", "class Theme { const NAME = 'default'; }"),
            ("sites/a/Theme.php", "class Theme { const NAME = 'a'; }"),
        ],
        &[("/", "none"), ("/", "a")],
    );
    let by_require = with(
        "require __DIR__ . '/lib/User.php'; require isset($_GET['q']) ? __DIR__ . '/lib/Menu.php' : __DIR__ . '/Admin.php'; echo User::NAME, Menu::NAME;",
    );
    compare(
        "the request includes the files by itself",
        &[
            ("index.php", &*by_require),
            ("lib/User.php", "class User { const NAME = 'user'; }"),
            ("lib/Menu.php", "class Menu { const NAME = 'menu'; }"),
            ("Admin.php", "class Menu { const NAME = 'admin'; }"),
        ],
        hosts,
    );
    let misses = lines(&[
        "spl_autoload_register(function ($class) { require __DIR__ . \"/lib/$class.php\"; });",
        WAIT,
        "require __DIR__ . '/all.php'; echo Bar::X;",
    ]);
    let all = ("all.php", "class Bar { const X = 'bar'; }");
    compare("an autoloader does not find the class", &[("index.php", &*misses), all], hosts);
    let exits = lines(&[
        "spl_autoload_register(function ($class) { http_response_code(500); header('X-By: loader'); exit(\"no class $class\"); });",
        WAIT,
        "require __DIR__ . '/all.php'; echo Bar::X;",
    ]);
    compare("an autoloader exits", &[("index.php", &*exits), all], hosts);
    let relative = lines(&[
        "chdir(__DIR__ . '/lib'); spl_autoload_register(function ($class) { $from = is_file(\"$class.php\") ? 'lib' : 'other'; require __DIR__ . \"/$from/$class.php\"; });",
        WAIT,
        "if (isset($_GET['q'])) { chdir('..'); } echo Theme::NAME;",
    ]);
    compare(
        "an autoloader looks into the current folder",
        &[
            ("index.php", &*relative),
            ("lib/Theme.php", "class Theme { const NAME = 'lib'; }"),
            ("other/Theme.php", "class Theme { const NAME = 'other'; }"),
        ],
        hosts,
    );
    let starts = lines(&[
        "spl_autoload_register(function ($class) { $file = __DIR__ . \"/lib/$class.php\"; require $file; if (method_exists($class, '_init')) { $class::_init(); } });",
        WAIT,
        "echo Tax::rate();",
    ]);
    compare(
        "an autoloader starts the class",
        &[
            ("index.php", &*starts),
            (
                "lib/Tax.php",
                "class Tax { private static $rate = 0; static function _init() { self::$rate = $_GET['q'] ?? 19; } static function rate() { return self::$rate; } }",
            ),
        ],
        hosts,
    );
}

/// The classes, and all that lists them, at each moment.
#[test]
fn classes_are_there_from_the_moment_on_at_which_a_request_asks_for_them() {
    let index = [
        BY_NAME,
        "set_error_handler(function ($number, $message) { echo \"error: $message\\n\"; return true; });",
        WAIT,
        "function lists() { return json_encode([array_map('basename', get_included_files()), array_values(array_filter(get_declared_classes(), fn ($c) => !str_contains($c, '@') && (new ReflectionClass($c))->isUserDefined())),\
         class_exists('Child', false), class_exists('base', false), interface_exists('Shape', false)]); }\n\
         $base = __DIR__ . '/lib/Base.php'; $q = $_GET['q'] ?? '';\n\
         if ($q === 'prepended') { spl_autoload_register(function ($class) { if ($class === 'Base') { require __DIR__ . '/Other.php'; } }, true, true); }\n\
         if ($q === 'before') { var_dump(require $base); } if ($q === 'another') { require __DIR__ . '/Other.php'; } if ($q === 'case') { new CHILD; }\n\
         if ($q === 'once') { new Child; var_dump(require_once $base); } if ($q === 'twice') { new Child; require $base; }\n\
         echo lists(); $child = new Child; echo $child->name(), Child::N, $child instanceof Shape ? 'shape' : '', Suit::from('h')->name, lists();\n\
         class_exists('Wider'); echo count(new Listed), (new class extends Child {})->name(), ++Child::$count, Base::$count, lists(); new Missing;",
    ]
    .concat();
    let files = [
        ("index.php", &*index),
        (
            "lib/Child.php",
            "declare(strict_types=1); class Child extends Base implements Shape { use Named; const N = Base::M . 'n'; function self(): static { return $this; } }",
        ),
        (
            "lib/Base.php",
            "abstract class Base { const M = 'm'; static $count = 0; function self(): Base { return $this; } }",
        ),
        (
            "Other.php",
            "abstract class Base { const M = 'other'; static $count = 7; function self(): Base { return $this; } }",
        ),
        ("lib/Shape.php", "interface Shape extends Thing {}"),
        ("lib/Thing.php", "interface Thing {}"),
        (
            "lib/Named.php",
            "trait Named { function name() { static $n = 0; return ++$n . __CLASS__; } }",
        ),
        ("lib/Suit.php", "enum Suit: string { case Hearts = 'h'; const Wild = self::Hearts; }"),
        ("lib/Listed.php", "class Listed implements Countable { function count() { return 3; } }"),
        ("lib/Wider.php", "if (PHP_VERSION_ID > 0) { class Wider {} }"),
    ];
    let requests =
        ["/", "/?q=prepended", "/?q=before", "/?q=another", "/?q=case", "/?q=once", "/?q=twice"];
    compare("lists", &files, &requests.map(|target| (target, "")));
}
