<?php

/** D: a fork of a booted process for each event, which kills itself when it has answered: PHP's shutdown would be part of the duration. */

declare(strict_types=1);

require __DIR__ . '/runtime.php';

$application = application($argv[1]);
$runtime = new Runtime();
while (true) {
    [$id, $event] = $runtime->next();
    $child = pcntl_fork();
    if ($child === 0) {
        $runtime->withOwnConnection()->respond($id, $application($event));
        posix_kill(posix_getpid(), SIGKILL);
    }
    pcntl_waitpid($child, $status);
}
