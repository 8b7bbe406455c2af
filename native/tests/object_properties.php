<?php

/*
 * hearth_remember_properties() and hearth_put_back_properties(): php -d extension=hearth-8.x.so object_properties.php
 */

declare(strict_types=1);

$passed = 0;
$failed = 0;

function check(string $what, mixed $expected, mixed $found): void
{
    global $passed, $failed;
    if ($expected === $found) {
        $passed++;

        return;
    }
    $failed++;
    echo "FAILED: {$what}: ", var_export($found, true), ' in place of ', var_export($expected, true), "\n";
}

class Elder
{
    private array $hidden = ['elder'];

    public function hide(string $value): void
    {
        $this->hidden[] = $value;
    }

    public function hidden(): array
    {
        return $this->hidden;
    }
}

#[AllowDynamicProperties]
class Service extends Elder
{
    public static int $count = 0;
    public int $number = 1;
    public ?string $text = 'text';
    public float $nan = NAN;
    public array $list = ['a', 'b'];
    public array $map = ['one' => 1, 'two' => [2], 'three' => null];
    public array $empty = [];
    public array $holes = [];
    public ?object $object = null;
    public int $late;
    public readonly int $once;
    protected array $inner = ['x' => 'y'];
    private array $own = ['k' => 'v'];

    public function changed(): self
    {
        $this->number = 2;
        $this->text = null;
        $this->list[] = 'c';
        $this->map['two'][] = 3;
        $this->map['four'] = 4;
        $this->empty[] = 'no longer';
        $this->inner['x'] = 'z';
        $this->inner['more'] = str_repeat('m', 9);
        $this->own = [];
        $this->object = new stdClass();
        $this->late ??= 5;

        return $this;
    }

    public function all(): array
    {
        return get_object_vars($this);
    }
}

final class Witness
{
    public function __construct(private readonly Closure $say)
    {
    }

    public function __destruct()
    {
        ($this->say)();
    }
}

/** Every array's order and next index count, too. */
function facts(Service $service): string
{
    $copy = $service->all();
    unset($copy['late'], $copy['nan']);
    foreach ($copy as &$value) {
        if (is_array($value)) {
            $value[] = 'next';
        }
    }

    return var_export($copy, true);
}

hearth_put_back_properties();
$service = new Service();
$service->holes = ['a' => 1, 'b' => 2, 'c' => 3];
unset($service->holes['b']);
$service->object = new ArrayObject([1]);
$service->dynamic = ['d' => str_repeat('d', 3)];
$before = facts($service);
$object = $service->object;
hearth_remember_properties([$service, 'no object', 7]);
check('nothing changes by itself', $before, facts($service));

for ($round = 0; $round < 5; $round++) {
    $service->changed()->hide('kept');
    $service->dynamic['e'] = 'e';
    $service->holes['d'] = 4;
    hearth_put_back_properties();
    check("round {$round}: as before", $before, facts($service));
    check("round {$round}: the same object", $object, $service->object);
}
check("a parent's private property is not the class's", 6, count($service->hidden()));
check('what was not initialised stays as it is', 5, $service->late);
check('not a number', true, is_nan($service->nan));

// Each kind of change of an array, also one after another: from a shared array, and from the copy that a request has made.
$changes = [
    'value' => static fn (array &$map) => $map['one'] = 'other',
    'value of another type' => static fn (array &$map) => $map['three'] = false,
    'nested' => static fn (array &$map) => $map['two']['deep']['er'] = 1,
    'new element' => static fn (array &$map) => $map["new"] = 1,
    'new index' => static fn (array &$map) => $map[] = 1,
    'large index' => static fn (array &$map) => $map[99999] = 1,
    'element gone' => static function (array &$map): void { unset($map['one']); },
    'last element gone' => static function (array &$map): void { unset($map['three']); },
    'gone and back' => static function (array &$map): void { unset($map['one']); $map['one'] = 1; },
    'missing element gone' => static function (array &$map): void { unset($map['missing']); },
    'all gone' => static fn (array &$map) => $map = [],
    'a list' => static fn (array &$map) => $map = [1, 2, 3, 4],
    'sorted' => static fn (array &$map) => krsort($map),
    'put before' => static fn (array &$map) => $map = ['zero' => 0] + $map,
    'reference to an element' => static function (array &$map): void { static $kept; $kept = &$map['one']; $kept = 'by reference'; },
    'pointer' => static fn (array &$map) => end($map),
    'a thousand' => static function (array &$map): void { for ($i = 0; $i < 1000; $i++) { $map["k{$i}"] = $i; } },
    'in itself' => static fn (array &$map) => $map['self'] = $map,
    'walked' => static function (array &$map): void { foreach ($map as $key => &$value) { $value = $key; } },
];
foreach ($changes as $first => $one) {
    foreach ($changes as $second => $other) {
        foreach ([$one, $other] as $change) {
            $change($service->map);
            $change($service->dynamic);
            $change($service->holes);
            hearth_put_back_properties();
            check("{$first}, {$second}", $before, facts($service));
            check("{$first}, {$second}: current", 1, current($service->map));
        }
    }
}

// A copy that others hold is theirs.
$service->map['four'] = 4;
$copy = $service->map;
hearth_put_back_properties();
check('a copy keeps its elements', ['one' => 1, 'two' => [2], 'three' => null, 'four' => 4], $copy);
check('and the property has its own', $before, facts($service));
$service->map['four'] = 4;
foreach ($service->map as &$value) {
    hearth_put_back_properties();
    break;
}
unset($value);
check('in the middle of a loop', $before, facts($service));

// A property that is a reference stays one.
$reference = &$service->number;
$reference = 10;
hearth_put_back_properties();
check('through a reference', [1, 1], [$reference, $service->number]);
unset($reference);
unset($service->text, $service->dynamic);
hearth_put_back_properties();
check('what was removed is back', $before, facts($service));

// Destructors find everything restored, and may call what restores.
$found = [];
$service->map['witness'] = new Witness(static function () use ($service, &$found): void {
    hearth_put_back_properties();
    $found[] = facts($service);
    $service->number = 11;
});
$service->text = 'changed';
$service->list = [new Witness(static function () use ($service, &$found): void {
    $found[] = facts($service);
})];
hearth_put_back_properties();
check('destructors ran', 2, count($found));
check('the first found everything restored', $before, $found[0]);
check('what a destructor changes stays changed until the next time', 11, $service->number);
hearth_put_back_properties();
check('and then goes', $before, facts($service));

// Memory of a large array is not kept.
hearth_put_back_properties();
$memory = memory_get_usage();
for ($i = 0; $i < 200000; $i++) {
    $service->map["large{$i}"] = $i;
}
hearth_put_back_properties();
check('a large table is freed', true, memory_get_usage() - $memory < 100000);

// Others in place of the first.
$service->number = 77;
$other = new Service();
hearth_remember_properties([$other]);
$other->number = 5;
hearth_put_back_properties();
check('the first is left alone', 77, $service->number);
check('the other is restored', 1, $other->number);
$gone = WeakReference::create($other);
unset($other);
check('a remembered object lives', true, $gone->get() !== null);
hearth_remember_properties([]);
check('until another list is', null, $gone->get());

echo "{$passed} passed, {$failed} failed\n";
exit($failed === 0 ? 0 : 1);
