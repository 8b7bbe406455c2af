<?php

declare(strict_types=1);

namespace App\Chat;

/** Whether events reach browsers: under `hearth serve`, in Hearth's own models. Under another
 * server the page polls. */
final class Live
{
    public static function is(): bool
    {
        return function_exists('hearth_can_publish') && hearth_can_publish();
    }
}
