<?php

/** The body of a streamed response as a PSR-7 stream: read once, while it arrives. */

declare(strict_types=1);

namespace Hearth\Guzzle;

use Hearth\Egress\SocketReader;
use Psr\Http\Message\StreamInterface;

/** @internal */
final class SocketBody implements StreamInterface
{
    /** Bytes that are read at once. */
    private const PIECE = 65_536;

    /** @param \Closure(int): void $watch is called with the number of bytes that were read so far */
    public function __construct(private readonly SocketReader $reader, private readonly \Closure $watch)
    {
    }

    public function read($length): string
    {
        $piece = $this->reader->read($length);
        if ($piece !== '') {
            ($this->watch)($this->reader->position());
        }
        return $piece;
    }

    public function getContents(): string
    {
        $all = '';
        while (!$this->eof()) {
            $piece = $this->read(self::PIECE);
            if ($piece === '' && !$this->eof() && ($this->reader->metadata()['timed_out'] ?? false)) {
                throw new \RuntimeException('Timed out while reading the body');
            }
            $all .= $piece;
        }
        return $all;
    }

    public function __toString(): string
    {
        return $this->getContents();
    }

    public function close(): void
    {
        $this->reader->close();
    }

    /** @return null no stream has the body without its framing */
    public function detach()
    {
        $this->reader->close(false);
        return null;
    }

    public function getSize(): ?int
    {
        return null;
    }

    public function tell(): int
    {
        return $this->reader->position();
    }

    public function eof(): bool
    {
        return $this->reader->ended();
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
        return $this->reader->metadata() !== [];
    }

    public function getMetadata($key = null)
    {
        return $key === null ? $this->reader->metadata() : $this->reader->metadata()[$key] ?? null;
    }
}
