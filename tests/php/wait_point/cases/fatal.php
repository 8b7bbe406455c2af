<?php

register_shutdown_function(static function (): void {
    echo '[last: ', strtok(error_get_last()['message'] ?? 'none', "\n"), ']';
});
(static fn () => undefined_function())();
