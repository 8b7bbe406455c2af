<?php

// For Octane's own tests: Laravel and libraries are Debian's packages, Octane and Testbench are beside this file.

declare(strict_types=1);

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
require_once 'Mockery/autoload.php';
require_once 'GuzzleHttp/autoload.php';
require_once 'Illuminate/autoload.php';
spl_autoload_register(static function (string $class): void {
    foreach (['Laravel\\Octane\\Tests\\' => '/tests/', 'Laravel\\Octane\\' => '/src/', 'Orchestra\\Testbench\\' => '/vendor/orchestra/testbench-core/src/'] as $prefix => $folder) {
        $path = __DIR__ . $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
        if (str_starts_with($class, $prefix) && is_file($path)) {
            require_once $path;
            return;
        }
    }
});
