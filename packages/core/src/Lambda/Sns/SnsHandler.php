<?php

/** Handles notifications of a topic. If it throws, Lambda delivers them again, as configured for
 * the function. */

declare(strict_types=1);

namespace Hearth\Lambda\Sns;

use Hearth\Lambda\Context;
use Hearth\Lambda\Handler;

abstract class SnsHandler implements Handler
{
    abstract public function handleSns(SnsEvent $event, Context $context): void;

    final public function handle(mixed $event, Context $context): void
    {
        $this->handleSns(new SnsEvent($event), $context);
    }
}
