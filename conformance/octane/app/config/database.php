<?php

declare(strict_types=1);

return [
    'default' => 'sqlite',
    'connections' => ['sqlite' => ['driver' => 'sqlite', 'database' => database_path('suite.sqlite'), 'prefix' => '']],
    'migrations' => 'migrations',
];
