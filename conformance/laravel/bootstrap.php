<?php

// Loads classes: Laravel and libraries from Debian's packages, its tests and Testbench from the checkouts. Both the tests and the servers use it.

declare(strict_types=1);

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
require_once 'Mockery/autoload.php';
require_once 'Illuminate/autoload.php';
spl_autoload_register(static function (string $class): void {
    foreach (['Illuminate\\Tests\\' => getenv('SUITE_LARAVEL') . '/tests/', 'Orchestra\\Testbench\\' => getenv('SUITE_TESTBENCH') . '/src/'] as $prefix => $folder) {
        $path = $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
        if (str_starts_with($class, $prefix) && is_file($path)) {
            require_once $path;
        }
    }
});
foreach (['functions', 'helpers'] as $name) {
    if (is_file($functions = getenv('SUITE_TESTBENCH') . "/src/$name.php")) {
        require_once $functions;
    }
}
// Str::random() makes keys and tokens in a test's own code, which runs in the tests' process and on the server: the same there and here.
eval(<<<'PHP'
namespace Illuminate\Support;

function random_bytes(int $length): string
{
    static $calls = 0;
    return substr(hash('sha512', (string) ++$calls, true), 0, $length);
}
PHP);
