<?php

declare(strict_types=1);

// Something at once, something at the end.
echo str_repeat('first ', 200);
while (ob_get_level() > 0) {
    ob_end_flush();
}
flush();
usleep(300_000);
echo 'last';
