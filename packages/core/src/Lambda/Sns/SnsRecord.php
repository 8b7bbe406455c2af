<?php

/** One notification of a topic. */

declare(strict_types=1);

namespace Hearth\Lambda\Sns;

use Hearth\Lambda\Record;

final class SnsRecord extends Record
{
    public function getEventSubscriptionArn(): string
    {
        return (string) ($this->record['EventSubscriptionArn'] ?? '');
    }

    public function getMessageId(): string
    {
        return (string) ($this->record['Sns']['MessageId'] ?? '');
    }

    /** Empty: it has none. */
    public function getSubject(): string
    {
        return (string) ($this->record['Sns']['Subject'] ?? '');
    }

    public function getMessage(): string
    {
        return (string) ($this->record['Sns']['Message'] ?? '');
    }

    /** @return array<string, MessageAttribute> */
    public function getMessageAttributes(): array
    {
        $make = static fn (array $attribute): MessageAttribute => new MessageAttribute($attribute);
        return array_map($make, $this->record['Sns']['MessageAttributes'] ?? []);
    }

    public function getTopicArn(): string
    {
        return (string) ($this->record['Sns']['TopicArn'] ?? '');
    }

    public function getTimestamp(): \DateTimeImmutable
    {
        return new \DateTimeImmutable((string) ($this->record['Sns']['Timestamp'] ?? '@0'));
    }
}
