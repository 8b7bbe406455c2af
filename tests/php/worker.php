<?php
// A worker script by hand, as FrankenPHP's manual writes one: boots once, then one route for each question of the tests.

final class Application
{
    public int $requests = 0;
    public string $boot;
    /** @var list<mixed> */
    public array $kept = [];

    public function __construct()
    {
        $this->boot = bin2hex(random_bytes(8));
    }

    public function answer(): void
    {
        $this->requests++;
        $path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
        switch ($path) {
            case '/count':
                $this->json(['boot' => $this->boot, 'requests' => $this->requests, 'pid' => getmypid()]);
                break;
            case '/superglobals':
                $this->json([
                    'server' => $_SERVER, 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE, 'files' => $_FILES,
                    'request' => $_REQUEST, 'env' => $_ENV, 'session' => $_SESSION ?? null, 'headers' => getallheaders(),
                    'input' => file_get_contents('php://input'),
                    'filter_get' => filter_input(INPUT_GET, 'a'),
                    'filter_method' => filter_input(INPUT_SERVER, 'REQUEST_METHOD'),
                ]);
                break;
            case '/filter':
                require __DIR__ . '/filter.php';
                break;
            case '/exit':
                echo 'before';
                switch ($_GET['where'] ?? '') {
                    case 'shutdown':
                        register_shutdown_function(static fn () => exit(' in shutdown'));
                        return;
                    case 'fiber':
                        (new Fiber(static fn () => exit(' in fiber')))->start();
                        return;
                    case 'generator':
                        foreach ((static function () { yield 1; exit(' in generator'); })() as $value) {
                            echo $value;
                        }
                        return;
                    case 'output':
                        ob_start(static function (string $text): string { throw new LogicException('in output'); });
                        return;
                    case 'finally':
                        try {
                            exit(' in try');
                        } finally {
                            echo ' never';
                        }
                }
                exit($_GET['text'] ?? 0);
            case '/fatal':
                echo 'before';
                undefined_function();
                // no break
            case '/exception':
                throw new RuntimeException('not caught');
            case '/memory':
                ini_set('memory_limit', '16M');
                $all = [];
                while (true) {
                    $all[] = str_repeat('x', 100000);
                }
                // no break
            case '/timeout':
                set_time_limit(1);
                while (true) {
                }
                // no break
            case '/ini':
                // the last request's state, then this request's own change
                $this->json([
                    'precision' => ini_get('precision'),
                    'memory_limit' => ini_get('memory_limit'),
                    'date.timezone' => ini_get('date.timezone'),
                    'serialize_precision' => ini_get('serialize_precision'),
                    'max_execution_time' => ini_get('max_execution_time'),
                ]);
                ini_set('memory_limit', '77M');
                ini_set('date.timezone', 'Asia/Tokyo');
                ini_set('serialize_precision', '5');
                ini_restore('precision');
                set_time_limit(17);
                break;
            case '/session':
                session_start();
                $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
                $this->json(['id' => session_id(), 'visits' => $_SESSION['visits']]);
                break;
            case '/session-look':
                $this->json(['id' => session_id(), 'status' => session_status(), 'session' => $_SESSION ?? null]);
                break;
            case '/session-handler':
                session_set_save_handler(new MemoryHandler(), true);
                session_start();
                $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
                $this->json(['module' => session_module_name(), 'visits' => $_SESSION['visits']]);
                break;
            case '/session-module':
                $this->json(['module' => session_module_name(), 'handler' => ini_get('session.save_handler')]);
                break;
            case '/output':
                ob_start();
                ob_start(static fn (string $text): string => strtoupper($text));
                echo 'buffered';
                break;
            case '/headers':
                header('X-Once: 1');
                http_response_code(202);
                header_register_callback(static fn () => header('X-Callback: 1'));
                break;
            case '/plain':
                $this->json(['headers' => headers_list(), 'status' => http_response_code(), 'error' => error_get_last()]);
                @trigger_error('left behind');
                break;
            case '/shutdown':
                register_shutdown_function(static function (): void {
                    echo ' from shutdown';
                });
                echo 'from handler';
                break;
            case '/finish':
                echo 'answered';
                frankenphp_finish_request();
                if (isset($_GET['file'])) {
                    file_put_contents($_GET['file'], 'after');
                }
                echo 'dropped';
                break;
            case '/hints':
                header('Link: </style.css>; rel=preload');
                headers_send(103);
                echo 'final';
                break;
            case '/upload':
                $this->json(array_map(static fn (array $file): array => [
                    'path' => $file['tmp_name'], 'size' => $file['size'], 'there' => is_file($file['tmp_name']),
                ], $_FILES));
                break;
            case '/keep-input':
                $this->kept = [fopen('php://input', 'rb')];
                echo stream_get_contents($this->kept[0]);
                break;
            case '/kept-input':
                $this->json(['type' => gettype($this->kept[0] ?? null)]);
                break;
            case '/stream':
                while (ob_get_level() > 0) {
                    ob_end_flush();
                }
                for ($i = 1; $i <= 3; $i++) {
                    echo "chunk $i\n";
                    flush();
                }
                break;
            case '/endless':
                // until the client is gone, or the line ?times; ?ignore goes on to the end
                ignore_user_abort(isset($_GET['ignore']));
                while (ob_get_level() > 0) {
                    ob_end_flush();
                }
                for ($i = 0; $i < (int) ($_GET['times'] ?? 100); $i++) {
                    echo "line $i\n";
                    flush();
                    usleep(10000);
                    $this->kept = [$i, connection_aborted()];
                }
                break;
            case '/kept':
                $this->json($this->kept);
                break;
            case '/stop':
                echo 'stopping';
                $GLOBALS['stop'] = true;
                break;
            case '/nested':
                try {
                    hearth_handle_request(static fn () => null);
                } catch (Error $e) {
                    echo $e->getMessage();
                }
                break;
            case '/memory-usage':
                $this->json(['bytes' => memory_get_usage(), 'resources' => count(get_resources())]);
                break;
            default:
                echo 'hello ', $_GET['name'] ?? 'world', "\n";
        }
    }

    /** @param array<mixed> $value */
    private function json(array $value): void
    {
        header('Content-Type: application/json');
        echo json_encode($value, JSON_INVALID_UTF8_SUBSTITUTE);
    }
}

final class MemoryHandler implements SessionHandlerInterface
{
    /** @var array<string, string> */
    private static array $sessions = [];

    public function open(string $path, string $name): bool
    {
        return true;
    }

    public function close(): bool
    {
        return true;
    }

    public function read(string $id): string|false
    {
        return self::$sessions[$id] ?? '';
    }

    public function write(string $id, string $data): bool
    {
        self::$sessions[$id] = $data;

        return true;
    }

    public function destroy(string $id): bool
    {
        unset(self::$sessions[$id]);

        return true;
    }

    public function gc(int $max_lifetime): int|false
    {
        return 0;
    }
}

ini_set('date.timezone', 'Europe/Berlin');
ini_set('precision', '9');
if (getenv('BOOT_SAVE_HANDLER')) {
    session_set_save_handler(new MemoryHandler(), true);
}
if (getenv('BOOT_FAILS')) {
    throw new LogicException('the application cannot boot');
}
$application = new Application();
$stop = false;
$limit = (int) (getenv('MAX_REQUESTS') ?: 0);
$done = 0;
do {
    $running = frankenphp_handle_request(static function () use ($application): void {
        $application->answer();
    });
    $done++;
} while ($running && !$stop && ($limit === 0 || $done < $limit));
