<?php

/**
 * Calls with `stream => true`, whose body is read while it comes: Guzzle makes them without curl, so this speaks with the broker itself.
 * Promises: what Guzzle's StreamHandler does with an option is done here, too; where the broker declines, the StreamHandler makes the call.
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
use GuzzleHttp\Psr7\InflateStream;
use GuzzleHttp\Psr7\Response;
use GuzzleHttp\Psr7\Utils as Psr7;
use GuzzleHttp\TransferStats;
use GuzzleHttp\Utils;
use Hearth\Egress\Broker;
use Hearth\Egress\Door;
use Hearth\Egress\Timing;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

/** @internal */
final class SocketHandler
{
    /** What is read or written at once. */
    private const PIECE = 65_536;

    /** The head of an answer is no longer than this: libcurl's limit for all of it, CURL_MAX_HTTP_HEADER. */
    private const LONGEST_HEAD = 307_200;

    /** Of the process: the broker is asked for again where it was not there. */
    public function __construct(private readonly Broker $broker)
    {
    }

    /** @param array<string, mixed> $options */
    public function __invoke(RequestInterface $request, array $options, Passage $passage): PromiseInterface
    {
        if (!empty($options['delay'])) {
            usleep((int) ($options['delay'] * 1000));
            unset($options['delay']);
        }
        $body = (string) $request->getBody();
        $wire = $request->withoutHeader('Expect');
        $socket = @stream_socket_client("unix://{$passage->door->socket}", $errno, $error, 10);
        if ($socket === false) {
            $this->broker->gone($error);
            return $this->direct($request, $options, $passage);
        }
        try {
            [$head, $rest] = $this->exchange($socket, self::head($wire, $passage, $body) . $body, $options);
            $response = $head === null ? null : $passage->receive($this->response($head));
        } catch (\RuntimeException $e) {
            return $this->fail($e->getMessage(), $request, $options, $passage, $e);
        }
        $verdict = $passage->verdict;
        if ($verdict !== null) {
            if ($verdict->trouble() !== null) {
                $this->broker->gone($verdict->trouble());
            }
            return $verdict->direct()
                ? $this->direct($request, $options, $passage)
                : $this->fail($verdict->message, $request, $options, $passage);
        }
        if ($response === null) {
            return $this->fail('the connection ended before there was an answer', $request, $options, $passage);
        }
        return $this->deliver($socket, $rest, $response, $request, $options, $passage);
    }

    /** @param array<string, mixed> $options */
    private function direct(RequestInterface $request, array $options, Passage $passage): PromiseInterface
    {
        return (new StreamHandler())($request, Handler::later($options, microtime(true) - $passage->begin));
    }

    private static function head(RequestInterface $request, Passage $passage, string $body): string
    {
        $head = "{$request->getMethod()} {$passage->target->absolute()} HTTP/1.1\r\n";
        if (!$request->hasHeader('Host')) {
            $head .= "Host: {$passage->target->authority()}\r\n";
        }
        if ($passage->target->user !== null && !$request->hasHeader('Authorization')) {
            $head .= 'Authorization: Basic ' . base64_encode("{$passage->target->user}:{$passage->target->password}") . "\r\n";
        }
        // The length is known, whatever the caller thought of sending.
        $request = $request->withoutHeader('Transfer-Encoding')->withoutHeader('Content-Length')->withoutHeader('Connection');
        foreach ($request->getHeaders() as $name => $values) {
            foreach ($values as $value) {
                $head .= "{$name}: {$value}\r\n";
            }
        }
        if ($body !== '' || in_array($request->getMethod(), ['POST', 'PUT', 'PATCH'], true)) {
            $head .= 'Content-Length: ' . strlen($body) . "\r\n";
        }
        foreach (Door::trace() as $name => $value) {
            $head .= "{$name}: {$value}\r\n";
        }
        return $head . Door::CONTROL . ": {$passage->control}\r\nConnection: close\r\n\r\n";
    }

    /**
     * Sends all of it while listening, for an answer may come first; returns the final head, or null, and what was read beyond it.
     * What an origin answers while it reads is kept in memory until all is sent.
     *
     * @param resource $socket
     * @param array<string, mixed> $options
     * @return array{?string, string}
     */
    private function exchange($socket, string $message, array $options): array
    {
        stream_set_blocking($socket, false);
        $timeout = (float) ($options['timeout'] ?? 0);
        $limit = $timeout > 0 ? microtime(true) + $timeout : null;
        $head = null;
        $read = '';
        $sent = 0;
        while ($head === null || $sent < strlen($message)) {
            [$readable, $writable, $none] = [[$socket], $sent < strlen($message) ? [$socket] : [], null];
            $left = $limit === null ? 60.0 : $limit - microtime(true);
            if ($left <= 0) {
                throw new \RuntimeException(sprintf('Operation timed out after %d milliseconds', 1000 * $timeout));
            }
            if (@stream_select($readable, $writable, $none, (int) $left, (int) (1e6 * ($left - (int) $left))) === false) {
                continue;
            }
            if ($readable !== []) {
                $piece = (string) fread($socket, self::PIECE);
                $read .= $piece;
                while ($head === null && ($end = strpos($read, "\r\n\r\n")) !== false) {
                    $one = substr($read, 0, $end);
                    $read = substr($read, $end + 4);
                    // Interim answers are not for a caller without curl.
                    $head = preg_match('#^HTTP/1\.[01] 1[0-9]{2}[ \r]#', "{$one}\r") === 1 ? null : $one;
                }
                if ($head === null && strlen($read) > self::LONGEST_HEAD) {
                    throw new \RuntimeException('the head of the answer is too long');
                }
                if ($piece === '' && feof($socket)) {
                    break;
                }
            }
            if ($writable !== []) {
                $written = @fwrite($socket, substr($message, $sent, self::PIECE));
                // What was not wanted is not sent; the answer is there, or never comes.
                $sent = $written === false ? strlen($message) : $sent + $written;
            }
        }
        return [$head, $read];
    }

    private function response(string $head): ResponseInterface
    {
        $lines = explode("\r\n", $head);
        if (preg_match('#^HTTP/(1\.[01]) ([0-9]{3})(?: (.*))?$#D', array_shift($lines), $status) !== 1) {
            throw new \RuntimeException('the answer is no HTTP');
        }
        return new Response((int) $status[2], Utils::headersFromLines($lines), null, $status[1], $status[3] ?? null);
    }

    /**
     * @param resource $socket
     * @param array<string, mixed> $options
     */
    private function deliver(
        $socket,
        string $rest,
        ResponseInterface $response,
        RequestInterface $request,
        array $options,
        Passage $passage
    ): PromiseInterface {
        stream_set_blocking($socket, true);
        $timeout = (float) ($options['read_timeout'] ?? ini_get('default_socket_timeout'));
        stream_set_timeout($socket, (int) $timeout, (int) (1e6 * ($timeout - (int) $timeout)));
        $bodyless = $request->getMethod() === 'HEAD' || in_array($response->getStatusCode(), [204, 304], true);
        $chunked = strcasecmp($response->getHeaderLine('Transfer-Encoding'), 'chunked') === 0;
        $length = $response->getHeaderLine('Content-Length');
        $total = ctype_digit($length) ? (int) $length : null;
        $progress = $options['progress'] ?? null;
        $watch = static function (int $read) use ($total, $progress): void {
            if (is_callable($progress)) {
                $progress((int) $total, $read, 0, 0);
            }
        };
        $body = $bodyless ? Psr7::streamFor('') : new SocketBody($socket, $rest, $total, $chunked, $watch);
        $encoding = strtolower($response->getHeaderLine('Content-Encoding'));
        if (!empty($options['decode_content']) && in_array($encoding, ['gzip', 'deflate'], true) && !$bodyless) {
            $body = new InflateStream($body);
            $response = $response->withoutHeader('Content-Encoding')->withoutHeader('Content-Length');
            $response = $response->withHeader('x-encoded-content-encoding', $encoding);
            $response = $length === '' ? $response : $response->withHeader('x-encoded-content-length', $length);
        }
        $response = $response->withBody($body);
        if (is_callable($options['on_headers'] ?? null)) {
            try {
                $options['on_headers']($response, ...(ClientInterface::MAJOR_VERSION >= 8 ? [$request] : []));
            } catch (\Exception $e) {
                return Create::rejectionFor(RequestException::create($request, $response, $e));
            }
        }
        $this->tell($options, $request, $passage, $response, null);
        return new FulfilledPromise($response);
    }

    /** @param array<string, mixed> $options */
    private function fail(
        string $message,
        RequestInterface $request,
        array $options,
        Passage $passage,
        ?\Throwable $cause = null
    ): PromiseInterface {
        $uri = (string) $request->getUri()->withUserInfo('');
        $message = "{$message} for URI {$uri}";
        // What the StreamHandlers of both make of a call without an answer.
        $e = ClientInterface::MAJOR_VERSION >= 8
            ? new RequestException($message, $request, 0, $cause)
            : new ConnectException($message, $request, $cause);
        $this->tell($options, $request, $passage, null, $e);
        return Create::rejectionFor($e);
    }

    /** @param array<string, mixed> $options */
    private function tell(
        array $options,
        RequestInterface $request,
        Passage $passage,
        ?ResponseInterface $response,
        ?\Throwable $error
    ): void {
        if (is_callable($options['on_stats'] ?? null)) {
            $info = $passage->timing === null ? [] : Timing::amend([], (string) $request->getUri()->withFragment(''), $passage->timing);
            ($options['on_stats'])(new TransferStats($request, $response, microtime(true) - $passage->begin, $error, $info));
        }
    }
}
