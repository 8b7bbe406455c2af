<?php

/** A: one process, booted once; state is shared. */

declare(strict_types=1);

require __DIR__ . '/runtime.php';

$application = application($argv[1]);
$runtime = new Runtime();
while (true) {
    [$id, $event] = $runtime->next();
    $runtime->respond($id, $application($event));
}
