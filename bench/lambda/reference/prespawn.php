<?php

/** C: a process for each event, started and booted before it comes. */

declare(strict_types=1);

require __DIR__ . '/runtime.php';
require __DIR__ . '/child.php';

$runtime = new Runtime();
while (true) {
    $child = Child::start([], $argv[1]);
    [$id, $event] = $runtime->next();
    $runtime->respond($id, $child->answer($event));
}
