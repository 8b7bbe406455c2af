<?php

// The queues of Laravel's own skeleton, with what the test's workers need.

return [
    'queue' => [
        'default' => env('QUEUE_CONNECTION'),
        'connections' => [
            'database' => ['driver' => 'database', 'table' => 'jobs', 'queue' => 'default', 'retry_after' => 90],
            'redis' => ['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 90],
        ],
        'failed' => ['driver' => 'null'],
    ],
    'database' => [
        'default' => 'sqlite',
        'connections' => ['sqlite' => [
            'driver' => 'sqlite',
            'database' => base_path('jobs.sqlite'),
            'prefix' => '',
            'options' => [PDO::ATTR_TIMEOUT => 30],
        ]],
        'redis' => ['client' => 'phpredis', 'default' => ['host' => env('REDIS_SOCKET'), 'port' => 0, 'database' => 0]],
    ],
];
