<?php

// The bench's: the example's own is SQLite.

declare(strict_types=1);

$place = env('DATABASE') === 'pgsql' ? ['driver' => 'pgsql', 'host' => strtok(env('SERVER'), ':'), 'port' => strtok(':')]
    : ['driver' => 'mysql', 'unix_socket' => env('SERVER'), 'strict' => true];

return [
    'default' => 'shop',
    'connections' => [
        'shop' => $place + ['database' => 'shop', 'username' => 'visitor', 'password' => 'a password', 'charset' => 'utf8', 'prefix' => ''],
    ],
];
