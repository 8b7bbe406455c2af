<?php

/** Loads the packages and the frameworks that Debian has, without Composer. HEARTH_LIBRARIES: another place than /usr/share/php. */

declare(strict_types=1);

// Debian's frameworks are older than its PHP.
error_reporting(E_ALL & ~E_DEPRECATED);
// A call of a test goes where the test says.
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
    $libraries = getenv('HEARTH_LIBRARIES') ?: '/usr/share/php';
    $path = str_replace('\\', '/', $class);
    // Debian keeps what Composer would find in vendor/ by other names.
    $path = preg_replace(['#^Illuminate/Support/(Arr|Collection|Enumerable|HigherOrder\w+|ItemNotFoundException|LazyCollection|MultipleItemsFoundException|Traits/EnumeratesValues|Traits/Conditionable|HigherOrderWhenProxy)$#',
        '#^Illuminate/Support/Traits/Macroable$#', '#^Ramsey/Uuid/#', '#^Dflydev/#'], ['Illuminate/Collections/$1', 'Illuminate/Macroable/Traits/Macroable', 'Ramsey/Uuid/', 'Dflydev/'], $path);
    foreach (["{$libraries}/{$path}.php", "{$libraries}/" . str_replace('Illuminate/Collections/', 'Illuminate/Support/', $path) . '.php'] as $file) {
        if (is_file($file)) {
            require $file;
            return;
        }
    }
});

foreach (['Illuminate/Collections/helpers.php', 'Illuminate/Support/helpers.php', 'Illuminate/Collections/functions.php', 'Illuminate/Support/functions.php', 'Symfony/Contracts/Deprecation/function.php', 'GuzzleHttp/functions_include.php', 'GuzzleHttp/Promise/functions_include.php', 'GuzzleHttp/Psr7/functions_include.php'] as $functions) {
    $file = (getenv('HEARTH_LIBRARIES') ?: '/usr/share/php') . "/{$functions}";
    if (is_file($file)) {
        require_once $file;
    }
}
