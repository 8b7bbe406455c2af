<?php

/**
 * Calls with `stream => true`, whose body is read while it arrives. Guzzle makes them without curl, so they go over the broker's
 * socket. Promises: options have the same meaning as for Guzzle's StreamHandler; if the broker declines, the StreamHandler makes the
 * call.
 */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\ClientInterface;
use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\Exception\RequestException;
use GuzzleHttp\Handler\StreamHandler;
use GuzzleHttp\Promise\Create;
use GuzzleHttp\Promise\FulfilledPromise;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\TransferStats;
use Hearth\Egress\Broker;
use Hearth\Egress\SocketCall;
use Hearth\Egress\SocketRequest;
use Hearth\Egress\Timing;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

/** @internal */
final class SocketHandler
{
    public function __construct(private readonly Broker $broker)
    {
    }

    /** @param array<string, mixed> $options */
    public function __invoke(RequestInterface $request, array $options, Route $route): PromiseInterface
    {
        if (!empty($options['delay'])) {
            usleep((int) ($options['delay'] * 1000));
            unset($options['delay']);
        }
        try {
            $call = SocketCall::open($route->listener);
        } catch (\UnexpectedValueException $e) {
            $this->broker->gone($e->getMessage());
            return (new StreamHandler())($request, $route->later($options));
        }
        try {
            $head = $call->exchange(self::message($request, $route), (float) ($options['timeout'] ?? 0));
            $response = $head === null ? null : $route->receive(StreamedResponse::parse($head));
        } catch (\RuntimeException $e) {
            return $this->fail($e->getMessage(), $request, $options, $route, $e);
        }
        $trouble = $route->verdict?->trouble();
        if ($trouble !== null) {
            $this->broker->gone($trouble);
        }
        return match (true) {
            $route->verdict?->direct() === true => (new StreamHandler())($request, $route->later($options)),
            $route->verdict !== null => $this->fail($route->verdict->message, $request, $options, $route),
            $response === null => $this->fail('the connection ended before there was an answer', $request, $options, $route),
            default => $this->deliver(StreamedResponse::of($response, $call, $request, $options), $request, $options, $route),
        };
    }

    private static function message(RequestInterface $request, Route $route): string
    {
        $fields = [];
        foreach ($request->getHeaders() as $name => $values) {
            foreach ($values as $value) {
                $fields[] = [(string) $name, $value];
            }
        }
        return SocketRequest::message($request->getMethod(), $route->target, $fields, (string) $request->getBody(), $route->control);
    }

    /** @param array<string, mixed> $options */
    private function deliver(ResponseInterface $response, RequestInterface $request, array $options, Route $route): PromiseInterface
    {
        if (is_callable($options['on_headers'] ?? null)) {
            try {
                $options['on_headers']($response, ...(ClientInterface::MAJOR_VERSION >= 8 ? [$request] : []));
            } catch (\Exception $e) {
                return Create::rejectionFor(RequestException::create($request, $response, $e));
            }
        }
        self::report($options, $request, $route, $response, null);
        return new FulfilledPromise($response);
    }

    /** @param array<string, mixed> $options */
    private function fail(
        string $message,
        RequestInterface $request,
        array $options,
        Route $route,
        ?\Throwable $cause = null
    ): PromiseInterface {
        $uri = (string) $request->getUri()->withUserInfo('');
        $message = "{$message} for URI {$uri}";
        // The exceptions of both StreamHandlers for a call without a response.
        $e = ClientInterface::MAJOR_VERSION >= 8
            ? new RequestException($message, $request, 0, $cause)
            : new ConnectException($message, $request, $cause);
        self::report($options, $request, $route, null, $e);
        return Create::rejectionFor($e);
    }

    /** @param array<string, mixed> $options */
    private static function report(
        array $options,
        RequestInterface $request,
        Route $route,
        ?ResponseInterface $response,
        ?\Throwable $error
    ): void {
        if (is_callable($options['on_stats'] ?? null)) {
            $info = $route->timing === null ? [] : Timing::amend([], (string) $request->getUri()->withFragment(''), $route->timing);
            ($options['on_stats'])(new TransferStats($request, $response, microtime(true) - $route->begin, $error, $info));
        }
    }
}
