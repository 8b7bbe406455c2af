<?php

/*
 * The benchmarked applications behind RoadRunner: `rr` starts `php roadrunner.php LIBRARIES APP FOLDER`. LIBRARIES is a folder as
 * `composer require spiral/roadrunner-http` makes it (`vendor`), with or without Composer's autoloader.
 * Requests are made from RoadRunner's own request, without PSR-7 in between, as Symfony's bundles for it do.
 */

declare(strict_types=1);

use Psr\Log\NullLogger;
use Spiral\Goridge\StreamRelay;
use Spiral\RoadRunner\Http\HttpWorker;
use Spiral\RoadRunner\Http\Request as RoadRunnerRequest;
use Spiral\RoadRunner\Worker;

[, $libraries, $name, $folder] = $argv;

const NAMESPACES = [
    'Spiral\\RoadRunner\\Http\\' => 'spiral/roadrunner-http',
    'Spiral\\RoadRunner\\' => 'spiral/roadrunner-worker',
    'Spiral\\Goridge\\' => 'spiral/goridge',
];

spl_autoload_register(static function (string $class) use ($libraries): void {
    foreach (NAMESPACES as $namespace => $package) {
        if (str_starts_with($class, $namespace)) {
            require "{$libraries}/{$package}/src/" . strtr(substr($class, strlen($namespace)), '\\', '/') . '.php';

            return;
        }
    }
});

/** @return array<string, mixed> What $_SERVER would hold. */
function server_variables(RoadRunnerRequest $request): array
{
    $parts = parse_url($request->uri);
    $variables = [
        'REQUEST_METHOD' => $request->method,
        'REQUEST_URI' => ($parts['path'] ?? '/') . (isset($parts['query']) ? "?{$parts['query']}" : ''),
        'QUERY_STRING' => $parts['query'] ?? '',
        'SERVER_PROTOCOL' => $request->protocol,
        'SERVER_NAME' => $parts['host'] ?? '',
        'SERVER_PORT' => $parts['port'] ?? 80,
        'REMOTE_ADDR' => $request->remoteAddr,
        'REQUEST_TIME' => time(),
        'REQUEST_TIME_FLOAT' => microtime(true),
    ];
    foreach ($request->headers as $field => $values) {
        $variables['HTTP_' . strtoupper(strtr($field, '-', '_'))] = implode(', ', $values);
    }

    return $variables;
}

/** @return array{array<string, mixed>, array<string, mixed>, array<string, mixed>, array<string, mixed>, array<string, mixed>, array<string, mixed>, string} */
function parts_of(RoadRunnerRequest $request): array
{
    return [$request->query, [], [], $request->cookies, [], server_variables($request), $request->body];
}

function send(Symfony\Component\HttpFoundation\Response $answer, HttpWorker $http): void
{
    $http->respond($answer->getStatusCode(), (string) $answer->getContent(), $answer->headers->allPreserveCase());
}

if ($name === 'symfony' || $name === 'laravel') {
    require "{$folder}/vendor/autoload.php";
}
if (is_file("{$libraries}/autoload.php")) {
    require "{$libraries}/autoload.php";
} elseif (!class_exists(NullLogger::class)) {
    require 'Psr/Log/autoload.php'; // Debian's
}

$http = new HttpWorker(new Worker(new StreamRelay(STDIN, STDOUT), logger: new NullLogger()));

if ($name === 'transports') {
    $answer = static fn (RoadRunnerRequest $request) => $http->respond(
        200,
        $request->method === 'POST' ? (string) strlen($request->body) : str_repeat('x', (int) ($request->query['bytes'] ?? 13)),
    );
} elseif ($name === 'echo') {
    $answer = static fn (RoadRunnerRequest $request) => $http->respond(200, 'Hello, world!');
} elseif ($name === 'symfony') {
    $kernel = new App\Kernel('prod', false);
    $kernel->boot();
    $answer = static function (RoadRunnerRequest $request) use ($kernel, $http): void {
        $asked = new Symfony\Component\HttpFoundation\Request(...parts_of($request));
        $answer = $kernel->handle($asked);
        send($answer, $http);
        $kernel->terminate($asked, $answer);
    };
} else {
    $app = require "{$folder}/bootstrap/app.php";
    $kernel = $app->make(Illuminate\Contracts\Http\Kernel::class);
    $kernel->bootstrap();
    $answer = static function (RoadRunnerRequest $request) use ($kernel, $http): void {
        $asked = new Illuminate\Http\Request(...parts_of($request));
        $answer = $kernel->handle($asked);
        send($answer, $http);
        $kernel->terminate($asked, $answer);
    };
}

while ($request = $http->waitRequest()) {
    $answer($request);
}
