<?php

declare(strict_types=1);

// As one writes it first.

use App\Kernel;
use Symfony\Component\HttpFoundation\Request;

require dirname(__DIR__) . '/vendor/autoload.php';

$kernel = new Kernel('prod', false);
$kernel->boot();

$answer = static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
while (frankenphp_handle_request($answer)) {
}
