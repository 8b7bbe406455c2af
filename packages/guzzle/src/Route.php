<?php

/** The route of one call through the broker's listener: options of its curl handle, and what the broker reported beside the response. */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\Handler\EasyHandle;
use GuzzleHttp\TransferStats;
use Hearth\Egress\Listener;
use Hearth\Egress\Target;
use Hearth\Egress\Timing;
use Hearth\Egress\Verdict;
use Psr\Http\Message\ResponseInterface;

/** @internal */
final class Route
{
    /** The option in which the handler passes the route to the factory. */
    public const OPTION = 'hearth.route';

    /** CURLE_COULDNT_CONNECT: without a response it means that the broker's socket cannot be connected to. */
    private const NOT_CONNECTED = 7;

    public ?EasyHandle $easy = null;
    public ?Verdict $verdict = null;
    public ?Timing $timing = null;
    public bool $unreachable = false;

    /** Statistics of curl, kept for an error that is known only after the response. */
    public ?TransferStats $stats = null;

    /** When the call began: seconds, as microtime() returns them. */
    public readonly float $begin;

    /** @param string $control the value of Hearth-Control */
    public function __construct(
        public readonly Listener $listener,
        public readonly Target $target,
        public readonly string $control,
        private readonly bool $http2,
    ) {
        $this->begin = microtime(true);
    }

    /** Sets the finished handle to go through the listener. */
    public function enter(EasyHandle $easy): void
    {
        [$this->easy, $this->unreachable] = [$easy, false];
        $this->verdict = $this->timing = $this->stats = null;
        curl_setopt_array($easy->handle, $this->listener->curl($this->target));
    }

    /** The transfer of the handle has ended. */
    public function leave(EasyHandle $easy): void
    {
        $this->unreachable = $easy->errno === self::NOT_CONNECTED && $easy->headers === [];
        $this->easy = null;
    }

    /** Returns whether the socket refused the connection: Guzzle 7 reports statistics before it
     * releases the handle. */
    public function refused(TransferStats $stats): bool
    {
        return $stats->getHandlerErrorData() === self::NOT_CONNECTED && !$stats->hasResponse();
    }

    /** Returns whether the attempt has no result: then the caller's callbacks are not called. */
    public function void(): bool
    {
        return $this->verdict !== null || $this->unreachable;
    }

    /** Returns the origin's response; null: the response is the broker's own. */
    public function receive(ResponseInterface $response): ?ResponseInterface
    {
        $verdict = Verdict::find(array_change_key_case($response->getHeaders()));
        if ($verdict !== null) {
            $this->verdict = $verdict;
            if ($this->easy !== null) {
                // The broker's explanation does not belong into the caller's sink.
                curl_setopt($this->easy->handle, CURLOPT_WRITEFUNCTION, static fn (object $handle, string $piece): int => strlen($piece));
            }
            return null;
        }
        if (!$response->hasHeader(Timing::FIELD)) {
            return $response;
        }
        $this->timing = Timing::read($response->getHeaderLine(Timing::FIELD));
        $response = $response->withoutHeader(Timing::FIELD);
        return $this->http2 && $this->timing?->protocol === '2' ? $response->withProtocolVersion('2') : $response;
    }

    /** Statistics of curl, with the origin in place of the broker's socket. */
    public function amend(TransferStats $stats, ?ResponseInterface $response, mixed $error): TransferStats
    {
        $request = $stats->getRequest();
        $info = Timing::amend($stats->getHandlerStats(), (string) $request->getUri()->withFragment(''), $this->timing);
        return new TransferStats($request, $response, $stats->getTransferTime(), $error, $info);
    }

    /**
     * Options for a direct attempt: time that has passed is not waited for again.
     *
     * @param array<string, mixed> $options
     * @return array<string, mixed>
     */
    public function later(array $options): array
    {
        unset($options['delay']);
        if (!empty($options['timeout']) && is_numeric($options['timeout'])) {
            $options['timeout'] = max(0.001, $options['timeout'] - (microtime(true) - $this->begin));
        }
        return $options;
    }
}
