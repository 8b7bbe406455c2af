<?php

if (getenv('SEED')) {
    mt_srand(1); // is lost where the boot is shared
}
$draw = require __DIR__ . '/draw.php';
$draw();
// A forked worker also draws before its first request: libraries that check the process id have seeded again by then.
hearth_on_worker_start(static function () use ($draw): void {
    $draw();
});
while (hearth_handle_request(static function () use ($draw): void {
    echo json_encode(['pid' => getmypid()] + $draw(), JSON_THROW_ON_ERROR);
})) {
}
