<?php

/**
 * An event of a known kind. A function whose first parameter is of a class that implements this is given one: the constructor takes the
 * decoded JSON, and throws InvalidEvent when it is of another kind.
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
