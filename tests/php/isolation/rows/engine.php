<?php

declare(strict_types=1);

// PHP's own state: settings, handlers, last errors.
Row::$current = 'PHP';

ini_set('precision', '9');
Row::add('setting', function (): void {
    foreach (['memory_limit' => '123M', 'include_path' => '/nowhere', 'pcre.backtrack_limit' => '17', 'user_agent' => 'left'] as $name => $value) {
        ini_set($name, $value);
    }
}, fn () => array_map(ini_get(...), ['memory_limit', 'include_path', 'pcre.backtrack_limit', 'user_agent']));
Row::add('setting of the boot', fn () => ini_set('precision', '3'), fn () => ini_get('precision'));
Row::add('setting of the boot taken back', fn () => ini_restore('precision'), fn () => [ini_get('precision'), (string) (1 / 3)]);
Row::add('error_reporting()', fn () => error_reporting(E_ERROR), fn () => error_reporting());
Row::add('set_time_limit()', fn () => set_time_limit(17), fn () => ini_get('max_execution_time'));
Row::add('ignore_user_abort()', fn () => ignore_user_abort(true), fn () => ignore_user_abort());
Row::add('gc_disable()', fn () => gc_disable(), fn () => gc_enabled());

set_error_handler('of_boot_handler', E_USER_NOTICE);
function of_boot_handler(): bool
{
    return false;
}
function handler_now(): mixed
{
    $handler = set_error_handler(null);
    restore_error_handler();
    return is_string($handler) || $handler === null ? $handler : get_debug_type($handler);
}
Row::add('error handler', fn () => set_error_handler(static fn (): bool => false), fn () => handler_now());
Row::add('error handler of the boot taken away', function (): void {
    restore_error_handler();
    restore_error_handler();
}, fn () => handler_now());
Row::add('exception handler', fn () => set_exception_handler(static fn () => null), function (): bool {
    $handler = set_exception_handler(null);
    restore_exception_handler();
    return $handler !== null;
});
// deprecated since, and a setting like others
Row::add('assert_options() callback', fn () => assert_options(ASSERT_CALLBACK, 'strlen'), fn () => assert_options(ASSERT_CALLBACK), able: PHP_VERSION_ID < 80300);
Row::add('tick function', function (): void {
    register_tick_function(ticked(...), 1);
}, function (): int {
    $before = ticked(0);
    eval('declare(ticks=1) { $a = 1; $b = 2; }');
    return ticked(0) - $before;
});
function ticked(int $by): int
{
    static $count = 0;
    return $count += $by;
}

Row::add('time zone', fn () => date_default_timezone_set('Asia/Tokyo'), fn () => date_default_timezone_get());
Row::add('locale', fn () => setlocale(LC_ALL, 'C.UTF-8'), fn () => [setlocale(LC_ALL, '0'), setlocale(LC_CTYPE, '0')]);
Row::add('mt_srand()', fn () => mt_srand(1), function (): bool {
    $engine = new Random\Engine\Mt19937(1);
    $first = array_map(fn () => unpack('V', $engine->generate())[1] >> 1, range(1, 50));
    return in_array(mt_rand(), $first, true);
});

Row::add('error_get_last()', fn () => @trigger_error('left behind'), fn () => error_get_last()['message'] ?? null);
Row::add('json_last_error()', fn () => json_encode("\xff"), fn () => json_last_error());
Row::add('preg_last_error()', fn () => preg_match('/^(?:.)*$/u', "\xff"), fn () => preg_last_error());
Row::add('spl_autoload_extensions()', fn () => spl_autoload_extensions('.left'), fn () => spl_autoload_extensions());
Row::add('result of stat()', function (): void {
    touch($file = place('stat'));
    is_file($file);
    // PHP 8.4's shell_exec() would clear the cache.
    proc_close(proc_open(['rm', $file], [], $pipes));
}, fn () => is_file(place('stat')));
Row::add('peak of memory', fn () => strlen(str_repeat('x', 60_000_000)), fn () => memory_get_peak_usage() > 40_000_000);
Row::add('huge blocks of memory', function (): void {
    for ($i = 0; $i < 3; $i++) {
        Kept::$things['huge'][] = str_repeat('x', 9_000_000);
    }
}, fn () => intdiv(memory_get_usage(), 5_000_000));
Row::add('open resources', function (): void {
    for ($i = 0; $i < 20; $i++) {
        Kept::$things[] = fopen('php://memory', 'w');
    }
}, fn () => count(get_resources()));
