<?php

declare(strict_types=1);

$answer = require __DIR__ . '/answer.php';

while (frankenphp_handle_request($answer)) {
}
