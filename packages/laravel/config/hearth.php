<?php

// Outgoing calls over Hearth's egress broker. `php artisan vendor:publish --tag=hearth-config` puts a copy of this file into config/.

declare(strict_types=1);

return [
    'egress' => [
        // Path of the broker's socket. Without one, or with "off", calls are made directly; a process keeps its connections all the same.
        'socket' => env('HEARTH_EGRESS'),

        // false: the Http client stays as Laravel has it.
        'enabled' => env('HEARTH_EGRESS_ENABLED', true),

        // How many idle curl handles a process keeps, each with the connections it has made.
        'max_handles' => 50,

        // Hosts that are always called directly: 'api.example.com', or '*.internal' for all below one.
        'direct' => [],
    ],
];
