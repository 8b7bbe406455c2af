<?php

/*
 * The same application booted once: a worker script as FrankenPHP's, so it runs there too. In this model memory is
 * shared between requests. State that a request leaves in the container is reset here by name, as Octane does with a
 * longer list. (The model `snapshot` needs none of it.)
 */

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Session\Middleware\StartSession;
use Illuminate\Support\Facades\Facade;

ignore_user_abort(true);

require __DIR__ . '/../vendor/autoload.php';

$app = require __DIR__ . '/../bootstrap/app.php';
$kernel = $app->make(Kernel::class);
$kernel->bootstrap();

$ofOneRequest = ['request', 'session', 'session.store', StartSession::class, 'cookie', 'redirect'];

$answer = static function () use ($app, $kernel, $ofOneRequest): void {
    $request = Request::capture();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);

    foreach ($ofOneRequest as $name) {
        $app->forgetInstance($name);
    }
    Facade::clearResolvedInstances();
};

// PHP itself collects cycles when there are enough; a collection after each request costs more than it frees.
while (frankenphp_handle_request($answer)) {
}
