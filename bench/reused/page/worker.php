<?php

declare(strict_types=1);

$call = require __DIR__ . '/call.php';

while (frankenphp_handle_request($call)) {
}
