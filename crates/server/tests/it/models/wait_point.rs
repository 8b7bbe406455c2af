//! `hearth_await_request()`: a front controller that has done its boot ahead answers as one that has not, and as php-fpm.

use testkit::{Answer, Client, eventually};

use super::fields_of_php;
use crate::hearth::{Hearth, LIMIT, Serve, Site, models, of_tier, php_fpm};

/// The models in which a script of the application waits for its requests.
fn waiting() -> impl Iterator<Item = &'static str> {
    of_tier(["snapshot", "fork", "prespawn"]).into_iter()
}

/// Settings of PHP that show errors in the answer.
const INI: &[(&str, &str)] = &[
    ("display_errors", "1"),
    ("html_errors", "0"),
    ("register_argc_argv", "1"),
    ("zend.exception_ignore_args", "0"),
    ("output_buffering", "4096"),
];

type Request = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [u8]);

const MULTIPART: &[(&str, &str)] = &[("Content-Type", "multipart/form-data; boundary=b")];
const UPLOAD: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nfield\r\n\
    --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nits text\r\n--b--\r\n";
const FORM: &[(&str, &str)] = &[("Content-Type", "application/x-www-form-urlencoded")];

/// Each ends in another way, or uses another part of a request. None may notice what the ones before it did.
const REQUESTS: &[Request] = &[
    ("GET", "/", &[], b""),
    ("GET", "/?case=superglobals&b[]=1&b[]=2", &[("X-One", "1"), ("Cookie", "c=1; d[x]=2")], b""),
    ("POST", "/?case=superglobals", FORM, b"a=1&b=2"),
    ("POST", "/index.php/path/info?case=superglobals", MULTIPART, UPLOAD),
    (
        "PUT",
        "/index.php?case=superglobals",
        &[("Authorization", "Basic dTpw"), ("Content-Type", "text/plain")],
        b"put",
    ),
    ("GET", "/not/there?case=superglobals", &[], b""),
    ("POST", "/?case=upload", MULTIPART, UPLOAD),
    ("POST", "/?case=input_stream", &[("Content-Type", "application/json")], b"{\"a\":1}"),
    ("POST", "/?case=input_stream", FORM, b"a=1"),
    ("GET", "/?case=settings", &[], b""),
    ("GET", "/?case=settings", &[], b""),
    ("GET", "/?case=session_handler", &[], b""),
    ("GET", "/?case=exit_in_depth", &[], b""),
    ("GET", "/?case=exit_in_shutdown", &[], b""),
    ("GET", "/?case=uncaught", &[], b""),
    ("GET", "/?case=exception_handler", &[], b""),
    ("GET", "/?case=uncaught_in_destructor", &[], b""),
    ("GET", "/?case=fatal", &[], b""),
    ("GET", "/?case=compile_error", &[], b""),
    ("GET", "/?case=memory_limit", &[], b""),
    ("GET", "/?case=time_limit", &[], b""),
    ("GET", "/?case=headers_sent", &[], b""),
    ("GET", "/?case=buffers", &[], b""),
    ("HEAD", "/?case=buffers", &[], b""),
    ("GET", "/?case=status", &[], b""),
    ("GET", "/?case=finish", &[], b""),
    ("GET", "/?case=statics", &[], b""),
    ("GET", "/?case=statics", &[], b""),
    ("GET", "/?case=generator", &[], b""),
    CLOSES,
    ("GET", "/", &[], b""),
];

/// It closes a file that the boot has opened, so its process cannot be put back.
const CLOSES: Request = ("GET", "/?case=closes", &[], b"");

/// What of an answer comes from PHP: status, header fields by name, and the body.
fn of_php(answer: &Answer) -> String {
    let mut fields: Vec<String> = fields_of_php(answer)
        .into_iter()
        .map(|(name, value)| match value.strip_prefix("PHPSESSID=") {
            Some(_) => format!("{name}: a session"),
            None => format!("{name}: {value}"),
        })
        .collect();
    // Fields of one name keep their order.
    fields.sort_by(|one, other| one.split(':').next().cmp(&other.split(':').next()));
    format!("{}\n{}\n\n{}", answer.status, fields.join("\n"), answer.text())
}

/// Sends the same requests to both, and compares what comes from PHP.
fn compare(one: &mut Client, other: &mut Client, requests: &[Request]) {
    let mut different = Vec::new();
    for (method, target, fields, body) in requests {
        let [one, other] = [&mut *one, &mut *other]
            .map(|client| of_php(&client.request(method, target, fields, body).unwrap()));
        if one != other {
            different.push(format!("{method} {target}\n{one}\n-- and --\n{other}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

fn serve(site: &Site, model: &str) -> Hearth {
    let serve = Serve::new(site.path()).model(model).workers(1);
    INI.iter().fold(serve, |serve, (name, value)| serve.ini(name, value)).start()
}

#[test]
fn a_script_that_waits_answers_as_under_php_fpm() {
    let site = Site::empty().with_folder("wait_point");
    let peer = php_fpm(site.path(), INI);
    for model in waiting().chain(models().into_iter().filter(|model| *model == "request")) {
        println!("model {model}");
        let hearth = serve(&site, model);
        let mut fpm = Client::connect(peer.address()).unwrap();
        compare(&mut hearth.connect(), &mut fpm, REQUESTS);
        if model == "snapshot" {
            let pool = &hearth.status()["pool"];
            assert_eq!((&pool["retired"], &pool["crashes"]), (&1.into(), &0.into()), "{pool}");
        }
        assert!(hearth.stop().success(), "within {LIMIT:?}");
    }
}

#[test]
fn output_that_has_left_php_before_the_line_comes_first() {
    const FLUSHED: &str = "<?php header('X-Boot: yes'); http_response_code(201); echo 'sent '; while (ob_get_level()) { ob_end_flush(); } flush();\n\
        hearth_await_request(); header('X-Late: no'); echo 'late ', headers_sent($file, $line) ? $line : 'not sent', ' ', $_GET['q'] ?? '';";
    let site = Site::empty().with_file("public/index.php", FLUSHED);
    let in_request = serve(&site, "request");
    for model in waiting() {
        println!("model {model}");
        let hearth = serve(&site, model);
        let requests = [
            ("GET", "/?q=1", &[][..], &b""[..]),
            ("HEAD", "/?q=2", &[], b""),
            ("GET", "/?q=3", &[], b""),
        ];
        compare(&mut hearth.connect(), &mut in_request.connect(), &requests);
    }
}

#[test]
fn what_a_callback_of_the_workers_start_prints_comes_before_the_answer() {
    const PRINTS: &str = "<?php hearth_on_worker_start(function () { header('X-Worker: yes'); print 'started '; });\n\
        hearth_await_request(); echo 'answer ', $_GET['q'] ?? '';";
    let site = Site::empty().with_file("public/index.php", PRINTS);
    for model in waiting() {
        for buffering in ["0", "4096"] {
            println!("model {model}, output_buffering {buffering}");
            let serve = Serve::new(site.path()).model(model).workers(1);
            let hearth = serve.ini("output_buffering", buffering).start();
            for q in ["1", "2"] {
                let answer = hearth.get(&format!("/?q={q}"));
                let text = answer.text();
                let got = (answer.status, answer.field("x-worker"), &*text);
                assert_eq!(got, (200, Some("yes"), &*format!("started answer {q}")));
            }
        }
    }
}

#[test]
fn the_boot_sees_a_plain_get_request_and_each_request_its_own() {
    const SEEN: &str = "<?php $boot = [$_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['HTTP_HOST'], $_SERVER['SCRIPT_NAME'], $_GET];\n\
        $waited = hearth_await_request(); echo json_encode([$waited, hearth_await_request(), $boot, $_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI']]);";
    let site = Site::empty().with_file("public/index.php", SEEN);
    for model in waiting() {
        println!("model {model}");
        let answer = serve(&site, model).post("/a?b=1", &[], b"").json();
        let boot = serde_json::json!(["GET", "/", "localhost", "/index.php", []]);
        assert_eq!(answer, serde_json::json!([true, false, boot, "POST", "/a?b=1"]));
    }
}

#[test]
fn what_the_boot_adds_to_server_is_there_in_each_request() {
    const LOADS: &str = "<?php $_SERVER['DSN'] = 'of .env'; $_SERVER['MODE'] = 'changed'; $_SERVER['LIST'] = [1, new ArrayObject]; $_SERVER[7] = 'seven'; $_SERVER['HTTP_X_ADDED'] ??= 'added';\n\
        hearth_await_request(); $_SERVER['LATE'] ??= $_GET['q'] ?? null; $keys = ['DSN', 'MODE', 'LIST', 7, 'HTTP_X_ADDED', 'LATE', 'REQUEST_URI', 'KEPT', 'HEARTH_WARM_UP'];\n\
        echo json_encode([array_map(fn ($key) => $_SERVER[$key] ?? null, $keys), filter_input(INPUT_SERVER, 'DSN'), getenv('MODE')]);";
    let site = Site::empty().with_file("public/index.php", LOADS);
    let served = |model| {
        let serve = Serve::new(site.path()).model(model).workers(1);
        serve.set("MODE", "of the environment").set("KEPT", "as it is").start()
    };
    let in_request = served("request");
    for model in waiting() {
        println!("model {model}");
        let requests: [Request; 3] = [
            ("GET", "/?q=1", &[], b""),
            ("GET", "/?q=2", &[("X-Added", "by the client")], b""),
            ("GET", "/", &[], b""),
        ];
        compare(&mut served(model).connect(), &mut in_request.connect(), &requests);
    }
}

#[test]
fn a_warm_up_moves_no_file_of_the_boot() {
    const READS: &str = "<?php $file = fopen(__DIR__ . '/a.txt', 'r'); $first = fgets($file); $object = new SplFileObject(__DIR__ . '/a.txt'); $folder = opendir(__DIR__);\n\
        hearth_await_request(); $names = []; while (($name = readdir($folder)) !== false) { $names[] = $name; } echo count($names), $first, fgets($file), fgets($file), $object->fgets();";
    let site = Site::empty()
        .with_file("public/index.php", READS)
        .with_file("public/a.txt", "one\ntwo\nthree\n");
    for model in waiting() {
        println!("model {model}");
        let hearth = serve(&site, model);
        for _ in 0..2 {
            assert_eq!(hearth.get("/").text(), "4one\ntwo\nthree\none\n");
        }
    }
}

#[test]
fn what_the_boot_has_opened_by_objects_retires_no_process() {
    const OPENS: &str = "<?php $file = new SplFileObject(__FILE__); $temporary = new SplTempFileObject(0); $temporary->fwrite('x'); $folder = new DirectoryIterator(__DIR__);\n\
        $below = new RecursiveIteratorIterator(new RecursiveDirectoryIterator(__DIR__)); foreach ($below as $one) { break; }\n\
        $xml = class_exists('XMLReader') ? new XMLReader : null; $xml?->open(__DIR__ . '/a.xml'); $xml?->read();\n\
        $shared = function_exists('shmop_open') ? shmop_open(0, 'c', 0600, 16) : null; if ($shared) { shmop_delete($shared); shmop_write($shared, 'of the boot', 0); }\n\
        hearth_await_request(); echo strlen($file->fgets()) > 9, count(iterator_to_array($folder)), $xml?->name, $shared ? shmop_read($shared, 0, 11) : '';\n\
        if (isset($_GET['q'])) { unset($file, $temporary, $folder, $below, $one, $xml, $shared); echo ' closed'; }";
    let site =
        Site::empty().with_file("public/index.php", OPENS).with_file("public/a.xml", "<a><b/></a>");
    let in_request = serve(&site, "request");
    for model in waiting() {
        println!("model {model}");
        let hearth = serve(&site, model);
        let requests: [Request; 3] =
            [("GET", "/", &[], b""), ("GET", "/?q", &[], b""), ("GET", "/", &[], b"")];
        compare(&mut hearth.connect(), &mut in_request.connect(), &requests);
        if model == "snapshot" {
            assert_eq!(hearth.status()["pool"]["retired"], 0);
        }
    }
}

#[test]
fn the_line_may_stand_at_any_depth() {
    const DEEP: &str = "<?php spl_autoload_register(function ($class) { $GLOBALS['waited'] = hearth_await_request(); eval(\"class $class {}\"); });\n\
        function generates() { try { yield array_map(fn ($one) => new $one, ['Deep']); yield 'second'; } finally { echo 'finally '; } }\n\
        foreach (generates() as $value) { echo is_string($value) ? $value : get_class($value[0]), $_GET['q'], ' '; if ($_GET['q'] === '2') { exit; } }\n\
        var_dump($waited);";
    let site = Site::empty().with_file("public/index.php", DEEP);
    let in_request = serve(&site, "request");
    for model in waiting() {
        println!("model {model}");
        let hearth = serve(&site, model);
        for _ in 0..2 {
            assert_eq!(hearth.get("/?q=1").text(), "Deep1 second1 finally bool(true)\n");
            assert_eq!(hearth.get("/?q=2").text(), in_request.get("/?q=2").text(), "it exits");
        }
    }
}

#[test]
fn a_place_where_no_process_can_wait_is_named() {
    let places = [
        ("in a fiber", "(new Fiber('hearth_await_request'))->start();"),
        (
            "in an output callback",
            "ob_start(fn ($text) => hearth_await_request()); echo 1; ob_end_flush();",
        ),
        ("while a session is open", "session_start(); hearth_await_request();"),
        (
            "after a session was opened",
            "session_start(); session_write_close(); hearth_await_request();",
        ),
        (
            "after a session was opened",
            "session_start(['read_and_close' => true]); hearth_await_request();",
        ),
        (
            "after a session was opened",
            "session_start(); session_destroy(); hearth_await_request();",
        ),
        ("at the end of the script", "register_shutdown_function('hearth_await_request');"),
        ("ended before it called hearth_await_request()", "echo 'never waits'; exit;"),
        ("is for worker scripts", "hearth_handle_request(fn () => hearth_await_request());"),
    ];
    for (why, code) in places {
        let site = Site::empty().with_file("public/index.php", &format!("<?php {code}"));
        // A named model is not replaced silently.
        let mut failed = Serve::new(site.path()).model("snapshot").launch();
        let (status, log) = failed.finish(LIMIT);
        assert_eq!(status.code(), Some(1), "{why}");
        assert!(log.contains(why), "{why}: {log}");
    }
}

#[test]
fn each_visitor_has_a_session_of_its_own_behind_a_wait_point() {
    let site = Site::empty().with_file(
        "public/index.php",
        "<?php $_SESSION['boot'] = 1; hearth_await_request(); $_SESSION['who'] ??= $_GET['who']; echo session_id(), ' ', $_SESSION['who'], ' ', count($_SESSION);",
    );
    let cookies = |answer: &Answer| {
        let values =
            answer.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let ids = values.filter_map(|(_, line)| line.strip_prefix("PHPSESSID=")?.split(';').next());
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    for model in waiting() {
        println!("model {model}");
        let folder = site.path().display().to_string();
        let serve = Serve::new(site.path()).model(model).workers(1);
        let serve = serve.ini("session.auto_start", "1").ini("session.save_path", &folder);
        let hearth = serve.start();
        let mut known = Vec::new();
        for who in ["ann", "bob"] {
            let answer = hearth.get(&format!("/?who={who}"));
            let [id] = &cookies(&answer)[..] else { panic!("{:?}", cookies(&answer)) };
            assert_eq!(answer.text(), format!("{id} {who} 1"));
            known.push((who, id.clone()));
        }
        assert_ne!(known[0].1, known[1].1);
        for (who, id) in &known {
            let cookie = format!("PHPSESSID={id}");
            let mut client = hearth.connect();
            let answer = client.request("GET", "/?who=other", &[("Cookie", &cookie)], b"").unwrap();
            assert_eq!(answer.text(), format!("{id} {who} 1"));
            assert_eq!(cookies(&answer), Vec::<String>::new(), "the visitor has one");
        }
    }
}

#[test]
fn an_application_waits_after_a_file_and_none_of_its_files_changes() {
    let site = Site::empty()
        .with_file("public/index.php", "<?php $a = 1; $got = (function () { $b = 2; return [$b, include __DIR__ . '/../src/boot.php', $c]; })();\n\
            include_once __DIR__ . '/../src/boot.php'; echo json_encode([$got, $GLOBALS['booted'], $_GET, basename(get_included_files()[1])]);")
        .with_file("src/boot.php", "<?php $c = $b + 1; $GLOBALS['booted'] = [$_SERVER['REQUEST_URI'], basename(__FILE__), basename(__DIR__)]; return 'its value';");
    let expected = |boot: &str| serde_json::json!([[2, "its value", 3], [boot, "boot.php", "src"], {"q": "1"}, "boot.php"]);
    assert_eq!(serve(&site, "request").get("/?q=1").json(), expected("/?q=1"));
    let file = site.path().join("src/boot.php");
    for model in waiting() {
        println!("model {model}");
        let serve = Serve::new(site.path()).model(model).workers(1);
        let hearth = serve.set("HEARTH_PHP_AWAIT_AFTER", file.to_str().unwrap()).start();
        for _ in 0..3 {
            assert_eq!(hearth.get("/?q=1").json(), expected("/"));
        }
    }
}

#[test]
fn other_scripts_of_the_application_run_as_in_request() {
    let site = Site::empty()
        .with_file("public/index.php", "<?php $from = getmypid(); hearth_await_request(); echo $from === getmypid() ? 'here' : 'ahead', ' ', $_SERVER['SCRIPT_NAME'];")
        .with_file("public/admin/index.php", "<?php echo json_encode([hearth_await_request(), $_SERVER['SCRIPT_NAME'], $_SERVER['HEARTH_WORKER'] ?? null]);")
        .with_file("public/file.txt", "a file");
    let hearth = Serve::new(site.path()).workers(1).start();
    assert_eq!(
        hearth.get("/index.php/x").text(),
        "ahead /index.php",
        "snapshot is chosen, and forks"
    );
    assert_eq!(hearth.get("/not/there").text(), "ahead /index.php");
    assert_eq!(hearth.get("/admin/").json(), serde_json::json!([false, "/admin/index.php", null]));
    assert_eq!(hearth.get("/file.txt").text(), "a file");
    assert_eq!(hearth.status()["pool"]["requests"], 3);
    eventually("the only worker has moved to one of the scripts", LIMIT, || {
        hearth.status()["pool"]["wanted"] == 1
    });
    assert!(hearth.stop().success());
}

/// A request of a process that is thrown away has used all that the first client's request uses.
#[test]
fn what_a_warm_up_learns_is_in_every_request() {
    let site = Site::empty().with_file("public/index.php", "<?php $log = __DIR__ . '/../log';\n\
        spl_autoload_register(function ($class) use ($log) { file_put_contents($log, \"$class\\n\", FILE_APPEND); eval(\"class $class {}\"); });\n\
        setlocale(LC_ALL, 'C.UTF-8'); preg_match('/boot/', ''); hearth_await_request();\n\
        if (isset($_SERVER['HEARTH_WARM_UP'])) { file_put_contents($log, $_SERVER['REQUEST_URI'] . \"\\n\", FILE_APPEND); $GLOBALS['left'] = 1; }\n\
        $resolved = array_key_exists(__DIR__ . '/../seen', realpath_cache_get()); @realpath(__DIR__ . '/../seen');\n\
        echo json_encode([class_exists('Learned', false), $resolved, isset($left)]); new Learned; preg_match('/(*UTF8)learned/u', '');")
        .with_file("seen", "");
    let log = || std::fs::read_to_string(site.path().join("log")).unwrap();
    for model in waiting().filter(|model| *model != "prespawn") {
        println!("model {model}");
        site.write("log", "");
        let serve = Serve::new(site.path()).model(model).workers(1);
        let hearth = serve.set("HEARTH_PHP_WARM_UP", "/first, /second").start();
        assert_eq!(
            log(),
            "/first\nLearned\n/second\nLearned\n",
            "by the warm-ups, and not by the process that clients' come from"
        );
        for _ in 0..2 {
            assert_eq!(hearth.get("/").json(), serde_json::json!([false, true, false]));
        }
    }
}

/// The C library's data of a language is there before the request asks for it, and so is ICU's: the first use costs the
/// processor no more than later ones. Without that, this transliterator's first use takes some 40 times as long.
#[test]
fn what_a_warm_up_learns_of_languages_is_in_every_request() {
    let site = Site::empty().with_file("public/index.php", "<?php\n\
        class Money extends NumberFormatter {}\n\
        function use_it() { $from = getrusage(); transliterator_transliterate('Any-Latin; Latin-ASCII', 'Ärger'); (new Money('de_DE', NumberFormatter::CURRENCY))->formatCurrency(1.5, 'EUR');\n\
        (new IntlDateFormatter('de_DE', IntlDateFormatter::LONG, IntlDateFormatter::SHORT, new DateTimeZone('Europe/Berlin')))->format(new DateTime());\n\
        $to = getrusage(); return ($to['ru_utime.tv_sec'] + $to['ru_stime.tv_sec'] - $from['ru_utime.tv_sec'] - $from['ru_stime.tv_sec']) * 1e6 + $to['ru_utime.tv_usec'] + $to['ru_stime.tv_usec'] - $from['ru_utime.tv_usec'] - $from['ru_stime.tv_usec']; }\n\
        hearth_await_request();\n\
        $maps = file_get_contents('/proc/self/maps'); $error = intl_get_error_code(); $locale = [setlocale(LC_ALL, 0), Locale::getDefault()];\n\
        $object = spl_object_id(new stdClass);\n\
        $first = use_it(); $later = [use_it(), use_it(), use_it()];\n\
        if (isset($_SERVER['HEARTH_WARM_UP'])) { setlocale(LC_ALL, 'C.UTF-8'); Locale::setDefault('fr_FR'); numfmt_create('xx', 99); }\n\
        echo json_encode([$first, min($later), str_contains($maps, 'C.utf8/LC_MESSAGES') || str_contains($maps, 'locale-archive'), $locale, $error, $object]);");
    let served = |model: &str, warm_up: &str| {
        let serve = Serve::new(site.path()).args(&["--model", model]).workers(1);
        serve.set("HEARTH_PHP_WARM_UP", warm_up).start()
    };
    let ask = |hearth: &Hearth| hearth.get("/").json();
    for model in waiting().filter(|model| *model != "prespawn") {
        println!("model {model}");
        let cold = ask(&served(model, "off"));
        assert_eq!(cold[2], false, "{cold}");
        let hearth = served(model, "/");
        let answers: Vec<_> = (0..8).map(|_| ask(&hearth)).collect();
        for answer in &answers {
            assert_eq!(answer[2], true, "its locale is loaded: {answer}");
            let state = |answer: &serde_json::Value| [3, 4, 5].map(|at| answer[at].clone());
            assert_eq!(state(answer), state(&cold), "settings, errors and objects are the boot's");
        }
        let least =
            |at: usize| answers.iter().filter_map(|one| one[at].as_f64()).fold(f64::MAX, f64::min);
        assert!(least(0) < 10.0 * least(1).max(100.0), "{answers:?}");
    }
}
