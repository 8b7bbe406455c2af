<?php

/** An event of another kind than the handler takes: the function was written for another event source. */

declare(strict_types=1);

namespace Hearth\Lambda;

final class InvalidEvent extends \InvalidArgumentException implements LambdaException
{
    /** @param string $wanted what the handler takes, e.g. `an SQS event` */
    public static function for(string $wanted, mixed $event): self
    {
        // Shows only the event's structure, because its values may be secret.
        $keys = is_array($event) ? implode(', ', array_map(strval(...), array_slice(array_keys($event), 0, 10))) : '';
        $got = is_array($event) ? ($keys === '' ? 'an empty object' : "an object with {$keys}") : get_debug_type($event);
        return new self("This handler takes {$wanted}, and was given {$got}.");
    }
}
