<?php

/**
 * An application with planted leaks, for the tests of `hearth verify`: `/leave/NAME` leaves something behind, and `/look/NAME` shows it. The
 * clean pages show a clock, random numbers, a token and a session, which differ in each run. With `WITHOUT_LEAKS` in the environment the home
 * page links to the clean pages only.
 */

declare(strict_types=1);

/** A service that lives as long as its process. */
final class Service
{
    public static string $property = 'none';
    public static ?self $instance = null;
    public string $user = 'guest';
    public ?string $header = null;
    public bool $closed = false;
    public string $visitor = 'nobody';
    public string $logged = 'nothing';
    /** @var list<callable(): string> */
    public array $listeners = [];

    public static function get(): self
    {
        return self::$instance ??= new self();
    }
}

/** A stream wrapper that a request registers. */
final class LeftWrapper
{
    /** @var resource|null */
    public $context;
}

$folder = __DIR__ . '/var';
@mkdir($folder);
// The boot reads what a request changes: a booted process goes on with the old value.
$settings = is_file("$folder/settings") ? file_get_contents("$folder/settings") : 'default';
// A secret of the boot is the same in each of its requests.
$nonce = bin2hex(random_bytes(8));
$database = new PDO('sqlite::memory:');
$file = fopen(__FILE__, 'r');

function counted(bool $counts): int
{
    static $count = 0;
    return $counts ? ++$count : $count;
}

/** @return array<string, array{callable(): mixed, callable(): mixed}> what leaves each leak, and what shows it */
function leaks(): array
{
    global $database, $file;
    $service = Service::get();
    return [
        'static-variable' => [fn () => counted(true), fn () => counted(false)],
        'static-property' => [fn () => Service::$property = 'ada', fn () => Service::$property],
        'singleton' => [fn () => $service->user = 'ada', fn () => $service->user],
        'global' => [fn () => $GLOBALS['tenant'] = 'ada', fn () => $GLOBALS['tenant'] ?? 'none'],
        'constant' => [fn () => defined('TENANT') || define('TENANT', 'ada'), fn () => defined('TENANT')],
        'class' => [
            fn () => class_exists('Alias', false) || class_alias(Service::class, 'Alias'),
            fn () => class_exists('Alias', false),
        ],
        'autoloader' => [fn () => spl_autoload_register(function () {
        }), fn () => count(spl_autoload_functions())],
        'error-handler' => [fn () => set_error_handler(fn () => true), function () {
            $handler = set_error_handler(null);
            set_error_handler($handler);
            return $handler === null ? 'none' : 'set';
        }],
        'time-zone' => [fn () => date_default_timezone_set('Asia/Tokyo'), fn () => date_default_timezone_get()],
        'locale' => [fn () => setlocale(LC_ALL, 'C.UTF-8'), fn () => setlocale(LC_NUMERIC, '0')],
        'json-error' => [fn () => json_decode('{'), fn () => json_last_error_msg()],
        'environment' => [fn () => putenv('TENANT=ada'), fn () => getenv('TENANT')],
        'directory' => [fn () => chdir('/'), fn () => getcwd() === '/'],
        'umask' => [fn () => umask(0077), fn () => decoct(umask())],
        'stream-wrapper' => [
            fn () => in_array('left', stream_get_wrappers(), true) || stream_wrapper_register('left', LeftWrapper::class),
            fn () => in_array('left', stream_get_wrappers(), true),
        ],
        'database-variable' => [
            fn () => $database->exec('PRAGMA user_version = 7'),
            fn () => $database->query('PRAGMA user_version')->fetchColumn(),
        ],
        'file-position' => [fn () => fread($file, 7), fn () => ftell($file)],
        'listener' => [
            fn () => $service->listeners[] = fn () => 'heard by ada',
            fn () => array_map(fn (callable $listener) => $listener(), $service->listeners),
        ],
        'header' => [fn () => $service->header = 'ada', fn () => $service->header && header("X-User: $service->header")],
        'status' => [fn () => $service->closed = true, fn () => $service->closed && http_response_code(503)],
        'session' => [fn () => $service->visitor = 'ada', function () use ($service) {
            session_start(['name' => 'VISITOR']);
            $_SESSION['visitor'] = $service->visitor;
        }],
        'file' => [fn () => $service->logged = 'ada', function () use ($service) {
            file_put_contents(__DIR__ . '/var/log', "logged: $service->logged\n", FILE_APPEND);
        }],
    ];
}

/** @return array<string, callable(): mixed> pages that leave nothing */
function clean(): array
{
    return [
        'clock' => fn () => '<p>It is ' . date(DATE_ATOM) . ', or ' . microtime(true) . '</p>',
        'dice' => fn () => '<p>Your number is ' . random_int(1, 6) . ' of 6</p>',
        'form' => fn () => '<form action="/clean/search"><input type="hidden" name="_token" value="' .
            base64_encode(random_bytes(12)) . '"><input name="q" value="tea"></form>',
        'search' => fn () => '<p>' . htmlspecialchars((string) ($_GET['q'] ?? '')) . '</p>',
        'cart' => function () {
            session_start();
            $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
            return "<p>Visit {$_SESSION['visits']}</p>";
        },
        'upload' => function () {
            $name = bin2hex(random_bytes(10));
            file_put_contents(__DIR__ . "/var/$name", date(DATE_ATOM));
            unlink(__DIR__ . "/var/$name");
            return '<p>stored as ' . $name . '</p>';
        },
        'away' => fn () => header('Location: /clean/search?q=away'),
    ];
}

/** A login form with a token; only its POST leaves something behind. */
function login(): string
{
    session_start();
    if ($_SERVER['REQUEST_METHOD'] === 'POST') {
        if (!hash_equals($_SESSION['token'] ?? 'none', (string) ($_POST['_token'] ?? ''))) {
            http_response_code(419);
            return 'token mismatch';
        }
        $_SESSION['user'] = Service::$property = (string) $_POST['user'];
        header('Location: /account', true, 303);
        return 'welcome';
    }
    $_SESSION['token'] = bin2hex(random_bytes(10));
    return "<form method=\"post\"><input type=\"hidden\" name=\"_token\" value=\"$_SESSION[token]\"><input name=\"user\"></form>";
}

function account(): string
{
    session_start();
    return $_SESSION['user'] ?? (http_response_code(403) ? 'not logged in' : '');
}

function answer(): void
{
    global $settings, $nonce;
    $path = (string) parse_url((string) $_SERVER['REQUEST_URI'], PHP_URL_PATH);
    [, $kind, $name] = array_pad(explode('/', $path), 3, '');
    header('X-Powered-By: leaks');
    header('X-Trace: ' . bin2hex(random_bytes(8)));
    if ($path === '/') {
        foreach (array_keys(clean()) as $name) {
            echo "<a href=\"/clean/$name\">$name</a>\n";
        }
        if (getenv('WITHOUT_LEAKS') === false) {
            foreach (['settings', ...array_keys(leaks())] as $name) {
                echo "<a href=\"/leave/$name\">leave</a> <a href=\"/look/$name\">look</a>\n";
            }
        }
        return;
    }
    echo "<h1>$kind $name</h1>\n";
    echo match (true) {
        $kind === 'clean' && isset(clean()[$name]) => clean()[$name](),
        $path === '/nonce' => $nonce,
        $path === '/login' => login(),
        $path === '/account' => account(),
        $path === '/leave/settings' => file_put_contents(__DIR__ . '/var/settings', 'changed'),
        $path === '/look/settings' => $settings,
        $kind === 'leave' && isset(leaks()[$name]) => [leaks()[$name][0](), 'left'][1],
        $kind === 'look' && isset(leaks()[$name]) => json_encode(leaks()[$name][1]()),
        default => http_response_code(404) ? 'not found' : '',
    }, "\n";
}
