<?php

declare(strict_types=1);

return [
    'default' => 'file',
    'stores' => ['octane' => ['driver' => 'octane'], 'array' => ['driver' => 'array'], 'file' => ['driver' => 'file', 'path' => storage_path('framework/cache')]],
    'prefix' => 'suite',
];
