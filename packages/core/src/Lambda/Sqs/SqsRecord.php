<?php

/** One message of a queue. */

declare(strict_types=1);

namespace Hearth\Lambda\Sqs;

use Hearth\Lambda\Record;

final class SqsRecord extends Record
{
    public function getMessageId(): string
    {
        return (string) ($this->record['messageId'] ?? '');
    }

    public function getBody(): string
    {
        return (string) ($this->record['body'] ?? '');
    }

    /** @return array<string, array<string, mixed>> each with stringValue or binaryValue (base64), and dataType */
    public function getMessageAttributes(): array
    {
        return $this->record['messageAttributes'] ?? [];
    }

    /** How often the message has been delivered, this time included. */
    public function getApproximateReceiveCount(): int
    {
        return (int) ($this->record['attributes']['ApproximateReceiveCount'] ?? 0);
    }

    public function getReceiptHandle(): string
    {
        return (string) ($this->record['receiptHandle'] ?? '');
    }

    public function getSentTime(): \DateTimeImmutable
    {
        $ms = (int) ($this->record['attributes']['SentTimestamp'] ?? 0);
        return (new \DateTimeImmutable('@' . intdiv($ms, 1000)))->modify('+' . $ms % 1000 . ' ms');
    }

    public function getQueueArn(): string
    {
        return (string) ($this->record['eventSourceARN'] ?? '');
    }

    public function getQueueName(): string
    {
        return (string) substr((string) strrchr($this->getQueueArn(), ':'), 1);
    }

    /** The queue's address for API calls. */
    public function getQueueUrl(): string
    {
        [, $partition, , $region, $account, $name] = explode(':', $this->getQueueArn()) + array_fill(0, 6, '');
        $domain = str_starts_with($partition, 'aws-cn') ? 'amazonaws.com.cn' : 'amazonaws.com';
        return "https://sqs.{$region}.{$domain}/{$account}/{$name}";
    }

    public function isFifo(): bool
    {
        return str_ends_with($this->getQueueArn(), '.fifo');
    }

    /** Messages of one group are to be processed in order; null: the queue is no FIFO. */
    public function getMessageGroupId(): ?string
    {
        return $this->record['attributes']['MessageGroupId'] ?? null;
    }
}
