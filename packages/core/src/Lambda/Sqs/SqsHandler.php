<?php

/**
 * Handles a batch of messages. Promises: if the event source mapping has ReportBatchItemFailures, only the messages marked as failed are delivered
 * again. In a FIFO queue, later messages of the same group are delivered again too, or they would overtake it.
 */

declare(strict_types=1);

namespace Hearth\Lambda\Sqs;

use Hearth\Lambda\Context;
use Hearth\Lambda\Failures;
use Hearth\Lambda\Handler;

abstract class SqsHandler implements Handler
{
    private ?Failures $failures = null;

    abstract public function handleSqs(SqsEvent $event, Context $context): void;

    /** @return array{batchItemFailures: list<array{itemIdentifier: string}>} */
    final public function handle(mixed $event, Context $context): array
    {
        $event = new SqsEvent($event);
        $failures = $this->failures = new Failures();
        try {
            $this->handleSqs($event, $context);
        } finally {
            $this->failures = null;
        }
        $stopped = [];
        foreach ($event->getRecords() as $record) {
            $group = $record->isFifo() ? $record->getMessageGroupId() : null;
            if ($failures->has($record->getMessageId()) && $group !== null) {
                $stopped[$group] = true;
            } elseif ($group !== null && isset($stopped[$group])) {
                $failures->add($record->getMessageId());
            }
        }
        return $failures->answer();
    }

    final protected function markAsFailed(SqsRecord $record): void
    {
        if ($this->failures === null) {
            throw new \LogicException('markAsFailed() is for handleSqs(), while it runs.');
        }
        $this->failures->add($record->getMessageId());
    }
}
