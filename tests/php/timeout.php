<?php
// Runs into max_execution_time; ?where=shutdown in a shutdown function, ?forever without a limit.
set_time_limit(isset($_GET['forever']) ? 0 : 1);
echo 'before';
if (($_GET['where'] ?? '') === 'shutdown') {
    register_shutdown_function(static function (): void {
        set_time_limit(1);
        while (true) {
        }
    });
    exit;
}
while (true) {
}
