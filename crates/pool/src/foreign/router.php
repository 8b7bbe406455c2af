<?php
// Hearth's router for `php -S`: trusts only Hearth, sets the request's variables, and runs the script they name.
declare(strict_types=1);

(static function (): void {
    $given = $_SERVER['HTTP_HEARTH_VARIABLES'] ?? '';
    if (!hash_equals('{{secret}}', substr($given, 0, 32))) {
        http_response_code(403);
        exit;
    }
    if (strlen($given) === 32) { // Hearth checks whether this process is free
        http_response_code(204);
        exit;
    }
    // As in php-fpm, the environment is in $_SERVER and the variables are in getenv(). PHP takes them out of it when the request ends.
    $server = getenv();
    $parts = explode("\0", base64_decode(substr($given, 32)));
    for ($i = 0; $i + 1 < count($parts); $i += 2) {
        $server[$parts[$i]] = $parts[$i + 1];
        putenv("{$parts[$i]}={$parts[$i + 1]}");
    }
    $server['PHP_SELF'] = $server['SCRIPT_NAME'] . ($server['PATH_INFO'] ?? '');
    foreach (['PHP_AUTH_USER', 'PHP_AUTH_PW', 'PHP_AUTH_DIGEST', 'REQUEST_TIME_FLOAT', 'REQUEST_TIME', 'argv', 'argc'] as $name) {
        if (isset($_SERVER[$name])) {
            $server[$name] = $_SERVER[$name];
        }
    }
    $_SERVER = $server;
    chdir(dirname($server['SCRIPT_FILENAME']));
})();
require $_SERVER['SCRIPT_FILENAME'];
