<?php

/** Handles events of a bucket. If it throws, Lambda calls it again, as configured for the
 * function. */

declare(strict_types=1);

namespace Hearth\Lambda\S3;

use Hearth\Lambda\Context;
use Hearth\Lambda\Handler;

abstract class S3Handler implements Handler
{
    abstract public function handleS3(S3Event $event, Context $context): void;

    final public function handle(mixed $event, Context $context): void
    {
        $this->handleS3(new S3Event($event), $context);
    }
}
