<?php

echo json_encode([ini_get('precision'), ini_get('memory_limit'), ini_get('max_execution_time'), date_default_timezone_get(), 1 / 3, ini_get('display_errors'),
    error_get_last()['message'] ?? null, set_time_limit(7), ini_get('max_execution_time'), ini_set('memory_limit', '64M'), ini_get('output_buffering'), ini_get('user_agent'),
    function_exists('hearth_await_request') && hearth_await_request()], JSON_THROW_ON_ERROR);
ini_set('precision', '3');
date_default_timezone_set('UTC');
putenv('LEFT=behind');
chdir('/');
