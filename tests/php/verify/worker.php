<?php

declare(strict_types=1);

require __DIR__ . '/app.php';

while (hearth_handle_request(answer(...))) {
}
