<?php

/**
 * Handles records of a stream, in order. Promises: if the event source mapping has ReportBatchItemFailures, the batch is delivered again from the
 * first failed record on.
 */

declare(strict_types=1);

namespace Hearth\Lambda\Kinesis;

use Hearth\Lambda\Context;
use Hearth\Lambda\Failures;
use Hearth\Lambda\Handler;

abstract class KinesisHandler implements Handler
{
    private ?Failures $failures = null;

    abstract public function handleKinesis(KinesisEvent $event, Context $context): void;

    /** @return array{batchItemFailures: list<array{itemIdentifier: string}>} */
    final public function handle(mixed $event, Context $context): array
    {
        $failures = $this->failures = new Failures();
        try {
            $this->handleKinesis(new KinesisEvent($event), $context);
        } finally {
            $this->failures = null;
        }
        return $failures->answer();
    }

    final protected function markAsFailed(KinesisRecord $record): void
    {
        if ($this->failures === null) {
            throw new \LogicException('markAsFailed() is for handleKinesis(), while it runs.');
        }
        $this->failures->add($record->getSequenceNumber());
    }
}
