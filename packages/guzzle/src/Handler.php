<?php

/**
 * The Guzzle handler: calls go through the egress broker if possible, and directly otherwise or after a decline.
 *
 * Promises
 * - A call is sent at most once: directly only if nothing of it has reached the origin.
 * - Options, callbacks and exceptions are those of Guzzle's own handlers.
 * - One handler may serve a whole process: handles and their connections are kept, cookies are not, and a forked process starts with none.
 */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\Handler\StreamHandler;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Promise\Create;
use GuzzleHttp\Promise\FulfilledPromise;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\Promise\RejectedPromise;
use GuzzleHttp\Psr7\Utils as Psr7;
use Hearth\Egress\Broker;
use Hearth\Egress\Listener;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

final class Handler
{
    /** Guzzle reads a body of up to this size into memory anyway (CurlFactory::applyBody()). */
    private const SMALL_BODY = 1_000_000;

    private readonly Broker $broker;
    private readonly Planner $planner;
    private readonly CurlHandlers $curl;

    /**
     * @param int $maxHandles how many idle curl handles are kept, each with its connections
     * @param list<string> $directHosts names that are never called through the broker; `*.example.com` for all names below it
     */
    public function __construct(?Broker $broker = null, int $maxHandles = 50, array $directHosts = [])
    {
        $this->broker = $broker ?? Broker::fromEnvironment();
        $this->planner = new Planner($this->broker, $directHosts);
        $this->curl = new CurlHandlers($maxHandles);
    }

    /** …])`. => Creates a handler with Guzzle's usual middleware, for `new Client(['handler' => …])`. => …])`. */
    public static function stack(?self $handler = null): HandlerStack
    {
        return HandlerStack::create($handler ?? new self());
    }

    /** @param array<string, mixed> $options */
    public function __invoke(RequestInterface $request, array $options): PromiseInterface
    {
        foreach (Listener::RESERVED as $field) {
            if ($request->hasHeader($field)) {
                $request = $request->withoutHeader($field);
            }
        }
        $streamed = !empty($options['stream']) && ini_get('allow_url_fopen');
        $body = $request->getBody();
        $size = $request->hasHeader('Content-Length') ? (int) $request->getHeaderLine('Content-Length') : null;
        if (!$body->isSeekable() && ($streamed || ($size !== null && $size < self::SMALL_BODY))) {
            $request = $request->withBody(Psr7::streamFor((string) $body));
        }
        $route = $this->planner->plan($request, $options);
        unset($options['hearth']);
        return match (true) {
            $streamed && $route === null => (new StreamHandler())($request, $options),
            $streamed => (new SocketHandler($this->broker))($request, $options, $route),
            $route === null => ($this->curl)($request, $options),
            default => $this->through($request, $options, $route),
        };
    }

    /** @param array<string, mixed> $options */
    private function through(RequestInterface $request, array $options, Route $route): PromiseInterface
    {
        $promise = ($this->curl)($request, Callbacks::wrap($options, $route));
        // A call that has already ended with a result needs no turn of the promises' queue.
        $ended = $promise instanceof FulfilledPromise || $promise instanceof RejectedPromise;
        if ($ended && !$route->void()) {
            return $promise;
        }
        return $promise->then(
            fn (ResponseInterface $response) => $route->verdict === null ? $response : $this->apply($request, $options, $route),
            fn (mixed $reason) => $route->unreachable ? $this->direct($request, $options, $route) : Create::rejectionFor($reason),
        );
    }

    /** @param array<string, mixed> $options */
    private function apply(RequestInterface $request, array $options, Route $route): PromiseInterface
    {
        $verdict = $route->verdict;
        if ($verdict->direct()) {
            return $this->direct($request, $options, $route);
        }
        $stats = $route->stats === null ? null : $route->amend($route->stats, null, $verdict->errno);
        if ($stats !== null && isset($options['on_stats'])) {
            ($options['on_stats'])($stats);
        }
        return Create::rejectionFor(Rejection::of($verdict, $request, $stats?->getHandlerStats() ?? []));
    }

    /** @param array<string, mixed> $options */
    private function direct(RequestInterface $request, array $options, Route $route): PromiseInterface
    {
        $trouble = $route->unreachable ? 'its socket cannot be connected to' : $route->verdict?->trouble();
        if ($trouble !== null) {
            $this->broker->gone($trouble);
        }
        return ($this->curl)($request, $route->later($options));
    }
}
