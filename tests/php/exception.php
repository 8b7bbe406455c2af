<?php
// An uncaught exception; ?handler: the script's own handler answers; ?handler=throws: it throws another, ?handler=again: the same.
if (isset($_GET['handler'])) {
    set_exception_handler(static function (Throwable $e): void {
        match ($_GET['handler']) {
            'throws' => throw new LogicException('nor this'),
            'again' => throw $e,
            default => http_response_code(503),
        };
        echo 'handled: ', $e->getMessage();
    });
}
throw new RuntimeException('not caught');
