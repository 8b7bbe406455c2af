<?php
// One line through each way there is.
error_log('through error_log');
trigger_error('through trigger_error', E_USER_WARNING);
hearth_log('through hearth_log', 'error', ['order' => 7, 'path' => '/a/ü']);
frankenphp_log('through frankenphp_log', FRANKENPHP_LOG_LEVEL_WARN);
fwrite(fopen('php://stdout', 'w'), "through stdout\n");
fwrite(fopen('php://stderr', 'w'), "through stderr\n");
echo 'logged';
