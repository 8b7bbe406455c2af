<?php

/** Builds the response of a streamed call: its head, and a body that is read from the broker's socket and decoded as StreamHandler does. */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\Psr7\InflateStream;
use GuzzleHttp\Psr7\Response;
use GuzzleHttp\Psr7\Utils as Psr7;
use GuzzleHttp\Utils;
use Hearth\Egress\SocketCall;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

/** @internal */
final class StreamedResponse
{
    private function __construct()
    {
    }

    public static function parse(string $head): ResponseInterface
    {
        $lines = explode("\r\n", $head);
        if (preg_match('#^HTTP/(1\.[01]) ([0-9]{3})(?: (.*))?$#D', array_shift($lines), $status) !== 1) {
            throw new \RuntimeException('the answer is no HTTP');
        }
        return new Response((int) $status[2], Utils::headersFromLines($lines), null, $status[1], $status[3] ?? null);
    }

    /** @param array<string, mixed> $options */
    public static function of(ResponseInterface $response, SocketCall $call, RequestInterface $request, array $options): ResponseInterface
    {
        if ($request->getMethod() === 'HEAD' || in_array($response->getStatusCode(), [204, 304], true)) {
            return $response->withBody(Psr7::streamFor(''));
        }
        $chunked = strcasecmp($response->getHeaderLine('Transfer-Encoding'), 'chunked') === 0;
        $length = $response->getHeaderLine('Content-Length');
        $total = ctype_digit($length) ? (int) $length : null;
        $timeout = (float) ($options['read_timeout'] ?? ini_get('default_socket_timeout'));
        $progress = $options['progress'] ?? null;
        $watch = static function (int $read) use ($total, $progress): void {
            if (is_callable($progress)) {
                $progress((int) $total, $read, 0, 0);
            }
        };
        $body = new SocketBody($call->body($total, $chunked, $timeout), $watch);
        $encoding = strtolower($response->getHeaderLine('Content-Encoding'));
        if (empty($options['decode_content']) || !in_array($encoding, ['gzip', 'deflate'], true)) {
            return $response->withBody($body);
        }
        $response = $response->withoutHeader('Content-Encoding')->withoutHeader('Content-Length');
        $response = $response->withHeader('x-encoded-content-encoding', $encoding);
        $response = $length === '' ? $response : $response->withHeader('x-encoded-content-length', $length);
        return $response->withBody(new InflateStream($body));
    }
}
