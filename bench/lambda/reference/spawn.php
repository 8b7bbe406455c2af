<?php

/** B: a process for each event, started when it comes, without extensions that the application does not need (`php -n`). */

declare(strict_types=1);

require __DIR__ . '/runtime.php';
require __DIR__ . '/child.php';

$runtime = new Runtime();
while (true) {
    [$id, $event] = $runtime->next();
    $runtime->respond($id, Child::start(['-n'], $argv[1])->answer($event));
}
