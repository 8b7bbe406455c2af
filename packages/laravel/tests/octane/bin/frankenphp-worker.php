<?php

/** See ../src/OctaneServiceProvider.php: Octane's script for FrankenPHP, which reads these variables and takes requests in a loop. */

declare(strict_types=1);

$of = $_SERVER['APP_BASE_PATH'];
$requests = 0;
$handle = static function () use ($of, &$requests): void {
    echo 'request ', ++$requests, " of {$of}, Octane ", getenv('LARAVEL_OCTANE');
};
while ($requests < (int) $_SERVER['MAX_REQUESTS'] && frankenphp_handle_request($handle)) {
}
