<?php
// An exception that nobody catches; ?handler: the script's own handler answers.
if (isset($_GET['handler'])) {
    set_exception_handler(static function (Throwable $e): void {
        http_response_code(503);
        echo 'handled: ', $e->getMessage();
    });
}
throw new RuntimeException('nobody catches this');
