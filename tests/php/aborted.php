<?php
// Prints until the client is gone; ?ignore continues and writes its observations to ?file.
ignore_user_abort(isset($_GET['ignore']));
while (ob_get_level() > 0) {
    ob_end_flush();
}
register_shutdown_function(static function (): void {
    if (isset($_GET['file'])) {
        file_put_contents($_GET['file'], json_encode([connection_aborted(), connection_status()]) . "\n");
    }
});
for ($i = 0; $i < (int) ($_GET['times'] ?? 200); $i++) {
    echo "line $i\n";
    flush();
    if (connection_aborted()) {
        break;
    }
    usleep(10000);
}
