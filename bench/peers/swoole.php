<?php

/*
 * The benchmarked applications behind Swoole: php swoole.php APP FOLDER PORT WORKERS [CERTIFICATE KEY]. With a certificate it serves
 * HTTPS, by HTTP/1.1 and HTTP/2.
 * Requests are made from Swoole's arrays, as Octane's Swoole client and Symfony's Swoole runner do.
 */

declare(strict_types=1);

use Swoole\Http\Request as SwooleRequest;
use Swoole\Http\Response as SwooleResponse;
use Swoole\Http\Server;

[, $name, $folder, $port, $workers] = $argv;
[$certificate, $key] = [$argv[5] ?? null, $argv[6] ?? null];

$server = new Server('127.0.0.1', (int) $port, SWOOLE_PROCESS, SWOOLE_SOCK_TCP | ($certificate === null ? 0 : SWOOLE_SSL));
$server->set(($certificate === null ? [] : [
    'ssl_cert_file' => $certificate,
    'ssl_key_file' => $key,
    'open_http2_protocol' => true,
]) + [
    'worker_num' => (int) $workers,
    'reactor_num' => 1,
    'enable_coroutine' => false,
    'log_level' => SWOOLE_LOG_WARNING,
]);

/** @return array<string, mixed> What $_SERVER would hold. */
function server_variables(SwooleRequest $request): array
{
    $variables = array_change_key_case($request->server, CASE_UPPER);
    foreach ($request->header as $field => $value) {
        $variables['HTTP_' . strtoupper(strtr($field, '-', '_'))] = $value;
    }

    return $variables;
}

function send(Symfony\Component\HttpFoundation\Response $answer, SwooleResponse $response): void
{
    $response->status($answer->getStatusCode());
    foreach ($answer->headers->allPreserveCase() as $field => $values) {
        foreach ($values as $value) {
            $response->header($field, $value, false);
        }
    }
    $response->end($answer->getContent());
}

$answer = null;
$server->on('workerStart', static function () use (&$answer, $name, $folder): void {
    if ($name === 'transports') {
        $answer = static fn (SwooleRequest $request, SwooleResponse $response) => $response->end(
            $request->getMethod() === 'POST' ? (string) strlen($request->rawContent()) : str_repeat('x', (int) ($request->get['bytes'] ?? 13)),
        );

        return;
    }
    if ($name === 'echo') {
        $answer = static fn (SwooleRequest $request, SwooleResponse $response) => $response->end('Hello, world!');

        return;
    }
    require "{$folder}/vendor/autoload.php";
    if ($name === 'symfony') {
        $kernel = new App\Kernel('prod', false);
        $kernel->boot();
        $answer = static function (SwooleRequest $request, SwooleResponse $response) use ($kernel): void {
            $asked = new Symfony\Component\HttpFoundation\Request(
                $request->get ?? [],
                $request->post ?? [],
                [],
                $request->cookie ?? [],
                $request->files ?? [],
                server_variables($request),
                $request->rawContent(),
            );
            $answer = $kernel->handle($asked);
            send($answer, $response);
            $kernel->terminate($asked, $answer);
        };

        return;
    }
    $app = require "{$folder}/bootstrap/app.php";
    $kernel = $app->make(Illuminate\Contracts\Http\Kernel::class);
    $kernel->bootstrap();
    $answer = static function (SwooleRequest $request, SwooleResponse $response) use ($kernel): void {
        $asked = new Illuminate\Http\Request(
            $request->get ?? [],
            $request->post ?? [],
            [],
            $request->cookie ?? [],
            $request->files ?? [],
            server_variables($request),
            $request->rawContent(),
        );
        $answer = $kernel->handle($asked);
        send($answer, $response);
        $kernel->terminate($asked, $answer);
    };
});
$server->on('request', static function (SwooleRequest $request, SwooleResponse $response) use (&$answer): void {
    $answer($request, $response);
});
$server->start();
