<?php

/**
 * An event of a known kind. A function gets one if its first parameter has a class that implements this. The constructor takes the
 * decoded JSON, and throws InvalidEvent if it is of another kind.
 */

declare(strict_types=1);

namespace Hearth\Lambda;

interface Event
{
    /** @throws InvalidEvent */
    public function __construct(mixed $event);

    /** @return array<mixed> the event as it came */
    public function toArray(): array;
}
