<?php

/** An HTTP application, for scripts/test-layer. */

declare(strict_types=1);

header('Content-Type: text/plain');
$bytes = strlen((string) file_get_contents('php://input'));
echo "{$_SERVER['REQUEST_METHOD']} {$_SERVER['REQUEST_URI']} {$bytes} bytes from {$_SERVER['REMOTE_ADDR']}\n",
    PHP_SAPI, ' ', php_ini_loaded_file(), ' ', implode(' ', array_filter(['hearth', 'mbstring'], extension_loaded(...))), ' ', ini_get('user_agent');
