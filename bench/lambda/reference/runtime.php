<?php

/**
 * Shared by the reference bootstraps: the Runtime API over ext-curl, with one kept handle for each kind of call, and the applications of the bench.
 *
 * Promises: it is what a careful programmer would write: connections are kept, and the body is written once.
 */

declare(strict_types=1);

final class Runtime
{
    private string $base;
    private CurlHandle $next;
    private CurlHandle $response;

    public function __construct()
    {
        $this->base = 'http://' . getenv('AWS_LAMBDA_RUNTIME_API') . '/2018-06-01/runtime/invocation';
        $this->next = curl_init("{$this->base}/next");
        curl_setopt_array($this->next, [CURLOPT_RETURNTRANSFER => true, CURLOPT_FAILONERROR => true]);
        $this->response = self::poster();
    }

    /** @return array{string, string} the invocation's id and its event */
    public function next(): array
    {
        $id = '';
        curl_setopt($this->next, CURLOPT_HEADERFUNCTION, static function ($handle, string $line) use (&$id): int {
            if (strncasecmp($line, 'Lambda-Runtime-Aws-Request-Id:', 30) === 0) {
                $id = trim(substr($line, 30));
            }
            return strlen($line);
        });
        $event = curl_exec($this->next);
        if ($event === false || $id === '') {
            // The emulator is gone.
            exit(0);
        }
        return [$id, $event];
    }

    public function respond(string $id, string $body): void
    {
        curl_setopt($this->response, CURLOPT_URL, "{$this->base}/{$id}/response");
        curl_setopt($this->response, CURLOPT_POSTFIELDS, $body);
        curl_exec($this->response);
    }

    /** A forked process must not speak over its parent's connection. */
    public function withOwnConnection(): self
    {
        $own = clone $this;
        $own->response = self::poster();
        return $own;
    }

    private static function poster(): CurlHandle
    {
        $handle = curl_init();
        curl_setopt_array($handle, [CURLOPT_RETURNTRANSFER => true, CURLOPT_HTTPHEADER => ['Content-Type: application/json', 'Expect:']]);
        return $handle;
    }
}

/** @return callable(string): string the application that is named, booted: event in, reply out, both in JSON */
function application(string $name): callable
{
    $handler = handler($name);
    return static fn (string $event): string => json_encode($handler(json_decode($event, true)), JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES);
}

/** @return callable(array<string, mixed>): array<string, mixed> the same without JSON */
function handler(string $name): callable
{
    $root = dirname(__DIR__, 3);
    if ($name === 'echo') {
        return static function (array $event): array {
            ob_start();
            require dirname(__DIR__, 2) . '/models/echo/public/index.php';
            return reply(200, ['content-type' => ['text/html; charset=UTF-8']], (string) ob_get_clean());
        };
    }
    require "{$root}/examples/symfony-api/vendor/autoload.php";
    $kernel = new App\Kernel('prod', false);
    $kernel->boot();
    return static function (array $event) use ($kernel): array {
        $server = ['REMOTE_ADDR' => $event['requestContext']['identity']['sourceIp']];
        foreach ($event['multiValueHeaders'] as $field => $values) {
            $server['HTTP_' . strtr(strtoupper($field), '-', '_')] = implode(', ', $values);
        }
        $request = Symfony\Component\HttpFoundation\Request::create($event['path'], $event['httpMethod'], [], [], [], $server, $event['body']);
        $response = $kernel->handle($request);
        $reply = reply($response->getStatusCode(), $response->headers->all(), (string) $response->getContent());
        $kernel->terminate($request, $response);
        return $reply;
    };
}

/**
 * @param array<string, list<string>> $fields
 * @return array<string, mixed>
 */
function reply(int $status, array $fields, string $body): array
{
    return ['statusCode' => $status, 'multiValueHeaders' => $fields, 'body' => $body, 'isBase64Encoded' => false];
}
