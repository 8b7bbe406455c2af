<?php

declare(strict_types=1);

// A program's state in PHP's own variables.
Row::$current = 'The program';

function counted(int $by): int
{
    static $count = 0;
    return $count += $by;
}
Row::add('static variable of a function', fn () => counted(1), fn () => counted(0));

class Counter
{
    public static int $count = 0;
    /** @var array<int> */
    public array $list = [1, 2, 3];
    public ?object $owner = null;

    public function counted(int $by): int
    {
        static $count = 0;
        return $count += $by;
    }

    public static function late(int $by): int
    {
        return static::$count += $by;
    }
}
class ChildCounter extends Counter
{
    public static int $count = 10;
}
Row::add('static variable of a method', fn () => (new Counter())->counted(1), fn () => (new Counter())->counted(0));
Row::add('static property', fn () => Counter::late(1), fn () => Counter::$count);
Row::add('static property of a subclass', fn () => ChildCounter::late(1), fn () => ChildCounter::$count);

Row::add('static variable of a closure', ...(static function (): array {
    $closure = static function (int $by): int {
        static $count = 0;
        return $count += $by;
    };
    return [fn () => $closure(1), fn () => $closure(0)];
})());

$GLOBALS['of_boot'] = ['a' => 1, 'b' => 2, 'c' => 3];
Row::add('global variable', fn () => $GLOBALS['left_behind'] = 'yes', fn () => $GLOBALS['left_behind'] ?? null);
Row::add('global array of the boot', function (): void {
    $GLOBALS['of_boot'][] = 4;
    unset($GLOBALS['of_boot']['a']);
}, fn () => $GLOBALS['of_boot'] ?? null);
Row::add('position in an array of the boot', fn () => next($GLOBALS['of_boot']), fn () => current($GLOBALS['of_boot']));
Row::add('reference into an array of the boot', function (): void {
    $reference = &$GLOBALS['of_boot']['b'];
    $reference = 'changed';
}, fn () => $GLOBALS['of_boot']['b']);

$counter = new Counter();
Row::add('property of an object of the boot', function () use ($counter): void {
    $counter->list[] = 4;
    $counter->owner = new stdClass();
}, fn () => [count($counter->list), $counter->owner !== null]);

#[AllowDynamicProperties]
final class Open
{
}
$open = new Open();
Row::add('property added to an object of the boot', fn () => $open->added = 'yes', fn () => $open->added ?? null);

$storage = new SplObjectStorage();
Row::add('SplObjectStorage of the boot', fn () => $storage->attach(new stdClass()), fn () => count($storage));

$map = new WeakMap();
$map[$counter] = 0;
Row::add('WeakMap of the boot', function () use ($map, $counter): void {
    $map[$counter]++;
    $map[Kept::$things[] = new stdClass()] = 1;
}, fn () => [count($map), $map[$counter]]);

$weak = new stdClass();
Row::add('WeakReference of a request', function () use ($weak): void {
    Kept::$things[] = $object = new stdClass();
    $weak->reference = WeakReference::create($object);
}, fn () => isset($weak->reference) && $weak->reference->get() !== null);

$queue = new SplQueue();
$heap = new SplMinHeap();
Row::add('SPL structures of the boot', function () use ($queue, $heap): void {
    $queue->enqueue(str_repeat('x', 1000));
    $heap->insert(count($heap));
}, fn () => [count($queue), count($heap)]);

$generator = (static function (): Generator {
    for ($i = 1;; $i++) {
        yield $i;
    }
})();
$generator->current();
Row::add('generator of the boot', fn () => $generator->next(), fn () => $generator->current());
Row::add('generator left unfinished', function (): void {
    $left = (static function (): Generator {
        try {
            yield 1;
        } finally {
            Counter::late(1000);
        }
    })();
    Kept::$things['generator'] = [$left, $left->current()];
}, fn () => isset(Kept::$things['generator']));

$resumed = new stdClass();
$resumed->times = 0;
$fiber = new Fiber(static function () use ($resumed): void {
    for (;;) {
        Fiber::suspend();
        $resumed->times++;
    }
});
$fiber->start();
Row::add('fiber of the boot', fn () => $fiber->resume(), fn () => $resumed->times);
Row::add('fiber left suspended', function (): void {
    $left = new Fiber(static function (): void {
        Fiber::suspend(str_repeat('x', 100_000));
    });
    $left->start();
    Kept::$things['fiber'][] = $left;
}, fn () => isset(Kept::$things['fiber']));

Row::add('constant', fn () => defined('LEFT_BEHIND') || define('LEFT_BEHIND', 1), fn () => defined('LEFT_BEHIND'));
Row::add('function declared', function (): void {
    function_exists('declared') || eval('function declared() { static $n = 0; return ++$n; }');
    declared();
}, fn () => function_exists('declared') ? (new ReflectionFunction('declared'))->getStaticVariables()['n'] : null);
Row::add('class declared', function (): void {
    class_exists('Declared', false) || eval('class Declared extends Counter { public static $n = 0; const C = [1]; }');
    Declared::$n++;
}, fn () => class_exists('Declared', false) ? Declared::$n : null);
Row::add('enum declared', fn () => enum_exists('Suit', false) || eval('enum Suit: string { case Hearts = "h"; }'), fn () => enum_exists('Suit', false));
Row::add('class alias', fn () => class_exists('Alias', false) || class_alias(Counter::class, 'Alias'), fn () => class_exists('Alias', false));

$autoloader = static function (string $class): void {
    if (is_file($file = place("late/$class.php"))) {
        require $file;
    }
};
spl_autoload_register($autoloader);
Row::add('class loaded by the autoloader', function (): void {
    (new Late())->visit();
}, fn () => class_exists('Late', false) ? [Late::$count, count(class_implements('Late'))] : null);
Row::add('autoloader', fn () => spl_autoload_register(static fn () => null), fn () => count(spl_autoload_functions()));
Row::add('autoloader of the boot taken away', fn () => spl_autoload_unregister($autoloader), fn () => in_array($autoloader, spl_autoload_functions(), true));
Row::add('file included once', fn () => require_once place('late/included.php'), fn () => [count(get_included_files()), defined('INCLUDED')]);

// The number of the next object: leftover objects would raise it.
Row::add('numbers of objects', function (): void {
    for ($i = 0; $i < 1000; $i++) {
        Kept::$things[] = new stdClass();
    }
}, fn () => spl_object_id(new stdClass()));
Row::add('cycles for the collector', function (): void {
    for ($i = 0; $i < 500; $i++) {
        $object = new stdClass();
        $object->self = $object;
    }
    gc_collect_cycles();
}, fn () => gc_status()['runs'] + gc_status()['collected']);

$engine = new Random\Engine\Mt19937(7);
Row::add('Random\Engine of the boot', fn () => $engine->generate(), fn () => bin2hex((clone $engine)->generate()));
