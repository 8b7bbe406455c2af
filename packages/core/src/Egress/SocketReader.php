<?php

/**
 * Reads the body of a response from the broker's socket while it arrives. A truncated body in chunks is an exception; one with a length
 * ends early, as with PHP's own streams.
 */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class SocketReader
{
    private const PIECE = 65_536;

    /** Longest line with the length of a chunk, extensions included. */
    private const LONGEST_LINE = 16_384;

    private bool $ended = false;
    private int $position = 0;

    /** Bytes left of the chunk, or of the whole body; null: before a chunk, or until the connection ends. */
    private ?int $left;

    /** @param resource $socket with the head of the response read, and `$read` beyond it */
    public function __construct(private $socket, private string $read, ?int $length, private readonly bool $chunked)
    {
        $this->left = $chunked ? null : $length;
        $this->ended = $length === 0;
    }

    /** Returns up to this many bytes; an empty string means the end or a time-out. */
    public function read(int $length): string
    {
        if ($this->chunked && $this->left === null && !$this->ended) {
            $this->left = $this->chunk();
            $this->ended = $this->left === 0;
        }
        if ($this->ended || $length <= 0) {
            return '';
        }
        if ($this->read === '') {
            $this->fill();
        }
        $piece = substr($this->read, 0, min($length, $this->left ?? $length));
        $this->read = substr($this->read, strlen($piece));
        if ($piece === '') {
            // A time-out is not the end.
            $this->ended = $this->socket === null || feof($this->socket);
            return $this->ended && $this->chunked ? throw new \RuntimeException('The body ended before its end') : '';
        }
        $this->position += strlen($piece);
        $this->left = $this->left === null ? null : $this->left - strlen($piece);
        if ($this->left === 0) {
            $this->left = $this->chunked ? $this->afterChunk() : 0;
            $this->ended = !$this->chunked;
        }
        return $piece;
    }

    /** Length of the next chunk; 0: that was the last, and its trailers are skipped. */
    private function chunk(): int
    {
        if (preg_match('/^([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?$/D', $this->line(), $found) !== 1) {
            throw new \RuntimeException('The body is not in chunks as it says');
        }
        $length = (int) hexdec($found[1]);
        while ($length === 0 && $this->line() !== '') {
        }
        return $length;
    }

    private function afterChunk(): ?int
    {
        return $this->line() === '' ? null : throw new \RuntimeException('The body is not in chunks as it says');
    }

    private function line(): string
    {
        while (($end = strpos($this->read, "\r\n")) === false) {
            if (!$this->fill() || strlen($this->read) > self::LONGEST_LINE) {
                throw new \RuntimeException('The body ended before its end');
            }
        }
        $line = substr($this->read, 0, $end);
        $this->read = substr($this->read, $end + 2);
        return $line;
    }

    private function fill(): bool
    {
        $piece = $this->socket === null ? '' : (string) fread($this->socket, self::PIECE);
        $this->read .= $piece;
        return $piece !== '';
    }

    public function ended(): bool
    {
        return $this->ended;
    }

    /** Bytes of the body that were returned. */
    public function position(): int
    {
        return $this->position;
    }

    /** @return array<string, mixed> of stream_get_meta_data(); empty: the socket is closed */
    public function metadata(): array
    {
        return $this->socket === null ? [] : stream_get_meta_data($this->socket);
    }

    /** Ends the body and closes the connection; not now: when nothing else refers to it. */
    public function close(bool $now = true): void
    {
        if ($now && $this->socket !== null) {
            fclose($this->socket);
        }
        $this->socket = null;
        $this->read = '';
        $this->ended = true;
    }
}
