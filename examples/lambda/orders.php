<?php

/** A queue's consumer: an order without a number is delivered again, the others are done with. */

declare(strict_types=1);

use Hearth\Lambda\Context;
use Hearth\Lambda\Sqs\SqsMessageHandler;
use Hearth\Lambda\Sqs\SqsRecord;

return new class extends SqsMessageHandler {
    public function handleMessage(SqsRecord $record, Context $context): void
    {
        $order = json_decode($record->getBody(), true, 512, JSON_THROW_ON_ERROR);
        if (!isset($order['number'])) {
            throw new RuntimeException('an order without a number');
        }
        echo "Order {$order['number']} taken.\n";
    }
};
