<?php

/** Records of Kafka topics, of MSK or of your own cluster. */

declare(strict_types=1);

namespace Hearth\Lambda\Kafka;

use Hearth\Lambda\Event;
use Hearth\Lambda\InvalidEvent;

final class KafkaEvent implements Event
{
    /** @var array<mixed> */
    private readonly array $event;

    public function __construct(mixed $event)
    {
        $isOurs = is_array($event) && in_array($event['eventSource'] ?? null, ['aws:kafka', 'SelfManagedKafka'], true);
        if (!$isOurs || !is_array($event['records'] ?? null)) {
            throw InvalidEvent::for('a Kafka event', $event);
        }
        foreach ($event['records'] as $records) {
            foreach (is_array($records) ? $records : [null] as $record) {
                if (!is_array($record)) {
                    throw InvalidEvent::for('a Kafka event', $event);
                }
            }
        }
        $this->event = $event;
    }

    /** @return list<KafkaRecord> of all partitions: in order within each */
    public function getRecords(): array
    {
        $make = static fn (array $record): KafkaRecord => new KafkaRecord($record);
        return array_map($make, array_merge(...array_map(array_values(...), array_values($this->event['records']))));
    }

    public function toArray(): array
    {
        return $this->event;
    }
}
