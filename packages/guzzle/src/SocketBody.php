<?php

/**
 * The body of an answer, read from the broker's socket while it comes. A body that ends before its end ends with an exception
 * where the chunks show it; one with a length ends early, as PHP's own streams have it.
 */

declare(strict_types=1);

namespace Hearth\Guzzle;

use Psr\Http\Message\StreamInterface;

/** @internal */
final class SocketBody implements StreamInterface
{
    private const PIECE = 65_536;

    /** The line with a chunk's length is no longer than this, with whatever it says besides. */
    private const LONGEST_LINE = 16_384;

    private bool $ended = false;
    private int $position = 0;

    /** Bytes left of the chunk, or of the whole body; null: before a chunk, or until the connection ends. */
    private ?int $left;

    /**
     * @param resource $socket with the head of the answer read
     * @param string $read what has been read beyond the head
     * @param ?int $length of the body; null: by chunks, or until the connection ends
     * @param \Closure(int): void $watch hears how much has come
     */
    public function __construct(
        private $socket,
        private string $read,
        ?int $length,
        private readonly bool $chunked,
        private readonly \Closure $watch,
    ) {
        $this->left = $chunked ? null : $length;
        $this->ended = $length === 0;
    }

    public function read($length): string
    {
        if ($this->chunked && $this->left === null && !$this->ended) {
            $this->left = $this->chunk();
            $this->ended = $this->left === 0;
        }
        if ($this->ended || $length <= 0) {
            return '';
        }
        $want = min($length, $this->left ?? $length);
        if ($this->read === '') {
            $this->fill();
        }
        $piece = substr($this->read, 0, $want);
        $this->read = substr($this->read, strlen($piece));
        if ($piece === '') {
            // A timeout is no end.
            $this->ended = $this->socket === null || feof($this->socket);
            if ($this->ended && $this->chunked) {
                throw new \RuntimeException('The body ended before its end');
            }
            return '';
        }
        $this->position += strlen($piece);
        if ($this->left !== null) {
            $this->left -= strlen($piece);
            if ($this->left === 0) {
                $this->left = $this->chunked ? $this->afterChunk() : 0;
                $this->ended = !$this->chunked;
            }
        }
        ($this->watch)($this->position);
        return $piece;
    }

    /** Length of the next chunk; 0: that was the last. */
    private function chunk(): int
    {
        $line = $this->line();
        if (preg_match('/^([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?$/D', $line, $found) !== 1) {
            throw new \RuntimeException('The body is not in chunks as it says');
        }
        $length = (int) hexdec($found[1]);
        // Trailers are not for a caller without curl.
        while ($length === 0 && $this->line() !== '') {
        }
        return $length;
    }

    private function afterChunk(): ?int
    {
        if ($this->line() !== '') {
            throw new \RuntimeException('The body is not in chunks as it says');
        }
        return null;
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

    public function getContents(): string
    {
        $all = '';
        while (!$this->eof()) {
            $piece = $this->read(self::PIECE);
            if ($piece === '' && !$this->ended && $this->timedOut()) {
                throw new \RuntimeException('Timed out while reading the body');
            }
            $all .= $piece;
        }
        return $all;
    }

    private function timedOut(): bool
    {
        return $this->socket !== null && stream_get_meta_data($this->socket)['timed_out'];
    }

    public function __toString(): string
    {
        return $this->getContents();
    }

    public function close(): void
    {
        if ($this->socket !== null) {
            fclose($this->socket);
        }
        $this->detach();
    }

    /** @return null there is no stream that would give the body without its frames */
    public function detach()
    {
        $this->socket = null;
        $this->read = '';
        $this->ended = true;
        return null;
    }

    public function getSize(): ?int
    {
        return null;
    }

    public function tell(): int
    {
        return $this->position;
    }

    public function eof(): bool
    {
        return $this->ended;
    }

    public function isSeekable(): bool
    {
        return false;
    }

    public function seek($offset, $whence = SEEK_SET): void
    {
        throw new \RuntimeException('This body is read once');
    }

    public function rewind(): void
    {
        $this->seek(0);
    }

    public function isWritable(): bool
    {
        return false;
    }

    public function write($string): int
    {
        throw new \RuntimeException('This body is for reading');
    }

    public function isReadable(): bool
    {
        return $this->socket !== null;
    }

    public function getMetadata($key = null)
    {
        $all = $this->socket === null ? [] : stream_get_meta_data($this->socket);
        return $key === null ? $all : $all[$key] ?? null;
    }
}
