<?php

/*
 * The same application booted once: a worker script as FrankenPHP's, so it runs there too.
 * The kernel resets its services itself when it handles its next request (services_resetter).
 */

declare(strict_types=1);

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

ignore_user_abort(true);

require dirname(__DIR__) . '/vendor/autoload.php';

$kernel = new Kernel($_SERVER['APP_ENV'] ?? 'prod', (bool) ($_SERVER['APP_DEBUG'] ?? false));
$kernel->boot();

$answer = static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};

// PHP itself collects cycles when there are enough; a collection after each request costs more than it frees.
while (frankenphp_handle_request($answer)) {
}

$kernel->shutdown();
