<?php
// Everything a request can change that outlives it in a process that is not restored.
final class Counter
{
    public static int $count = 0;
}

return static function (bool $change): void {
    if ($change) {
        Counter::$count++;
        $GLOBALS['left_behind'] = 'changed';
        defined('LEFT_BEHIND') || define('LEFT_BEHIND', true);
        ini_set('memory_limit', '123M');
        ini_set('precision', '5');
        ini_set('display_errors', '1');
        ini_set('include_path', '/nowhere');
        error_reporting(E_ERROR);
        date_default_timezone_set('Asia/Tokyo');
        setlocale(LC_ALL, 'C.UTF-8');
        mb_internal_encoding('ISO-8859-1');
        set_time_limit(17);
        ignore_user_abort(true);
        putenv('LEFT_BEHIND=environment');
        $_ENV['LEFT_BEHIND'] = 'environment';
        $_SERVER['LEFT_BEHIND'] = 'server';
        $_GET['left_behind'] = 'get';
        chdir('/');
        umask(0077);
        set_error_handler(static fn (): bool => true);
        set_exception_handler(static function (): void {
        });
        spl_autoload_register(static function (): void {
        });
        stream_wrapper_register('left', stdClass::class);
        stream_context_set_default(['http' => ['user_agent' => 'left']]);
        @assert_options(ASSERT_ACTIVE, 0);
        libxml_use_internal_errors(true);
        mt_srand(1);
        ob_start();
        header('X-Left: behind');
        @trigger_error('left behind');
        register_shutdown_function(static function (): void {
        });
    }
    $handler = set_error_handler(null);
    restore_error_handler();
    $exceptionHandler = set_exception_handler(null);
    restore_exception_handler();
    $seen = [
        'pid' => getmypid(),
        'error' => error_get_last()['message'] ?? null,
        'ini' => array_map(ini_get(...), [
            'memory_limit', 'precision', 'display_errors', 'include_path', 'error_reporting', 'max_execution_time',
            'ignore_user_abort', 'date.timezone', 'mbstring.internal_encoding',
        ]),
        'reporting' => error_reporting(),
        'timezone' => date_default_timezone_get(),
        'locale' => setlocale(LC_ALL, '0'),
        'encoding' => mb_internal_encoding(),
        'ignore_user_abort' => ignore_user_abort(),
        'getenv' => getenv('LEFT_BEHIND'),
        'environ' => str_contains((string) shell_exec('env'), 'LEFT_BEHIND'),
        'env' => $_ENV['LEFT_BEHIND'] ?? null,
        'server' => $_SERVER['LEFT_BEHIND'] ?? null,
        'get' => $_GET['left_behind'] ?? null,
        'directory' => getcwd(),
        'umask' => umask(),
        'error handler' => $handler === null,
        'exception handler' => $exceptionHandler === null,
        'autoloaders' => count(spl_autoload_functions()),
        'wrapper' => in_array('left', stream_get_wrappers(), true),
        'context' => stream_context_get_options(stream_context_get_default()),
        'assert' => @assert_options(ASSERT_ACTIVE),
        'libxml' => libxml_use_internal_errors(),
        'seeded' => mt_rand() === 895547922,
        'buffers' => ob_get_level(),
        'fields' => headers_list(),
        'static' => Counter::$count,
        'global' => $GLOBALS['left_behind'] ?? null,
        'constant' => defined('LEFT_BEHIND'),
    ];
    header('Content-Type: application/json');
    echo json_encode($seen, JSON_THROW_ON_ERROR);
};
