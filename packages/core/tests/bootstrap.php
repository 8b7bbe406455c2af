<?php

/** Loads the packages and the frameworks that Debian has, without Composer. HEARTH_LIBRARIES: another place than /usr/share/php. */

declare(strict_types=1);

// Debian's frameworks are older than its PHP.
error_reporting(E_ALL & ~E_DEPRECATED);
// A test itself decides which way its calls go.
foreach (['HEARTH_EGRESS', 'http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'all_proxy', 'ALL_PROXY', 'no_proxy', 'NO_PROXY'] as $variable) {
    putenv($variable);
    unset($_SERVER[$variable], $_ENV[$variable]);
}

spl_autoload_register(static function (string $class): void {
    $packages = dirname(__DIR__, 2);
    $places = [
        'Hearth\\Tests\\Guzzle\\' => "{$packages}/guzzle/tests/",
        'Hearth\\Tests\\Laravel\\' => "{$packages}/laravel/tests/",
        'Hearth\\Tests\\Symfony\\' => "{$packages}/symfony/tests/",
        'Hearth\\Tests\\' => "{$packages}/core/tests/",
        // OCTANE: a copy of Laravel Octane. Without one, what we rely on of it.
        'Laravel\\Octane\\' => (getenv('OCTANE') ?: "{$packages}/laravel/tests/octane") . '/src/',
        'Hearth\\Guzzle\\' => "{$packages}/guzzle/src/",
        'Hearth\\Laravel\\' => "{$packages}/laravel/src/",
        'Hearth\\Symfony\\' => "{$packages}/symfony/src/",
        'Hearth\\' => "{$packages}/core/src/",
    ];
    foreach ($places as $prefix => $folder) {
        if (str_starts_with($class, $prefix)) {
            $file = $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
    $libraries = getenv('HEARTH_LIBRARIES') ?: getenv('LIBRARIES') ?: '/usr/share/php';
    $path = str_replace('\\', '/', $class);
    $files = ["{$libraries}/{$path}.php"];
    if (str_starts_with($path, 'Illuminate/Support/')) {
        // Laravel's smaller packages are of one namespace, and Debian gives each a folder.
        foreach (['Collections', 'Macroable', 'Conditionable', 'Reflection'] as $part) {
            $files[] = "{$libraries}/Illuminate/{$part}/" . substr($path, strlen('Illuminate/Support/')) . '.php';
        }
    }
    foreach ($files as $file) {
        if (is_file($file)) {
            require $file;
            return;
        }
    }
});

// Debian has no package of it: PSR-15's interface.
if (!interface_exists(Psr\Http\Server\RequestHandlerInterface::class)) {
    require_once __DIR__ . '/Lambda/request-handler.php';
}

// Functions, which no autoloader finds.
$libraries = getenv('HEARTH_LIBRARIES') ?: getenv('LIBRARIES') ?: '/usr/share/php';
$functions = [
    ...glob("{$libraries}/Illuminate/{Collections,Events,Filesystem,Log,Reflection,Support}/{functions,helpers}.php", GLOB_BRACE) ?: [],
    ...glob("{$libraries}/Symfony/Contracts/Deprecation/function.php") ?: [],
    ...glob("{$libraries}/GuzzleHttp/{,Promise/,Psr7/}functions_include.php", GLOB_BRACE) ?: [],
];
foreach ($functions as $file) {
    require_once $file;
}
