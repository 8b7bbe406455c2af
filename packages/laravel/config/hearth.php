<?php

// Outgoing calls over Hearth's egress broker. `php artisan vendor:publish --tag=hearth-config` puts a copy of this file into config/.

declare(strict_types=1);

return [
    'egress' => [
        // Path of the broker's socket. Without one, or with "off", calls are made directly; a process still keeps its connections.
        'socket' => env('HEARTH_EGRESS'),

        // false: Laravel's Http client is not changed.
        'enabled' => env('HEARTH_EGRESS_ENABLED', true),

        // How many idle curl handles a process keeps, each with the connections it has made.
        'max_handles' => 50,

        // Hosts that are always called directly: 'api.example.com', or '*.internal' for all below one.
        'direct' => [],
    ],

    // Where `php artisan hearth:serve` listens, with the variables of `artisan serve`; else hearth.toml says it.
    'serve' => [
        'host' => env('SERVER_HOST'),
        'port' => env('SERVER_PORT'),
    ],

    // Where `php artisan hearth:channels` listens.
    'channels' => [
        'host' => env('REVERB_SERVER_HOST', '0.0.0.0'),
        'port' => env('REVERB_SERVER_PORT', 8080),
    ],

    // The path at which Hearth looks up applications that are not in its settings (`realtime.lookup = "php:/hearth/apps"`). The route exists if
    // the container has a Hearth\Realtime\Applications.
    'lookup' => [
        'path' => '/hearth/apps',

        // `realtime.lookup_token`, needed if another server runs PHP: Hearth sets it for its own processes.
        'token' => env('HEARTH_REALTIME_LOOKUP_TOKEN'),
    ],

    // The connection `hearth` of broadcasting, where config/broadcasting.php has none of that name: BROADCAST_CONNECTION=hearth (before
    // Laravel 11 BROADCAST_DRIVER). It has the names that Reverb and Pusher have.
    'broadcasting' => [
        'app_id' => env('REVERB_APP_ID', env('PUSHER_APP_ID')),
        'key' => env('REVERB_APP_KEY', env('PUSHER_APP_KEY')),
        'secret' => env('REVERB_APP_SECRET', env('PUSHER_APP_SECRET')),
        'options' => [
            // The HTTP API, for queue workers and commands. Requests that Hearth serves publish without a call.
            'host' => env('REVERB_HOST', env('PUSHER_HOST')),
            'port' => env('REVERB_PORT', env('PUSHER_PORT')),
            'scheme' => env('REVERB_SCHEME', env('PUSHER_SCHEME', 'https')),
            // 32 bytes in base64, for EncryptedPrivateChannel.
            'encryption_master_key_base64' => env('PUSHER_ENCRYPTION_MASTER_KEY'),
        ],
    ],
];
