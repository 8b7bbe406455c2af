<?php

/** Takes requests one after the other until the server ends the worker. Values of `.env` are in `$_SERVER` for each, as in the first. */

declare(strict_types=1);

namespace Hearth\Symfony\Runtime;

use Closure;

final class Loop
{
    /**
     * @param Closure(): void $handle
     * @param Closure(bool): void $after between two requests; false: the last one was ended by exit()
     */
    public static function run(Closure $handle, Closure $after): int
    {
        // A client that goes away must not end the script: the next request is not its fault.
        ignore_user_abort(true);
        $environment = array_filter(
            array_intersect_key($_SERVER, $_ENV),
            static fn (int|string $name): bool => !str_starts_with((string) $name, 'HTTP_'),
            ARRAY_FILTER_USE_KEY,
        );
        $isWhole = false;
        $one = static function () use ($handle, $environment, &$isWhole): void {
            $isWhole = false;
            $_SERVER += $environment;
            $handle();
            $isWhole = true;
        };
        while (hearth_handle_request($one)) {
            $after($isWhole);
        }
        return 0;
    }
}
