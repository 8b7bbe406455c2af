<?php

declare(strict_types=1);

// As one writes it first: no list of what to put back.

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

require __DIR__ . '/../vendor/autoload.php';

$app = require __DIR__ . '/../bootstrap/app.php';
$kernel = $app->make(Kernel::class);
$app->instance('request', Request::create('http://localhost'));
$kernel->bootstrap();

$answer = static function () use ($kernel): void {
    $request = Request::capture();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
while (frankenphp_handle_request($answer)) {
}
