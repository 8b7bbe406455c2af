<?php

\Fixture\Application::$steps[] = 'settings';
set_error_handler(static function (int $level, string $message): bool {
    echo "[error: {$message}]";
    return true;
});
@trigger_error('of the boot');
