<?php

declare(strict_types=1);

use Monolog\Handler\ErrorLogHandler;

// PHP's error log: the server makes structured log lines of it.
return [
    'default' => 'errorlog',
    'channels' => [
        'errorlog' => [
            'driver' => 'errorlog',
            'level' => env('LOG_LEVEL', 'warning'),
            'type' => ErrorLogHandler::OPERATING_SYSTEM,
        ],
        'emergency' => ['path' => storage_path('logs/laravel.log')],
    ],
];
