<?php

/** Notifications of a topic. Lambda delivers one at a time. */

declare(strict_types=1);

namespace Hearth\Lambda\Sns;

use Hearth\Lambda\RecordsEvent;

/** @method list<SnsRecord> getRecords() */
final class SnsEvent extends RecordsEvent
{
    protected const SOURCE = 'aws:sns';
    protected const NAME = 'an SNS event';
    protected const RECORD = SnsRecord::class;
}
