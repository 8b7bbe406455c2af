<?php

/** Handles events of a bus or of a schedule. If it throws, Lambda calls it again, as configured in
 * the rule. */

declare(strict_types=1);

namespace Hearth\Lambda\EventBridge;

use Hearth\Lambda\Context;
use Hearth\Lambda\Handler;

abstract class EventBridgeHandler implements Handler
{
    abstract public function handleEventBridge(EventBridgeEvent $event, Context $context): void;

    final public function handle(mixed $event, Context $context): void
    {
        $this->handleEventBridge(new EventBridgeEvent($event), $context);
    }
}
