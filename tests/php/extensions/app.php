<?php
// The application that scripts/test-extensions serves with one extension: `?do=use` exercises it, `?do=change` changes what it can of the
// extension's state, `?do=look` says what a request finds of that. Included by a front controller and by a worker script, which set $extension.
// Answers are JSON; an answer with `error` has status 500.

final class Left
{
    /** @var array<string, mixed> what a request leaves in a static property */
    public static array $behind = [];
}

/** @return array{use?: Closure(): mixed, change?: Closure(): mixed, look?: Closure(): mixed, shared?: string} */
function probe_of(string $extension): array
{
    $probes = (require __DIR__ . '/probes_php.php') + (require __DIR__ . '/probes_pecl.php');
    return $probes[defined('PROBE') ? PROBE : $extension] ?? [];
}

/** Uses the extension. The value is the same whenever nothing was left behind. */
function use_extension(string $extension): mixed
{
    $probe = probe_of($extension);
    if (isset($probe['use'])) {
        return $probe['use']();
    }
    return (new ReflectionExtension($extension))->getName();
}

/** Changes every setting of the extension that a script may change, and leaves values of PHP and of the extension behind. */
function change_extension(string $extension): void
{
    Left::$behind['value'] = true;
    $GLOBALS['left_behind'] = true;
    defined('LEFT_BEHIND') || define('LEFT_BEHIND', true);
    foreach (@ini_get_all($extension) ?: [] as $name => $setting) {
        if ($setting['access'] & INI_USER) {
            $value = (string) $setting['local_value'];
            @ini_set($name, match (true) {
                $value === '1' => '0',
                is_numeric($value) => (string) ($value + 1),
                default => '1',
            });
        }
    }
    $change = probe_of($extension)['change'] ?? null;
    $change === null || Left::$behind['own'] = $change();
}

/** @return array<string, mixed> what a request finds of the state of PHP, the extension and the process */
function look_at(string $extension): array
{
    $descriptors = [];
    foreach (scandir('/proc/self/fd') ?: [] as $entry) {
        $target = @readlink("/proc/self/fd/$entry");
        $target === false || str_starts_with($target, '/proc/') || $descriptors[] = preg_replace('/\d+/', 'N', $target);
    }
    sort($descriptors);
    $look = probe_of($extension)['look'] ?? null;
    return [
        'own' => $look === null ? null : $look(),
        'ini' => @ini_get_all($extension, false) ?: [],
        'static' => Left::$behind !== [],
        'global' => isset($GLOBALS['left_behind']),
        'constant' => defined('LEFT_BEHIND'),
        'resources' => count(get_resources()),
        'descriptors' => $descriptors,
        'threads' => count(glob('/proc/self/task/*') ?: []),
    ];
}

function answer(string $extension): void
{
    header('Content-Type: application/json');
    try {
        $answer = match ($_GET['do'] ?? 'use') {
            'use' => ['value' => use_extension($extension)],
            'change' => ['value' => change_extension($extension)],
            'look' => ['value' => look_at($extension)],
        };
    } catch (Throwable $thrown) {
        http_response_code(500);
        $answer = ['error' => $thrown::class . ': ' . $thrown->getMessage()];
    }
    echo json_encode($answer + ['pid' => getmypid()], JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR);
}
