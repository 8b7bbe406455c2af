<?php
// Whether opcache works, and whether its memory is shared: the start time is that of the zygote.
header('Content-Type: application/json');
$status = opcache_get_status(true);
echo json_encode([
    'enabled' => $status['opcache_enabled'] ?? false,
    'start' => $status['opcache_statistics']['start_time'] ?? null,
    'scripts' => array_keys($status['scripts'] ?? []),
    'pid' => getmypid(),
]);
