<?php

/** An object in an event, with its key decoded. */

declare(strict_types=1);

namespace Hearth\Lambda\S3;

final class BucketObject
{
    /** @param int $size in bytes; 0 when the object is gone */
    public function __construct(
        public readonly string $key,
        public readonly int $size,
        public readonly ?string $versionId = null,
        public readonly ?string $eTag = null,
    ) {
    }

    public function getKey(): string
    {
        return $this->key;
    }

    public function getSize(): int
    {
        return $this->size;
    }

    public function getVersionId(): ?string
    {
        return $this->versionId;
    }
}
