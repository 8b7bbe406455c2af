<?php

/**
 * Sets {@see Listener::QUIET} for a call through the broker. CurlHttpClient refuses these options, so they are set on its handle, which it keeps to
 * itself. Promises: where there is no such handle nothing happens, and the call is only slower.
 */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Listener;
use Symfony\Component\HttpClient\Response\AsyncResponse;
use Symfony\Component\HttpClient\Response\CurlResponse;
use Symfony\Contracts\HttpClient\ResponseInterface;

/** @internal */
final class Quiet
{
    /** @var ?\Closure(AsyncResponse): ?ResponseInterface */
    private static ?\Closure $inner = null;

    /** @var ?\Closure(CurlResponse): mixed */
    private static ?\Closure $handle = null;

    private function __construct()
    {
    }

    /** Returns whether the handle was found. */
    public static function make(ResponseInterface $response): bool
    {
        self::$inner ??= \Closure::bind(static fn (AsyncResponse $response) => $response->response ?? null, null, AsyncResponse::class);
        self::$handle ??= \Closure::bind(static fn (CurlResponse $response) => $response->handle ?? null, null, CurlResponse::class);
        $response = $response instanceof AsyncResponse ? (self::$inner)($response) : $response;
        $handle = $response instanceof CurlResponse ? (self::$handle)($response) : null;
        return $handle instanceof \CurlHandle && curl_setopt_array($handle, Listener::QUIET);
    }
}
