<?php

declare(strict_types=1);

return [
    'default' => env('BROADCAST_CONNECTION', env('BROADCAST_DRIVER', 'null')),
    'connections' => [
        'hearth' => [
            'driver' => 'hearth',
            'app_id' => env('REVERB_APP_ID'),
            'key' => env('REVERB_APP_KEY'),
            'secret' => env('REVERB_APP_SECRET'),
        ],
        'null' => ['driver' => 'null'],
    ],
];
