<?php

/** The change of one item. Items come both ways: as DynamoDB writes them, and as PHP values. */

declare(strict_types=1);

namespace Hearth\Lambda\DynamoDb;

use Hearth\Lambda\Record;

final class DynamoDbRecord extends Record
{
    /** INSERT, MODIFY or REMOVE. */
    public function getEventName(): string
    {
        return (string) ($this->record['eventName'] ?? '');
    }

    /** @return array<string, array<string, mixed>> e.g. `['id' => ['N' => '7']]` */
    public function getKeys(): array
    {
        return $this->record['dynamodb']['Keys'] ?? [];
    }

    /** @return ?array<string, array<string, mixed>> null: the stream does not carry it, or there is none */
    public function getNewImage(): ?array
    {
        return $this->record['dynamodb']['NewImage'] ?? null;
    }

    /** @return ?array<string, array<string, mixed>> null: the stream does not carry it, or there was none */
    public function getOldImage(): ?array
    {
        return $this->record['dynamodb']['OldImage'] ?? null;
    }

    /** @return array<string, mixed> e.g. `['id' => 7]` */
    public function keys(): array
    {
        return array_map(AttributeValue::decode(...), $this->getKeys());
    }

    /** @return ?array<string, mixed> */
    public function newItem(): ?array
    {
        $image = $this->getNewImage();
        return $image === null ? null : array_map(AttributeValue::decode(...), $image);
    }

    /** @return ?array<string, mixed> */
    public function oldItem(): ?array
    {
        $image = $this->getOldImage();
        return $image === null ? null : array_map(AttributeValue::decode(...), $image);
    }

    public function getSequenceNumber(): string
    {
        return (string) ($this->record['dynamodb']['SequenceNumber'] ?? '');
    }

    public function getSizeBytes(): int
    {
        return (int) ($this->record['dynamodb']['SizeBytes'] ?? 0);
    }

    /** KEYS_ONLY, NEW_IMAGE, OLD_IMAGE or NEW_AND_OLD_IMAGES. */
    public function getStreamViewType(): string
    {
        return (string) ($this->record['dynamodb']['StreamViewType'] ?? '');
    }

    public function getTableName(): string
    {
        // arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/TIME
        return explode('/', (string) ($this->record['eventSourceARN'] ?? ''))[1] ?? '';
    }
}
