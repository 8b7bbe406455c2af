<?php

/** Records of a stream's shard, in order. */

declare(strict_types=1);

namespace Hearth\Lambda\Kinesis;

use Hearth\Lambda\RecordsEvent;

/** @method list<KinesisRecord> getRecords() */
final class KinesisEvent extends RecordsEvent
{
    protected const SOURCE = 'aws:kinesis';
    protected const NAME = 'a Kinesis event';
    protected const RECORD = KinesisRecord::class;
}
