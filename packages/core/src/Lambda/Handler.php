<?php

/** A function as an object. A function's file may return this, a callable, or a PSR-15 handler. */

declare(strict_types=1);

namespace Hearth\Lambda;

interface Handler
{
    /**
     * @param mixed $event the event, decoded: objects are arrays
     * @return mixed what becomes JSON
     */
    public function handle(mixed $event, Context $context);
}
