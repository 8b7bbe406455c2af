<?php

/** Takes what happens in a bucket. One that throws is called again, as the function's retries say. */

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
