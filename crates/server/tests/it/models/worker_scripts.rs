//! Common worker scripts: written for FrankenPHP or for Hearth, by hand or by a framework's runner.

use serde_json::json;
use testkit::eventually;

use crate::hearth::{Hearth, LIMIT, Serve, Site, of_tier};

/// The loop in FrankenPHP's manual, unchanged except for the application.
const BY_HAND: &str = r"<?php
ignore_user_abort(true);

$myApp = new class {
    private int $count = 0;
    public function handle(array $get, array $post, array $cookie, array $files, array $server): string
    {
        return ++$this->count . ' ' . $server['REQUEST_METHOD'] . ' ' . json_encode([$get, $post, $cookie]);
    }
    public function terminate(): void
    {
    }
};

$handler = static function () use ($myApp) {
    try {
        echo $myApp->handle($_GET, $_POST, $_COOKIE, $_FILES, $_SERVER);
    } catch (\Throwable $exception) {
        (new \MyCustomExceptionHandler)->handleException($exception);
    }
};

$maxRequests = (int)($_SERVER['MAX_REQUESTS'] ?? 0);
for ($nbRequests = 0; !$maxRequests || $nbRequests < $maxRequests; ++$nbRequests) {
    $keepRunning = \frankenphp_handle_request($handler);
    $myApp->terminate();
    gc_collect_cycles();
    if (!$keepRunning) {
        break;
    }
}
";

#[test]
fn a_loop_written_for_frankenphp_runs_unchanged() {
    let site = Site::empty().with_file("public/worker.php", BY_HAND);
    let hearth = Hearth::worker(&site, "worker.php");
    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", "c=3")];
    assert_eq!(hearth.get("/?a=1").text(), "1 GET [{\"a\":\"1\"},[],[]]");
    assert_eq!(hearth.post("/", &form, b"b=2").text(), "2 POST [[],{\"b\":\"2\"},{\"c\":\"3\"}]");
    assert_eq!(hearth.stop().code(), Some(0));
}

/// Boots as `CodeIgniter` 4 does, which asks for these two whether it runs in a shell.
const FOR_THE_WEB: &str = r"<?php
$shell = !isset($_SERVER['REMOTE_ADDR']) && !isset($_SERVER['REQUEST_METHOD']);
$names = ['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SERVER_PROTOCOL', 'GATEWAY_INTERFACE', 'SERVER_SOFTWARE', 'SCRIPT_NAME'];
$boot = array_intersect_key($_SERVER, array_flip($names));
$of_visitors = preg_grep('/^(HTTP_|HTTPS$|REMOTE_|SERVER_(ADDR|PORT|NAME)$|CONTENT_|PATH_INFO$|REQUEST_SCHEME$)/', array_keys($_SERVER));
$given = [$_GET, $_POST, $_COOKIE, $_FILES];
while (frankenphp_handle_request(static function () use ($shell, $names, $boot, $of_visitors, $given): void {
    $lost = array_diff_key(array_flip($names), $_SERVER);
    echo json_encode(['shell' => $shell, 'boot' => $boot, 'of_visitors' => array_values($of_visitors), 'given' => $given,
        'now' => [$_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['QUERY_STRING']], 'lost' => $lost]);
})) {
}
";

#[test]
fn a_worker_script_boots_as_a_get_request_without_a_visitor() {
    for model in of_tier(["snapshot", "fork", "worker"]) {
        let site = Site::empty().with_file("public/worker.php", FOR_THE_WEB);
        let script = site.public().join("worker.php");
        let hearth = Serve::new(script).model(model).workers(1).start();
        let answer = hearth.post("/posted?a=1", &[], b"body").json();
        assert_eq!(answer["shell"], false, "{model}");
        let boot = json!({
            "REQUEST_METHOD": "GET", "REQUEST_URI": "/", "QUERY_STRING": "", "SERVER_PROTOCOL": "HTTP/1.1",
            "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_SOFTWARE": "hearth", "SCRIPT_NAME": "/worker.php",
        });
        assert_eq!(answer["boot"], boot, "{model}");
        assert_eq!(answer["of_visitors"], json!([]), "{model}");
        assert_eq!(answer["given"], json!([[], [], [], []]), "{model}");
        assert_eq!(answer["now"], json!(["POST", "/posted?a=1", "a=1"]), "{model}");
        assert_eq!(answer["lost"], json!([]), "every request brings what the boot has, {model}");
    }
}

#[test]
fn a_script_that_ends_after_some_requests_boots_again() {
    let site = Site::empty().with_file("public/worker.php", BY_HAND);
    let hearth = Serve::new(site.public().join("worker.php"))
        .model("worker")
        .workers(1)
        .set("HEARTH_PHP_ENV", "MAX_REQUESTS=3")
        .start();
    let counts: Vec<String> =
        (0..7).map(|_| hearth.get("/").text().split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(counts, ["1", "2", "3", "1", "2", "3", "1"]);
    assert_eq!(hearth.status()["pool"]["crashes"], 0);
}

/// Like runtime/frankenphp-symfony's Runner: the kernel's request lives between the handler and the loop.
const RUNNER: &str = r"<?php
final class Request
{
    public function __construct(public array $query, public array $server) {}
    public static function createFromGlobals(): self { return new self($_GET, $_SERVER); }
}
final class Kernel
{
    public array $log = [];
    public function handle(Request $request): string { return 'page of ' . ($request->query['user'] ?? 'guest'); }
    public function terminate(Request $request): void { $this->log[] = $request->query['user'] ?? 'guest'; }
}
final class Runner
{
    public function __construct(private Kernel $kernel, private int $loopMax) {}

    public function run(): int
    {
        // Prevent worker script termination when a client connection is interrupted
        ignore_user_abort(true);

        $xdebugConnectToClient = function_exists('xdebug_connect_to_client');
        $server = array_filter($_SERVER, static fn (string $key) => !str_starts_with($key, 'HTTP_'), ARRAY_FILTER_USE_KEY);
        $server['APP_RUNTIME_MODE'] = 'web=1&worker=1';

        $handler = function () use ($server, &$sfRequest, &$sfResponse, $xdebugConnectToClient): void {
            if ($xdebugConnectToClient) {
                xdebug_connect_to_client();
            }
            // Merge the environment variables coming from DotEnv with the ones tied to the current request
            $_SERVER += $server;

            $sfRequest = Request::createFromGlobals();
            $sfResponse = $this->kernel->handle($sfRequest);
            header('Content-Type: application/json');
            echo json_encode([$sfResponse, $this->kernel->log, $_SERVER['APP_RUNTIME_MODE'], $_SERVER['REQUEST_METHOD']]);
        };

        $loops = 0;
        do {
            $ret = \frankenphp_handle_request($handler);
            if ($this->kernel instanceof Kernel && $sfRequest && $sfResponse) {
                $this->kernel->terminate($sfRequest);
            }
            gc_collect_cycles();
        } while ($ret && (-1 === $this->loopMax || ++$loops < $this->loopMax));

        return 0;
    }
}
exit((new Runner(new Kernel(), 500))->run());
";

#[test]
fn a_runner_like_symfonys_runs_unchanged() {
    let site = Site::empty().with_file("public/worker.php", RUNNER);
    let hearth = Hearth::worker(&site, "worker.php");
    let mode = "web=1&worker=1";
    assert_eq!(hearth.get("/?user=ada").json(), json!(["page of ada", [], mode, "GET"]));
    assert_eq!(hearth.post("/", &[], b"").json(), json!(["page of guest", ["ada"], mode, "POST"]));
    assert_eq!(
        hearth.get("/?user=eve").json(),
        json!(["page of eve", ["ada", "guest"], mode, "GET"])
    );
    assert_eq!(hearth.stop().code(), Some(0), "its exit() is the normal end");
}

#[test]
fn functions_exist_under_both_names_in_both_models() {
    let names = [
        "hearth_handle_request",
        "frankenphp_handle_request",
        "hearth_finish_request",
        "frankenphp_finish_request",
        "fastcgi_finish_request",
        "hearth_request_headers",
        "frankenphp_request_headers",
        "apache_request_headers",
        "getallheaders",
        "frankenphp_response_headers",
        "apache_response_headers",
        "headers_send",
        "hearth_log",
        "frankenphp_log",
        "hearth_on_worker_start",
        "hearth_keep_connection",
    ];
    let list = format!("array_filter({}, fn ($name) => !function_exists($name))", json!(names));
    let site = Site::empty()
        .with_file("public/index.php", &format!("<?php echo json_encode({list});"))
        .with_file(
            "worker.php",
            &format!("<?php while (hearth_handle_request(function () {{ echo json_encode({list}); }})) {{ }}"),
        );
    assert_eq!(Hearth::request(&site).get("/").json(), json!([]));
    let script = site.path().join("worker.php");
    let hearth = Serve::new(script).model("worker").workers(1).start();
    assert_eq!(hearth.get("/").json(), json!([]));
}

#[test]
fn a_start_callback_runs_once_after_the_boot_and_before_the_first_request() {
    let site = Site::empty().with_file(
        "public/worker.php",
        "<?php $order = ['boot']; hearth_on_worker_start(function () use (&$order) { $order[] = 'start'; });\n\
         $order[] = 'loop'; while (hearth_handle_request(function () use (&$order) {\n\
         $order[] = 'request'; echo implode(' ', $order); })) { }",
    );
    let hearth = Hearth::worker(&site, "worker.php");
    assert_eq!(hearth.get("/").text(), "boot loop start request");
    assert_eq!(hearth.get("/").text(), "boot loop start request request");
}

#[test]
fn a_callback_that_throws_is_logged_and_the_worker_goes_on() {
    for model in of_tier(["worker", "prespawn", "fork", "snapshot"]) {
        let site = Site::empty().with_file(
            "worker.php",
            "<?php $order = ['boot']; hearth_on_worker_start(function () { throw new DomainException('no cache'); });\n\
             hearth_on_worker_start(function () use (&$order) { $order[] = 'second'; });\n\
             while (hearth_handle_request(function () use (&$order) { echo implode(' ', $order); })) { }",
        );
        let script = site.path().join("worker.php");
        let hearth = Serve::new(script).model(model).workers(1).start();
        assert_eq!(hearth.get("/").text(), "boot second", "{model}");
        hearth.log_line("a callback of hearth_on_worker_start() failed: DomainException: no cache");
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}

#[test]
fn an_exception_of_a_destructor_is_logged_and_streams_are_closed_behind_it() {
    for model in of_tier(["fork", "snapshot"]) {
        let site = Site::empty().with_file(
            "worker.php",
            "<?php class Wrapper { public $context; private $data = ''; function stream_open() { return true; }\n\
             function stream_write($data) { $this->data .= $data; return strlen($data); } function stream_flush() { return true; }\n\
             function stream_close() { file_put_contents(__DIR__ . '/closed', $this->data . \"\\n\", FILE_APPEND); } }\n\
             stream_wrapper_register('wrapper', 'Wrapper');\n\
             class Kept { static $object; static $file; function __destruct() { throw new LogicException('of a destructor'); } }\n\
             while (hearth_handle_request(function () { Kept::$object = new Kept(); Kept::$file = fopen('wrapper://file', 'w');\n\
             fwrite(Kept::$file, $_GET['q']); echo 'ok'; })) { }",
        );
        let script = site.path().join("worker.php");
        let hearth = Serve::new(script).model(model).workers(1).start();
        assert_eq!(hearth.get("/?q=one").text(), "ok", "{model}");
        assert_eq!(hearth.get("/?q=two").text(), "ok", "{model}");
        let closed = || std::fs::read_to_string(site.path().join("closed")).unwrap_or_default();
        eventually("both are closed", LIMIT, || closed() == "one\ntwo\n");
        hearth.log_line("Uncaught LogicException: of a destructor");
        assert_eq!(hearth.status()["pool"]["crashes"], 0, "{model}");
    }
}

#[test]
fn a_script_written_after_the_boot_is_cached_when_it_is_old_enough() {
    for model in of_tier(["worker", "fork", "snapshot"]) {
        let site = Site::empty().with_file(
            "worker.php",
            "<?php while (hearth_handle_request(function () { $file = __DIR__ . '/generated.php';\n\
             if (!is_file($file)) { file_put_contents($file, '<?php return 1;'); }\n\
             $value = include $file; echo var_export(opcache_is_script_cached($file)), ' ', $value; })) { }",
        );
        let script = site.path().join("worker.php");
        let hearth = Serve::new(script).model(model).workers(1).start();
        // Another process may be writing it.
        assert_eq!(hearth.get("/").text(), "false 1", "{model}");
        eventually("it is cached", LIMIT, || hearth.get("/").text() == "true 1");
        site.write("generated.php", "<?php return 2;");
        assert_eq!(hearth.get("/").text(), "false 2", "{model}: a change is seen at once");
        eventually("it is cached again", LIMIT, || hearth.get("/").text() == "true 2");
    }
}

#[test]
fn a_nested_wait_for_a_request_is_rejected() {
    let site = Site::empty().with_script("worker.php", "worker.php");
    let hearth = Hearth::worker(&site, "worker.php");
    let text = hearth.get("/nested").text();
    assert!(text.contains("cannot be called while it handles a request"), "{text}");
    assert_eq!(hearth.get("/").text(), "hello world\n");
}

#[test]
fn a_stopped_loop_restarts_without_losing_a_request() {
    let site = Site::empty().with_script("worker.php", "worker.php");
    let hearth = Hearth::worker(&site, "worker.php");
    let first = hearth.get("/count").json();
    assert_eq!(hearth.get("/stop").text(), "stopping");
    let next = hearth.get("/count").json();
    assert_ne!(next["boot"], first["boot"]);
    assert_eq!(next["requests"], 1);
    eventually("idle again", LIMIT, || hearth.status()["pool"]["workers"][0]["state"] == "idle");
}

/// A script that counts the requests in its memory, and how many of them were warm-up requests.
const COUNTS: &str = "<?php $seen = $warm = 0; while (hearth_handle_request(function () use (&$seen, &$warm) {\n\
    $seen++; $warm += (int) isset($_SERVER['HEARTH_WARM_UP']); echo \"$seen seen, $warm warm\"; })) { }";

#[test]
fn a_warm_up_leaves_nothing_in_the_booted_application() {
    for model in of_tier(["fork", "snapshot"]) {
        let site = Site::empty().with_file("public/worker.php", COUNTS);
        let serve = || Serve::new(site.public().join("worker.php")).model(model);
        let hearth = serve().workers(1).start();
        assert_eq!(hearth.get("/").text(), "1 seen, 0 warm", "{model}");
        let asked = serve().workers(1).set("HEARTH_PHP_WARM_UP", "/").start();
        assert_eq!(asked.get("/").text(), "4 seen, 3 warm", "{model}");
    }
}

#[test]
fn a_framework_that_cannot_boot_runs_as_request_with_a_reason() {
    let site = Site::empty()
        .with_file("artisan", "")
        .with_file("vendor/autoload.php", "<?php")
        .with_file("bootstrap/app.php", "<?php throw new RuntimeException('it burns');")
        .with_file("public/index.php", "<?php echo 'all the same';");
    let hearth = Serve::new(site.path()).workers(1).start();
    assert_eq!(hearth.get("/").text(), "all the same");
    let log = hearth.log().text();
    assert!(log.contains("it burns") && log.contains("request model in place of"), "{log}");
}

/// Turns every PHP warning into an exception, like frameworks.
const STRICT: &str = r"<?php
set_error_handler(static function (int $level, string $message): never {
    throw new ErrorException($message, 0, $level);
});
$boot = bin2hex(random_bytes(8));
while (hearth_handle_request(static function () use ($boot): void {
    try {
        echo $undefined;
    } catch (ErrorException $warning) {
        echo json_encode([$boot, count($_POST), $warning->getMessage()]);
    }
})) {
}
";

/// If a body is too large, PHP warns before the script gets the request. Scripts under php-fpm then get the request
/// without the body.
#[test]
fn start_up_warnings_bypass_a_worker_scripts_error_handler() {
    for model in of_tier(["worker", "fork", "snapshot"]) {
        let site = Site::empty().with_file("public/worker.php", STRICT);
        let hearth = Serve::new(site.public().join("worker.php"))
            .model(model)
            .workers(1)
            .ini("post_max_size", "1000")
            .ini("max_input_vars", "5")
            .start();
        let form = [("Content-Type", "application/x-www-form-urlencoded")];
        let few = hearth.post("/", &form, b"a=1").json();
        assert_eq!(few, json!([few[0], 1, "Undefined variable $undefined"]), "{model}");
        let large = hearth.post("/", &form, &[b'a'; 2000]);
        assert_eq!(large.status, 200, "{model}: {}", large.text());
        assert_eq!(large.json(), json!([few[0], 0, "Undefined variable $undefined"]), "{model}");
        // PHP accepts one variable more than `max_input_vars` says.
        let many = hearth.post("/", &form, b"a=1&b=2&c=3&d=4&e=5&f=6&g=7");
        assert_eq!(many.status, 200, "{model}: {}", many.text());
        assert_eq!(many.json(), json!([few[0], 6, "Undefined variable $undefined"]), "{model}");
    }
}
