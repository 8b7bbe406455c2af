<?php

/**
 * One call over the broker's HTTP socket without curl, for responses whose body is read while it arrives. Promises: it reads while it
 * sends, so an early response is noticed; interim responses are skipped.
 */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class SocketCall
{
    /** Bytes that are read or written at once. */
    private const PIECE = 65_536;

    /** Longest head of a response: libcurl's limit CURL_MAX_HTTP_HEADER. */
    private const LONGEST_HEAD = 307_200;

    /** Bytes that were read beyond the head. */
    private string $read = '';

    /** @param resource $socket */
    private function __construct(private $socket)
    {
    }

    /** Connects to the broker; throws an exception with the reason if that fails. */
    public static function open(Listener $listener): self
    {
        $socket = @stream_socket_client("unix://{$listener->socket}", $errno, $error, 10);
        return $socket === false ? throw new \UnexpectedValueException($error) : new self($socket);
    }

    /**
     * Sends the message and returns the final head; null: the connection ended without one. Bytes that arrive while it sends are kept in
     * memory.
     *
     * @param float $timeout seconds; 0: no limit
     */
    public function exchange(string $message, float $timeout): ?string
    {
        stream_set_blocking($this->socket, false);
        $limit = $timeout > 0 ? microtime(true) + $timeout : null;
        $head = null;
        $sent = 0;
        while ($head === null || $sent < strlen($message)) {
            [$readable, $writable, $none] = [[$this->socket], $sent < strlen($message) ? [$this->socket] : [], null];
            $left = $limit === null ? 60.0 : $limit - microtime(true);
            if ($left <= 0) {
                throw new \RuntimeException(sprintf('Operation timed out after %d milliseconds', 1000 * $timeout));
            }
            if (@stream_select($readable, $writable, $none, (int) $left, (int) (1e6 * ($left - (int) $left))) === false) {
                continue;
            }
            if ($readable !== []) {
                $piece = (string) fread($this->socket, self::PIECE);
                $this->read .= $piece;
                $head ??= $this->head();
                if ($piece === '' && feof($this->socket)) {
                    break;
                }
            }
            if ($writable !== []) {
                $written = @fwrite($this->socket, substr($message, $sent, self::PIECE));
                // The broker reads no more: the response has arrived, or never will.
                $sent = $written === false ? strlen($message) : $sent + $written;
            }
        }
        return $head;
    }

    /** Takes the final head from the bytes read; null: it is not complete. */
    private function head(): ?string
    {
        while (($end = strpos($this->read, "\r\n\r\n")) !== false) {
            $head = substr($this->read, 0, $end);
            $this->read = substr($this->read, $end + 4);
            if (preg_match('#^HTTP/1\.[01] 1[0-9]{2}[ \r]#', "{$head}\r") !== 1) {
                return $head;
            }
        }
        return strlen($this->read) <= self::LONGEST_HEAD ? null : throw new \RuntimeException('the head of the answer is too long');
    }

    /**
     * The body that follows the head.
     *
     * @param ?int $length null: in chunks, or until the connection ends
     * @param float $timeout seconds without a byte
     */
    public function body(?int $length, bool $chunked, float $timeout): SocketReader
    {
        stream_set_blocking($this->socket, true);
        stream_set_timeout($this->socket, (int) $timeout, (int) (1e6 * ($timeout - (int) $timeout)));
        return new SocketReader($this->socket, $this->read, $length, $chunked);
    }
}
