<?php

/** What records of all sources have in common. */

declare(strict_types=1);

namespace Hearth\Lambda;

abstract class Record
{
    /**
     * @internal made by its event
     * @param array<mixed> $record
     */
    final public function __construct(protected readonly array $record)
    {
    }

    /** @return array<mixed> the record as it came */
    public function toArray(): array
    {
        return $this->record;
    }
}
