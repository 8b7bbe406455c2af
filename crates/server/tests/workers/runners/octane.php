<?php

// Makes the same calls as Octane's worker script for FrankenPHP, in the same order, around the application itself.

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Bootstrap\RegisterProviders;
use Illuminate\Foundation\Bootstrap\SetRequestForConsole;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;

if (!($_SERVER['FRANKENPHP_WORKER'] ?? false) || !function_exists('frankenphp_handle_request')) {
    echo 'no worker mode';
    exit(1);
}
ignore_user_abort(true);
ini_set('display_errors', 'stderr');
$_ENV['APP_RUNNING_IN_CONSOLE'] = false;

$base = $_SERVER['APP_BASE_PATH'] ?? $_ENV['APP_BASE_PATH'] ?? null;
if (!is_string($base)) {
    echo 'no application';
    exit(11);
}
require_once ($_ENV['COMPOSER_VENDOR_DIR'] ?? "{$base}/vendor") . '/autoload.php';

/** Octane's worker: an unused application, copied for each request. */
final class Sandboxes
{
    private object $app;
    public int $requests = 0;

    public function boot(string $base): void
    {
        $this->app = require $base . '/bootstrap/app.php';
        $bootstrappers = (new ReflectionMethod($this->app->make(Kernel::class), 'bootstrappers'))->invoke($this->app->make(Kernel::class));
        array_splice($bootstrappers, array_search(RegisterProviders::class, $bootstrappers, true), 0, [SetRequestForConsole::class]);
        $this->app->bootstrapWith($bootstrappers);
        $this->app->loadDeferredProviders();
    }

    public function handle(Request $request): void
    {
        $this->requests++;
        $sandbox = clone $this->app;
        Illuminate\Container\Container::setInstance($sandbox);
        $sandbox->instance('app', $sandbox);
        Facade::clearResolvedInstances();
        Facade::setFacadeApplication($sandbox);
        $kernel = $sandbox->make(Kernel::class);
        if (method_exists($kernel, 'setApplication')) {
            $kernel->setApplication($sandbox);
        }

        ob_start();
        $response = $kernel->handle($request);
        $output = ob_get_contents();
        if (ob_get_level()) {
            ob_end_clean();
        }
        $response->headers->set('X-Sandbox', "{$this->requests} " . json_encode([
            $output, $_SERVER['LARAVEL_OCTANE'] ?? null, $_SERVER['FRANKENPHP_WORKER'] ?? null,
            (int) ini_get('max_execution_time'),
        ]));
        $response->send();
        $kernel->terminate($request, $response);
        if (!isset($_SERVER['HEARTH_WARM_UP'])) {
            file_put_contents(dirname(__DIR__) . '/var/terminated', '+', FILE_APPEND);
        }
    }
}

$worker = new Sandboxes();
$worker->boot($base);

$requests = 0;
$most = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'];
$time = $_ENV['REQUEST_MAX_EXECUTION_TIME'] ?? $_SERVER['REQUEST_MAX_EXECUTION_TIME'] ?? null;
if ($time !== null) {
    set_time_limit((int) $time);
}
try {
    $handle = static function () use ($worker): void {
        try {
            $worker->handle(Request::createFromGlobals());
        } catch (Throwable $reason) {
            report($reason);
            http_response_code(500);
        }
    };
    while ($requests < $most && frankenphp_handle_request($handle)) {
        $requests++;
    }
} finally {
    gc_collect_cycles();
}
