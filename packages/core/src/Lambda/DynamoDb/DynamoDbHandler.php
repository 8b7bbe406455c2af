<?php

/**
 * Handles changes of a table, in order. Promises: if the event source mapping has ReportBatchItemFailures, the batch is delivered again from the
 * first failed record on.
 */

declare(strict_types=1);

namespace Hearth\Lambda\DynamoDb;

use Hearth\Lambda\Context;
use Hearth\Lambda\Failures;
use Hearth\Lambda\Handler;

abstract class DynamoDbHandler implements Handler
{
    private ?Failures $failures = null;

    abstract public function handleDynamoDb(DynamoDbEvent $event, Context $context): void;

    /** @return array{batchItemFailures: list<array{itemIdentifier: string}>} */
    final public function handle(mixed $event, Context $context): array
    {
        $failures = $this->failures = new Failures();
        try {
            $this->handleDynamoDb(new DynamoDbEvent($event), $context);
        } finally {
            $this->failures = null;
        }
        return $failures->answer();
    }

    final protected function markAsFailed(DynamoDbRecord $record): void
    {
        if ($this->failures === null) {
            throw new \LogicException('markAsFailed() is for handleDynamoDb(), while it runs.');
        }
        $this->failures->add($record->getSequenceNumber());
    }
}
