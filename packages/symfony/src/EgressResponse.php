<?php

/** Response of a call that may go through the broker: the inner client's, with the origin in place of the broker's socket. */

declare(strict_types=1);

namespace Hearth\Symfony;

use Symfony\Component\HttpClient\Exception\ClientException;
use Symfony\Component\HttpClient\Exception\RedirectionException;
use Symfony\Component\HttpClient\Exception\ServerException;
use Symfony\Component\HttpClient\Response\AsyncResponse;
use Symfony\Component\HttpClient\Response\StreamableInterface;
use Symfony\Contracts\HttpClient\ResponseInterface;

/** @internal */
final class EgressResponse implements ResponseInterface, StreamableInterface
{
    public function __construct(private AsyncResponse $response, private readonly EgressCall $call)
    {
    }

    public function getStatusCode(): int
    {
        return $this->response->getStatusCode();
    }

    public function getHeaders(bool $throw = true): array
    {
        $headers = $this->response->getHeaders(false);
        if ($throw) {
            $this->check();
        }
        return array_filter($headers, static fn (string $name): bool => !str_starts_with($name, 'hearth-'), ARRAY_FILTER_USE_KEY);
    }

    public function getContent(bool $throw = true): string
    {
        try {
            return $this->response->getContent(false);
        } finally {
            if ($throw) {
                $this->check();
            }
        }
    }

    public function toArray(bool $throw = true): array
    {
        if ($throw) {
            $this->getContent();
        }
        return $this->response->toArray(false);
    }

    public function cancel(): void
    {
        $this->response->cancel();
    }

    public function getInfo(?string $type = null): mixed
    {
        $info = $this->call->amend($this->response->getInfo());
        return $type === null ? $info : $info[$type] ?? null;
    }

    /** @return resource */
    public function toStream(bool $throw = true)
    {
        if ($throw) {
            $this->getHeaders(true);
        }
        return $this->response->toStream(false);
    }

    /**
     * @param iterable<self> $responses
     * @return \Generator<self, \Symfony\Contracts\HttpClient\ChunkInterface>
     */
    public static function stream(iterable $responses, ?float $timeout): \Generator
    {
        $outer = new \SplObjectStorage();
        $inner = [];
        foreach ($responses as $response) {
            if (!$response instanceof self) {
                $given = get_debug_type($response);
                throw new \TypeError(EgressHttpClient::class . "::stream() expects its own responses, \"{$given}\" given.");
            }
            $outer[$response->response] = $response;
            $inner[] = $response->response;
        }
        foreach (AsyncResponse::stream($inner, $timeout, EgressHttpClient::class) as $response => $chunk) {
            yield $outer[$response] => $chunk;
        }
    }

    private function check(): void
    {
        $status = $this->response->getStatusCode();
        match (true) {
            $status >= 500 => throw new ServerException($this),
            $status >= 400 => throw new ClientException($this),
            $status >= 300 => throw new RedirectionException($this),
            default => null,
        };
    }
}
