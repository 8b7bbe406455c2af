<?php

/** One record of a stream. */

declare(strict_types=1);

namespace Hearth\Lambda\Kinesis;

use Hearth\Lambda\InvalidEvent;
use Hearth\Lambda\Record;

final class KinesisRecord extends Record
{
    public function getApproximateArrivalTime(): \DateTimeImmutable
    {
        $seconds = (float) ($this->record['kinesis']['approximateArrivalTimestamp'] ?? 0);
        return new \DateTimeImmutable('@' . number_format($seconds, 6, '.', ''));
    }

    /**
     * The data as JSON.
     *
     * @return array<mixed>
     * @throws \JsonException
     */
    public function getData(): array
    {
        return (array) json_decode($this->getRawData(), true, 512, JSON_THROW_ON_ERROR);
    }

    /** The bytes that were put into the stream. */
    public function getRawData(): string
    {
        $data = $this->record['kinesis']['data'] ?? '';
        $bytes = is_string($data) ? base64_decode($data, true) : false;
        return $bytes !== false ? $bytes : throw InvalidEvent::for('a record of Kinesis with base64 in it', $this->record);
    }

    public function getEventName(): string
    {
        return (string) ($this->record['eventName'] ?? '');
    }

    public function getPartitionKey(): string
    {
        return (string) ($this->record['kinesis']['partitionKey'] ?? '');
    }

    public function getSequenceNumber(): string
    {
        return (string) ($this->record['kinesis']['sequenceNumber'] ?? '');
    }
}
