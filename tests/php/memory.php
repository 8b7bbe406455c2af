<?php
// Runs into memory_limit. ?shutdown: a shutdown function prints after it.
if (isset($_GET['shutdown'])) {
    register_shutdown_function(static function (): void {
        header('X-Shutdown: ran');
        echo 'shutdown ran';
    });
}
ini_set('memory_limit', '8M');
echo 'before';
$all = [];
while (true) {
    $all[] = str_repeat('x', 100000);
}
