<?php

/** An event of a bus, or of a schedule. */

declare(strict_types=1);

namespace Hearth\Lambda\EventBridge;

use Hearth\Lambda\Event;
use Hearth\Lambda\InvalidEvent;

final class EventBridgeEvent implements Event
{
    /** @var array<mixed> */
    private readonly array $event;

    public function __construct(mixed $event)
    {
        if (!is_array($event) || !isset($event['detail-type'], $event['source']) || !array_key_exists('detail', $event)) {
            throw InvalidEvent::for('an EventBridge event', $event);
        }
        $this->event = $event;
    }

    public function getId(): string
    {
        return (string) ($this->event['id'] ?? '');
    }

    public function getVersion(): string
    {
        return (string) ($this->event['version'] ?? '');
    }

    public function getAwsRegion(): string
    {
        return (string) ($this->event['region'] ?? '');
    }

    public function getTimestamp(): \DateTimeImmutable
    {
        return new \DateTimeImmutable((string) ($this->event['time'] ?? '@0'));
    }

    public function getAwsAccountId(): string
    {
        return (string) ($this->event['account'] ?? '');
    }

    public function getSource(): string
    {
        return (string) $this->event['source'];
    }

    public function getDetailType(): string
    {
        return (string) $this->event['detail-type'];
    }

    /** Decoded JSON, usually an array. */
    public function getDetail(): mixed
    {
        return $this->event['detail'];
    }

    /** @return list<string> ARNs: of the schedule's rule, for one */
    public function getResources(): array
    {
        return $this->event['resources'] ?? [];
    }

    public function toArray(): array
    {
        return $this->event;
    }
}
