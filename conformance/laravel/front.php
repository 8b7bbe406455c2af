<?php

// One test of Laravel's, up to one of its requests: as the router of `php -S`, and as a worker script of Hearth. What the test does before that request
// (routes, settings, requests before it) is the boot of the application; the request itself comes over HTTP.

declare(strict_types=1);

use Illuminate\Http\Request;
use Orchestra\Testbench\Http\Kernel;
use PHPUnit\Util\Test;

require_once 'PHPUnit/Autoload.php';
require_once __DIR__ . '/kernel.php';

// The header X-Suite brings what a test sets in $_SERVER, such as the client's address, and where the model boots for each request, which test it is.
$suite = static function (): array {
    $suite = json_decode(base64_decode($_SERVER['HTTP_X_SUITE']), true);
    unset($_SERVER['HTTP_X_SUITE']);
    $_SERVER = $suite[0] + ['SCRIPT_FILENAME' => __FILE__, 'SCRIPT_NAME' => '/index.php', 'PHP_SELF' => '/index.php'] + $_SERVER;

    return $suite[1];
};
$booted = getenv('SUITE_TEST');
[$file, $class, $method, $set, $number] = $booted === false ? $suite() : json_decode($booted, true);

$asked = 0;
Kernel::$answer = static function (Kernel $kernel, Request $request) use (&$asked, $number, $booted, $suite) {
    if (++$asked < $number) {
        return $kernel->inProcess($request);
    }
    $handler = static function () use ($kernel, $booted, $suite): void {
        if ($booted !== false) {
            $suite();
        }
        try {
            $request = Request::createFromGlobals();
            $response = $kernel->inProcess($request);
            $response->send();
            $kernel->terminate($request, $response);
        } catch (Throwable $thrown) {
            header('X-Suite-Thrown: ' . Kernel::carried($thrown));
            http_response_code(500);
        }
    };
    if ($booted === false) {
        $handler();
    } else {
        while (hearth_handle_request($handler)) {
        }
    }
    exit;
};

require_once $file;
$data = Test::getProvidedData($class, $method)[$set] ?? [];
$case = new $class($method, $data, $set);
$run = function () use ($method, $data): void {
    static::setUpBeforeClass();
    $this->setUp();
    $this->{$method}(...$data);
};
$run->call($case);
throw new LogicException("$class::$method made $asked requests, so it has no request $number");
