<?php

declare(strict_types=1);

// Requests that end early. Each leaves something behind first, and takes an object with it whose destructor is then due.
Row::$current = 'Requests that end early';

final class Ending
{
    public static int $count = 0;

    public static function begin(): void
    {
        self::$count++;
        Kept::$things['ending'] = new self();
        ob_start();
        putenv('ENDING=' . self::$count);
        ini_set('precision', '5');
    }

    /** @return array<mixed> */
    public static function look(): array
    {
        return [self::$count, getenv('ENDING'), isset(Kept::$things['ending']), ini_get('precision')];
    }
}

$end = static function (string $title, Closure $how, int $status): void {
    Row::add($title, function () use ($how): void {
        Ending::begin();
        $how();
    }, Ending::look(...), $status);
};
$end('exit()', fn () => exit(), 200);
$end('exit() deep in a callback', fn () => array_map(static fn () => usort($GLOBALS['of_boot'], static fn () => exit('bye')), [1]), 200);
$end('uncaught exception', fn () => throw new LogicException('not caught'), 500);
$end('fatal error', fn () => undefined_function(), 500);
$end('error while compiling', fn () => eval('class Ending { }'), 500);
$end('user error', fn () => trigger_error('the end', E_USER_ERROR), 500);
$end('memory limit', function (): void {
    ini_set('memory_limit', '16M');
    $all = [];
    while (true) {
        $all[] = str_repeat('x', 100_000);
    }
}, 500);
$end('time limit', function (): void {
    set_time_limit(1);
    while (true) {
    }
}, 500);
$end('deep recursion', function (): void {
    $deep = static function (int $n) use (&$deep): int {
        return $n === 0 ? 0 : 1 + $deep($n - 1);
    };
    $deep(50_000);
    exit();
}, 200);
$end('exit() in a fiber', function (): void {
    $fiber = new Fiber(static fn () => exit());
    $fiber->start();
}, 200);
$end('exit() in a generator', function (): void {
    foreach ((static function (): Generator {
        yield 1;
        exit();
    })() as $value) {
    }
}, 200);
$end('error in a shutdown function', function (): void {
    register_shutdown_function(static fn () => undefined_function());
    exit();
}, 500);
$end('error in a destructor', function (): void {
    Kept::$things['last'][] = new class () {
        public function __destruct()
        {
            throw new LogicException('from a destructor');
        }
    };
    exit();
}, 500);
