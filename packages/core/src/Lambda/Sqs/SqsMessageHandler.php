<?php

/**
 * Handles one message after the other, like an ordinary queue worker. Promises: if a message's handler throws, the message is logged and delivered
 * again, and stops no other. In a FIFO queue the rest of its group is not started.
 */

declare(strict_types=1);

namespace Hearth\Lambda\Sqs;

use Hearth\Lambda\Context;

abstract class SqsMessageHandler extends SqsHandler
{
    /** @throws \Throwable the message failed */
    abstract public function handleMessage(SqsRecord $record, Context $context): void;

    final public function handleSqs(SqsEvent $event, Context $context): void
    {
        $stopped = [];
        foreach ($event->getRecords() as $record) {
            $group = $record->isFifo() ? $record->getMessageGroupId() : null;
            if ($group !== null && isset($stopped[$group])) {
                continue;
            }
            try {
                $this->handleMessage($record, $context);
            } catch (\Throwable $e) {
                error_log("Message {$record->getMessageId()} failed: {$e}");
                $this->markAsFailed($record);
                if ($group !== null) {
                    $stopped[$group] = true;
                }
            }
        }
    }
}
