<?php

// The same worker script with a loop of one request: what each page answers in a PHP process that has served none before, by `php -S`.

declare(strict_types=1);

function frankenphp_handle_request(callable $handler): bool
{
    static $calls = 0;
    if ($calls++ === 0) {
        $handler();
    }

    return $calls === 1;
}

$_SERVER += ['FRANKENPHP_WORKER' => '1', 'APP_BASE_PATH' => dirname(__DIR__), 'LARAVEL_OCTANE' => '1', 'MAX_REQUESTS' => 2];
require __DIR__ . '/frankenphp-worker.php';
