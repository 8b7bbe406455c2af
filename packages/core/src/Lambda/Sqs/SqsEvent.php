<?php

/** Messages of a queue. */

declare(strict_types=1);

namespace Hearth\Lambda\Sqs;

use Hearth\Lambda\RecordsEvent;

/** @method list<SqsRecord> getRecords() */
final class SqsEvent extends RecordsEvent
{
    protected const SOURCE = 'aws:sqs';
    protected const NAME = 'an SQS event';
    protected const RECORD = SqsRecord::class;
}
