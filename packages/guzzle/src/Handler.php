<?php

/**
 * The Guzzle handler: calls go through the egress broker where they may, and directly where they may not or where the broker declines.
 *
 * Promises
 * - A call goes out at most once: directly only when nothing of it has reached the origin.
 * - Options, callbacks and exceptions are those of Guzzle's own handlers.
 * - One of these may serve a whole process: handles and their connections are kept, cookies are not, and a forked process starts afresh.
 */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\Handler\CurlFactory;
use GuzzleHttp\Handler\CurlHandler;
use GuzzleHttp\Handler\CurlMultiHandler;
use GuzzleHttp\Handler\StreamHandler;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Promise\Create;
use GuzzleHttp\Promise\FulfilledPromise;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\Promise\RejectedPromise;
use GuzzleHttp\Psr7\Utils as Psr7;
use GuzzleHttp\TransferStats;
use Hearth\Egress\Broker;
use Hearth\Egress\Door;
use Hearth\Egress\SharedConnections;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

final class Handler
{
    /** Up to here Guzzle reads a body into memory anyway (CurlFactory::applyBody()). */
    private const SMALL_BODY = 1_000_000;

    /** @var list<object> handlers of a process that this one was forked from: to end them would end its connections */
    private static array $inherited = [];

    private readonly Broker $broker;
    private readonly Planner $planner;
    private CurlHandler $single;
    private CurlMultiHandler $many;
    private int $process = 0;

    /**
     * @param int $maxHandles how many idle curl handles are kept, each with the connections it has made
     * @param list<string> $directHosts names that are never called through the broker; `*.example.com` for all below one
     */
    public function __construct(?Broker $broker = null, private readonly int $maxHandles = 50, array $directHosts = [])
    {
        $this->broker = $broker ?? Broker::fromEnvironment();
        $this->planner = new Planner($this->broker, $directHosts);
    }

    /** With Guzzle's usual middleware around it, for `new Client(['handler' => …])`. */
    public static function stack(?self $handler = null): HandlerStack
    {
        return HandlerStack::create($handler ?? new self());
    }

    /** @param array<string, mixed> $options */
    public function __invoke(RequestInterface $request, array $options): PromiseInterface
    {
        $this->prepare();
        foreach (Door::RESERVED as $field) {
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
        $passage = $this->planner->plan($request, $options);
        unset($options['hearth']);
        if ($streamed) {
            return $passage === null
                ? (new StreamHandler())($request, $options)
                : (new SocketHandler($this->broker))($request, $options, $passage);
        }
        return $passage === null ? $this->curl($request, $options) : $this->through($request, $options, $passage);
    }

    /** @param array<string, mixed> $options */
    private function curl(RequestInterface $request, array $options): PromiseInterface
    {
        return empty($options['synchronous']) ? ($this->many)($request, $options) : ($this->single)($request, $options);
    }

    /** @param array<string, mixed> $options */
    private function through(RequestInterface $request, array $options, Passage $passage): PromiseInterface
    {
        $promise = $this->curl($request, self::listening($options, $passage));
        // A call that has ended, and well, needs no turn of the promises' queue.
        $ended = $promise instanceof FulfilledPromise || $promise instanceof RejectedPromise;
        if ($ended && !$passage->void()) {
            return $promise;
        }
        return $promise->then(
            fn (ResponseInterface $response) => $passage->verdict === null ? $response : $this->judge($request, $options, $passage),
            fn (mixed $reason) => $passage->unreachable ? $this->direct($request, $options, $passage) : Create::rejectionFor($reason),
        );
    }

    /** @param array<string, mixed> $options */
    private function judge(RequestInterface $request, array $options, Passage $passage): PromiseInterface
    {
        $verdict = $passage->verdict;
        if ($verdict->direct()) {
            return $this->direct($request, $options, $passage);
        }
        $stats = $passage->stats === null ? null : $passage->amend($passage->stats, null, $verdict->errno);
        if ($stats !== null && isset($options['on_stats'])) {
            ($options['on_stats'])($stats);
        }
        return Create::rejectionFor(Rejection::of($verdict, $request, $stats?->getHandlerStats() ?? []));
    }

    /** @param array<string, mixed> $options */
    private function direct(RequestInterface $request, array $options, Passage $passage): PromiseInterface
    {
        $trouble = $passage->unreachable ? 'its socket cannot be connected to' : $passage->verdict?->trouble();
        if ($trouble !== null) {
            $this->broker->gone($trouble);
        }
        return $this->curl($request, self::later($options, microtime(true) - $passage->begin));
    }

    /**
     * The options for a second attempt: what has been waited for is not waited for again.
     *
     * @param array<string, mixed> $options
     * @return array<string, mixed>
     */
    public static function later(array $options, float $seconds): array
    {
        unset($options['delay']);
        if (!empty($options['timeout']) && is_numeric($options['timeout'])) {
            $options['timeout'] = max(0.001, $options['timeout'] - $seconds);
        }
        return $options;
    }

    /**
     * The caller's callbacks, which hear of the origin's answer only.
     *
     * @param array<string, mixed> $options
     * @return array<string, mixed>
     */
    private static function listening(array $options, Passage $passage): array
    {
        $options[Passage::OPTION] = $passage;
        $onHeaders = $options['on_headers'] ?? null;
        if ($onHeaders === null || is_callable($onHeaders)) {
            $options['on_headers'] = static function (ResponseInterface $response, mixed ...$more) use ($onHeaders, $passage): void {
                $response = $passage->receive($response);
                if ($response === null) {
                    return;
                }
                if ($passage->easy !== null) {
                    $passage->easy->response = $response;
                }
                if ($onHeaders !== null) {
                    $onHeaders($response, ...$more);
                }
            };
        }
        $onStats = $options['on_stats'] ?? null;
        if (is_callable($onStats)) {
            $options['on_stats'] = static function (TransferStats $stats) use ($onStats, $passage): void {
                $passage->stats = $stats;
                if (!$passage->void() && !$passage->refused($stats)) {
                    $onStats($passage->amend($stats, $stats->getResponse(), $stats->getHandlerErrorData()));
                }
            };
        }
        $onTrailers = $options['on_trailers'] ?? null;
        if (is_callable($onTrailers)) {
            $options['on_trailers'] = static function (mixed ...$arguments) use ($onTrailers, $passage): mixed {
                return $passage->void() ? null : $onTrailers(...$arguments);
            };
        }
        return $options;
    }

    /** Makes the inner handlers: at the first call, and again in a process that was forked since. */
    private function prepare(): void
    {
        $process = (int) getmypid();
        if ($this->process === $process) {
            return;
        }
        if ($this->process !== 0) {
            self::$inherited[] = $this->single;
            self::$inherited[] = $this->many;
        }
        $share = SharedConnections::get();
        // Two kinds: a handle that has been part of a curl_multi loses the connections it had of its own.
        $this->single = new CurlHandler(['handle_factory' => new Factory(new CurlFactory($this->maxHandles), $share)]);
        $this->many = new CurlMultiHandler(['handle_factory' => new Factory(new CurlFactory($this->maxHandles), $share)]);
        $this->process = $process;
    }
}
