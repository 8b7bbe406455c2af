<?php

/** Changes of a table, in the order of its stream. */

declare(strict_types=1);

namespace Hearth\Lambda\DynamoDb;

use Hearth\Lambda\RecordsEvent;

/** @method list<DynamoDbRecord> getRecords() */
final class DynamoDbEvent extends RecordsEvent
{
    protected const SOURCE = 'aws:dynamodb';
    protected const NAME = 'a DynamoDB event';
    protected const RECORD = DynamoDbRecord::class;
}
