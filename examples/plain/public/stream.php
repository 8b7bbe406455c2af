<?php

declare(strict_types=1);

// Each line leaves when it is written: nothing between here and the client waits for the whole.

header('Content-Type: text/plain; charset=utf-8');
while (ob_get_level() > 0) {
    ob_end_flush();
}

$lines = max(1, min(50, (int) ($_GET['lines'] ?? 5)));
for ($i = 1; $i <= $lines; $i++) {
    echo "line {$i} of {$lines}\n";
    flush();
    if ($i < $lines) {
        usleep(200_000);
    }
}
