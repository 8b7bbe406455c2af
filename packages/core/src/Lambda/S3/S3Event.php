<?php

/** Events of a bucket. */

declare(strict_types=1);

namespace Hearth\Lambda\S3;

use Hearth\Lambda\RecordsEvent;

/** @method list<S3Record> getRecords() */
final class S3Event extends RecordsEvent
{
    protected const SOURCE = 'aws:s3';
    protected const NAME = 'an S3 event';
    protected const RECORD = S3Record::class;
}
