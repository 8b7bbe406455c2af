<?php
// Requests that damage the booted application in every way that PHP and a C library know: `?do=NAME&n=0..3`; `?names` lists them; `?look`
// describes the application and its process as text that must never change. The library beside this script is made of adversary.c.

declare(strict_types=1);

$library = FFI::cdef(
    'int adversary_boot(void); int adversary_start(void); int adversary_do(const char *, int);
    const char *adversary_name(int); const char *adversary_look(void);',
    __DIR__ . '/adversary.so',
);
if ($library->adversary_boot() !== 0) {
    fwrite(STDERR, "the adversary cannot boot\n");
    exit(1);
}
hearth_on_worker_start(static function () use ($library): void {
    $library->adversary_start();
});

final class Boot
{
    public static int $calls = 0;
    /** @var list<mixed> */
    public static array $list = [1, 'two', [3.0]];
    public int $changed = 0;
}

function counted(): int
{
    static $count = 0;
    return ++$count;
}

$boot = new Boot();
$big = str_repeat('boot', 1 << 20);
$tree = array_map(static fn (int $i): array => ['id' => $i, 'name' => "name $i"], range(1, 2000));
$handle = tmpfile();
fwrite($handle, str_repeat('0123456789', 100));
fseek($handle, 50);
setlocale(LC_ALL, 'C');
date_default_timezone_set('UTC');

$look = static function () use ($library, $boot, &$big, &$tree, $handle): string {
    $facts = [
        'objects' => [$boot->changed, Boot::$calls, Boot::$list, counted()],
        'big' => md5((string)$big),
        'tree' => md5(serialize($tree)),
        'handle' => is_resource($handle) ? ftell($handle) : 'closed',
        'globals' => array_keys($GLOBALS),
        'ini' => md5(serialize(ini_get_all(null, false))),
        'names' => [count(get_declared_classes()), count(get_defined_functions()['user']), count(get_defined_constants())],
        'autoloaders' => count(spl_autoload_functions()),
        'wrappers' => stream_get_wrappers(),
        'filters' => stream_get_filters(),
        'included' => count(get_included_files()),
        'buffers' => ob_get_level(),
        'locale' => setlocale(LC_ALL, '0'),
        'timezone' => date_default_timezone_get(),
        'directory' => getcwd(),
        'umask' => umask(),
        'session' => session_status() . session_id(),
        'error' => error_get_last(),
        'reporting' => error_reporting(),
        'gc' => gc_enabled(),
        'memory' => memory_get_usage(),
        'resources' => count(get_resources()),
    ];
    return json_encode($facts, JSON_PRETTY_PRINT | JSON_THROW_ON_ERROR) . "\n" . $library->adversary_look();
};

/** @var array<string, Closure(int): void> $damages */
$damages = [
    'php_values' => static function (int $n) use ($boot): void {
        $boot->changed += $n + 1;
        Boot::$calls++;
        Boot::$list[] = $n;
        counted();
        $GLOBALS["new_$n"] = $n;
    },
    'php_big_freed' => static function (int $n) use (&$big): void {
        $big = null;
        if ($n % 2) {
            $big = str_repeat('y', 3 << 20);
        }
    },
    'php_tree' => static function (int $n) use (&$tree): void {
        foreach ($tree as &$node) {
            $node['name'] .= $n;
        }
        array_splice($tree, 100, 500);
    },
    'php_arrays' => static function (int $n): void {
        $list = [];
        for ($i = 0; $i < 50000; $i++) {
            $list[] = [$i, $n];
        }
    },
    'php_huge' => static function (int $n): void {
        $keep = [];
        for ($i = 0; $i < 3 + $n; $i++) {
            $keep[] = str_repeat('h', (5 << 20) + $i * 4096);
        }
    },
    'php_definitions' => static function (int $n): void {
        eval("function defined_$n() {} class Defined$n { public static \$n = $n; } const DEFINED_$n = $n;");
        spl_autoload_register(static function (string $name): void {
        });
        define("ALSO_$n", $n);
    },
    'php_settings' => static function (int $n): void {
        ini_set('memory_limit', (100 + $n) . 'M');
        ini_set('precision', '5');
        set_include_path('/tmp');
        error_reporting(0);
        gc_disable();
        if (function_exists('mb_internal_encoding')) {
            mb_internal_encoding('ISO-8859-1');
        }
        set_error_handler(static fn (): bool => true);
        set_exception_handler(static function (): void {
        });
        setlocale(LC_ALL, 'C.UTF-8');
        date_default_timezone_set('Asia/Tokyo');
        chdir('/tmp');
        umask(0);
        putenv("ADVERSARY_$n=1");
        set_time_limit(100 + $n);
        mt_srand($n);
    },
    'php_streams' => static function (int $n) use ($handle): void {
        fseek($handle, $n);
        fwrite($handle, 'overwritten');
        fopen('/etc/passwd', 'r');
        stream_wrapper_unregister('data');
        stream_filter_append($handle, 'string.rot13');
        $GLOBALS['left'] = [tmpfile(), opendir('/'), stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0)];
    },
    'php_handle_closed' => static function (int $n) use ($handle): void {
        fclose($handle);
    },
    'php_buffers' => static function (int $n): void {
        ob_start();
        ob_start(static fn (string $output): string => $output);
        echo "buffered $n";
    },
    'php_fiber' => static function (int $n): void {
        $fiber = new Fiber(static function (): void {
            Fiber::suspend();
        });
        $fiber->start();
        $GLOBALS['fiber'] = $fiber;
        $GLOBALS['generator'] = (static function () {
            yield 1;
            yield 2;
        })();
        $GLOBALS['generator']->current();
    },
    'php_session' => static function (int $n): void {
        session_start();
        $_SESSION['n'] = $n;
    },
    'php_processes' => static function (int $n): void {
        shell_exec('true');
        $pipes = [];
        $GLOBALS['process'] = proc_open(['sleep', '0.05'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
        $GLOBALS['pipes'] = $pipes;
    },
    'php_cycles' => static function (int $n): void {
        for ($i = 0; $i < 12000; $i++) {
            $object = new stdClass();
            $object->self = $object;
        }
    },
    'php_exit' => static function (int $n): void {
        echo 'exit';
        exit($n);
    },
    'php_exception' => static function (int $n): void {
        throw new RuntimeException("exception $n");
    },
    'php_fatal' => static function (int $n): void {
        ('no_such_function')($n);
    },
    'php_memory_limit' => static function (int $n): void {
        ini_set('memory_limit', '32M');
        $list = [];
        while (true) {
            $list[] = str_repeat('m', 100000 + $n);
        }
    },
    'php_shutdown' => static function (int $n): void {
        register_shutdown_function(static function (): void {
            Boot::$calls += 100;
        });
        $GLOBALS['destructed'] = new class () {
            public function __destruct()
            {
                Boot::$calls += 1000;
            }
        };
    },
];

while (
    hearth_handle_request(static function () use ($library, $look, $damages): void {
        if (isset($_GET['look'])) {
            echo $look();
            return;
        }
        if (isset($_GET['names'])) {
            $names = array_keys($damages);
            for ($i = 0; ($name = $library->adversary_name($i)) !== null; $i++) {
                $names[] = is_string($name) ? $name : FFI::string($name);
            }
            echo json_encode($names);
            return;
        }
        $name = (string)$_GET['do'];
        $n = (int)($_GET['n'] ?? 0);
        if (isset($damages[$name])) {
            $damages[$name]($n % 4);
        } elseif ($library->adversary_do($name, $n) !== 0) {
            http_response_code(404);
        }
        echo 'done';
    })
) {
}
