<?php

/*
 * Runs the subjects of curl-handle-reuse-laravel-octane's own benchmark, its files unchanged, and prints a JSON object: nanoseconds and bytes of each.
 *
 *     php subjects.php FOLDER REVOLUTIONS WAY [SUBJECT...]
 *
 * FOLDER: a copy of that package. WAY: `itself` (what the file says), `package` (hearth/laravel's service provider in place of its own).
 * Without PHPBench: its attributes say which method comes before and how often a subject runs, and are read here; memory is the peak, as there.
 */

declare(strict_types=1);

[, $folder, $revolutions, $way] = $argv;
require __DIR__ . '/application.php';

if ($way === 'package') {
    putenv('HEARTH_EGRESS=' . getenv('BROKER'));
    $GLOBALS['providers'] = [Hearth\Laravel\HearthServiceProvider::class];
}
$class = new ReflectionClass(Cego\CurlHandleReuseLaravelOctane\Tests\Benchmark\HttpReusedCurlHandleBench::class);
$found = [];
foreach ($class->getMethods(ReflectionMethod::IS_PUBLIC) as $method) {
    $subject = $method->getName();
    if (!str_starts_with($subject, 'bench') || (array_slice($argv, 4) && !in_array($subject, array_slice($argv, 4), true))) {
        continue;
    }
    $before = [];
    $said = 0;
    foreach ($method->getAttributes() as $attribute) {
        // Read, not made: PHPBench's classes are not here.
        match ($attribute->getName()) {
            'PhpBench\Attributes\BeforeMethods' => $before = (array) $attribute->getArguments()[0],
            'PhpBench\Attributes\Revs' => $said = (int) $attribute->getArguments()[0],
            default => null,
        };
    }
    $times = $revolutions === '-' ? $said : (int) $revolutions;
    $bench = $class->newInstance();
    foreach ($before as $name) {
        $bench->$name();
    }
    $began = hrtime(true);
    for ($n = 0; $n < $times; $n++) {
        $bench->$subject();
    }
    $found[$subject] = ['ns' => intdiv(hrtime(true) - $began, max(1, $times)), 'bytes' => memory_get_peak_usage()];
}
echo json_encode($found, JSON_THROW_ON_ERROR), "\n";
