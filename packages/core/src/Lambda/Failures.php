<?php

/** Records that a handler could not process, in Lambda's format for them (ReportBatchItemFailures). */

declare(strict_types=1);

namespace Hearth\Lambda;

/** @internal */
final class Failures
{
    /** @var array<string, true> */
    private array $identifiers = [];

    public function add(string $identifier): void
    {
        // An empty identifier, or one that was not in the batch, would have Lambda repeat the whole batch.
        if ($identifier === '') {
            throw new \InvalidArgumentException('A record without an identifier cannot be marked as failed.');
        }
        $this->identifiers[$identifier] = true;
    }

    public function has(string $identifier): bool
    {
        return isset($this->identifiers[$identifier]);
    }

    /** @return array{batchItemFailures: list<array{itemIdentifier: string}>} */
    public function answer(): array
    {
        // PHP has turned keys that look like numbers into integers.
        $item = static fn (int|string $identifier): array => ['itemIdentifier' => (string) $identifier];
        return ['batchItemFailures' => array_map($item, array_keys($this->identifiers))];
    }
}
