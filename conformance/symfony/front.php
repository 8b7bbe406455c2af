<?php
// One application of Symfony's functional tests, which SUITE_KERNEL describes: as the router of `php -S`, and as a worker script of Hearth.
// The header X-Suite brings what a test sets in $_SERVER, such as the client's address.

use Symfony\Component\HttpFoundation\Request;

require_once __DIR__ . '/bootstrap.php';
[$file, $class, $arguments] = json_decode(getenv('SUITE_KERNEL'), true);
require_once $file;
$kernel = new $class(...$arguments);
$kernel->boot();

$handler = static function () use ($kernel): void {
    $suite = json_decode(base64_decode($_SERVER['HTTP_X_SUITE']), true);
    unset($_SERVER['HTTP_X_SUITE']);
    $_SERVER = $suite['server'] + ['SCRIPT_FILENAME' => __FILE__, 'SCRIPT_NAME' => '/index.php', 'PHP_SELF' => '/index.php'] + $_SERVER;
    try {
        if ($suite['profiler']) {
            $kernel->boot();
            $kernel->getContainer()->get('test.service_container')->get('profiler')->enable();
        }
        $request = Request::createFromGlobals();
        $response = $kernel->handle($request);
        $response->send();
        $kernel->terminate($request, $response);
    } finally {
        touch($suite['ended']);
    }
};

// php -S, and the model `request`: the request is there already.
if (isset($_SERVER['HTTP_X_SUITE'])) {
    $handler();
    return true;
}
while (hearth_handle_request($handler)) {
}
