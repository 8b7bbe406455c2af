<?php

/**
 * Sends to clients whose WebSockets the application handles: of Hearth, by hearth_socket_send() or, where a PHP process lacks the extension, over the
 * server's socket; on Lambda through API Gateway's @connections. Promises: one handler serves both.
 */

declare(strict_types=1);

namespace Hearth\Realtime;

use Hearth\Lambda\ApiGateway\Connections;

final class Sockets
{
    /** Seconds for each step of a call to the server, which waits for no client. */
    private const WAIT = 5;

    /** @param array<int, mixed> $curl options of curl for calls to API Gateway */
    public function __construct(private readonly array $curl = [])
    {
    }

    /**
     * @param bool $binary a binary message; API Gateway has texts only
     * @return bool false: there is no such connection, or its client does not read
     */
    public function send(string $id, string $data, bool $binary = false): bool
    {
        $gateway = $this->gateway();
        if ($gateway !== null) {
            return $gateway->send($id, $data);
        }
        if (function_exists('hearth_socket_send')) {
            return hearth_socket_send($id, $data, $binary);
        }
        return $this->call('POST', $id, $binary ? '?binary=1' : '', $data);
    }

    /** @return bool false: there is no such connection. API Gateway chooses code and reason itself */
    public function close(string $id, int $code = 1000, string $reason = ''): bool
    {
        $gateway = $this->gateway();
        if ($gateway !== null) {
            return $gateway->close($id);
        }
        if (function_exists('hearth_socket_close')) {
            return hearth_socket_close($id, $code, $reason);
        }
        return $this->call('DELETE', $id, "?code=$code", $reason);
    }

    /** API Gateway, in an event of one of its WebSockets. */
    private function gateway(): ?Connections
    {
        $text = $_SERVER['LAMBDA_REQUEST_CONTEXT'] ?? null;
        if (!is_string($text)) {
            return null;
        }
        $context = json_decode($text, true);
        return is_array($context) && isset($context['connectionId']) ? Connections::inContext($context, $this->curl) : null;
    }

    private function call(string $method, string $id, string $query, string $body): bool
    {
        $path = getenv('HEARTH_SOCKETS');
        if ($path === false || $path === '') {
            throw new \LogicException('There is no server with WebSockets here: run this process under `hearth serve`, or give it HEARTH_SOCKETS of one that is.');
        }
        if (preg_match('/^[A-Za-z0-9_=-]{1,128}$/D', $id) !== 1) {
            return false;
        }
        $socket = @stream_socket_client("unix://$path", $number, $why, self::WAIT);
        if ($socket === false) {
            return false;
        }
        stream_set_timeout($socket, self::WAIT);
        $length = strlen($body);
        $left = "$method /@connections/$id$query HTTP/1.1\r\nHost: hearth\r\nConnection: close\r\nContent-Length: $length\r\n\r\n$body";
        while ($left !== '' && ($written = @fwrite($socket, $left)) > 0) {
            $left = substr($left, $written);
        }
        $status = sscanf((string) fgets($socket), 'HTTP/1.1 %d')[0] ?? 0;
        fclose($socket);
        if ($status === 400) {
            throw new \ValueError($method === 'POST' ? 'A text message must be UTF-8.' : 'The close code is none that may be sent, or its reason is not UTF-8.');
        }
        return $status === 200 || $status === 204;
    }
}
