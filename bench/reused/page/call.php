<?php

/** Makes the application by the variables WAY, PACKAGE and BROKER of bench/reused/run; returns what makes the call of one request. */

declare(strict_types=1);

use Cego\CurlHandleReuseLaravelOctane\CurlHandleReuseLaravelOctaneServiceProvider;
use Hearth\Laravel\HearthServiceProvider;
use Illuminate\Support\Facades\Http;
use Orchestra\Testbench\Concerns\CreatesApplication;

// The packages' own tests forget where the broker is.
$extension = getenv('HEARTH_EGRESS');
$folder = getenv('PACKAGE');
require __DIR__ . '/../application.php';

$GLOBALS['providers'] = match (getenv('WAY')) {
    'kept' => [CurlHandleReuseLaravelOctaneServiceProvider::class],
    'package' => [HearthServiceProvider::class],
    default => [],
};
putenv("HEARTH_EGRESS={$extension}");
(new class {
    use CreatesApplication;
})->createApplication();

return static function (): void {
    $answer = Http::get('https://github.com/robots.txt');
    http_response_code($answer->ok() ? 200 : 502);
    echo $answer->status(), ' ', $answer->body();
};
