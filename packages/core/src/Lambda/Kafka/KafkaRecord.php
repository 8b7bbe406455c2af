<?php

/** One record of a Kafka topic. */

declare(strict_types=1);

namespace Hearth\Lambda\Kafka;

use Hearth\Lambda\InvalidEvent;
use Hearth\Lambda\Record;

final class KafkaRecord extends Record
{
    /** The bytes of its key; empty: it has none. */
    public function getKey(): string
    {
        return $this->bytes('key') ?? '';
    }

    public function getTopic(): string
    {
        return (string) ($this->record['topic'] ?? '');
    }

    public function getPartition(): int
    {
        return (int) ($this->record['partition'] ?? 0);
    }

    public function getOffset(): int
    {
        return (int) ($this->record['offset'] ?? 0);
    }

    /** Milliseconds since 1970. */
    public function getTimestamp(): int
    {
        return (int) ($this->record['timestamp'] ?? 0);
    }

    /** The bytes of its value; null: a tombstone. */
    public function getValue(): ?string
    {
        return $this->bytes('value');
    }

    /** @return array<string, string> the last one of each name */
    public function getHeaders(): array
    {
        $headers = [];
        foreach ($this->record['headers'] ?? [] as $header) {
            foreach ($header as $name => $bytes) {
                // Java's bytes are signed.
                $headers[(string) $name] = implode('', array_map(static fn (int $byte): string => chr($byte & 0xff), $bytes));
            }
        }
        return $headers;
    }

    private function bytes(string $of): ?string
    {
        $base64 = $this->record[$of] ?? null;
        if ($base64 === null) {
            return null;
        }
        $bytes = is_string($base64) ? base64_decode($base64, true) : false;
        return $bytes !== false ? $bytes : throw InvalidEvent::for("a record of Kafka with a {$of} in base64", $this->record);
    }
}
