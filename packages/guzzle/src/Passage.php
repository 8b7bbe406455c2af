<?php

/** One call on its way through the broker's door: what is set on its curl handle, and what came back besides the answer. */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\Handler\EasyHandle;
use GuzzleHttp\TransferStats;
use Hearth\Egress\Door;
use Hearth\Egress\Target;
use Hearth\Egress\Timing;
use Hearth\Egress\Verdict;
use Psr\Http\Message\ResponseInterface;

/** @internal */
final class Passage
{
    /** The option under which the handler gives this to the factory. */
    public const OPTION = 'hearth.passage';

    /** CURLE_COULDNT_CONNECT: before there is any answer it is the broker's socket that was not there. */
    private const NOT_CONNECTED = 7;

    public ?EasyHandle $easy = null;
    public ?Verdict $verdict = null;
    public ?Timing $timing = null;

    /** What curl measured, kept for an error that is known only after the answer. */
    public ?TransferStats $stats = null;

    public bool $unreachable = false;

    /** Seconds of the clock, when the call began. */
    public readonly float $begin;

    public function __construct(
        public readonly Door $door,
        public readonly Target $target,
        /** The value of Hearth-Control. */
        public readonly string $control,
        private readonly bool $http2,
    ) {
        $this->begin = microtime(true);
    }

    /** Sends a finished handle through the door. */
    public function enter(EasyHandle $easy): void
    {
        $this->easy = $easy;
        $this->verdict = $this->timing = $this->stats = null;
        $this->unreachable = false;
        $options = [
            CURLOPT_URL => Door::URL,
            CURLOPT_REQUEST_TARGET => $this->target->absolute(),
            CURLOPT_UNIX_SOCKET_PATH => $this->door->socket,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_PROXY => '',
            CURLOPT_NOPROXY => '*',
            // A unix socket is of neither family.
            CURLOPT_IPRESOLVE => CURL_IPRESOLVE_WHATEVER,
            // One call per connection: on a kept one libcurl would send a POST again by itself.
            CURLOPT_FRESH_CONNECT => true,
            CURLOPT_FORBID_REUSE => true,
        ];
        if ($this->target->user !== null) {
            // As libcurl does with those of a URL; a field Authorization of the caller's comes before them.
            $options[CURLOPT_USERNAME] = $this->target->user;
            $options[CURLOPT_PASSWORD] = $this->target->password ?? '';
        }
        curl_setopt_array($easy->handle, $options);
    }

    /** The handle has done its work. */
    public function leave(EasyHandle $easy): void
    {
        $this->unreachable = $easy->errno === self::NOT_CONNECTED && $easy->headers === [];
        $this->easy = null;
    }

    /** In Guzzle 7 statistics are told before the handle is released. */
    public function refused(TransferStats $stats): bool
    {
        return $stats->getHandlerErrorData() === self::NOT_CONNECTED && !$stats->hasResponse();
    }

    /** Nothing came of it: the caller's callbacks hear nothing. */
    public function void(): bool
    {
        return $this->verdict !== null || $this->unreachable;
    }

    /** The answer as the origin gave it; null: it is the broker's own. */
    public function receive(ResponseInterface $response): ?ResponseInterface
    {
        foreach ([Verdict::DECLINED, Verdict::FAILED] as $name) {
            if ($response->hasHeader($name)) {
                $this->verdict = Verdict::read($name, $response->getHeaderLine($name));
                if ($this->easy !== null) {
                    // What the broker says to people is not for the caller's sink.
                    $drop = static fn (\CurlHandle $handle, string $piece): int => strlen($piece);
                    curl_setopt($this->easy->handle, CURLOPT_WRITEFUNCTION, $drop);
                }
                return null;
            }
        }
        if ($response->hasHeader(Timing::FIELD)) {
            $this->timing = Timing::read($response->getHeaderLine(Timing::FIELD));
            $response = $response->withoutHeader(Timing::FIELD);
            if ($this->http2 && $this->timing?->protocol === '2') {
                $response = $response->withProtocolVersion('2');
            }
        }
        return $response;
    }

    /** What curl measured, with the origin in place of the broker's socket. */
    public function amend(TransferStats $stats, ?ResponseInterface $response, mixed $error): TransferStats
    {
        $info = Timing::amend($stats->getHandlerStats(), (string) $stats->getRequest()->getUri()->withFragment(''), $this->timing);
        return new TransferStats($stats->getRequest(), $response, $stats->getTransferTime(), $error, $info);
    }
}
