<?php

/** A curl handle used again: with its connections, and with nothing else of the call before. */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class Handles
{
    public static function clear(\CurlHandle $handle): void
    {
        // Callbacks keep references to their variables, and curl_reset() keeps cookies.
        curl_setopt_array($handle, [CURLOPT_HEADERFUNCTION => null, CURLOPT_WRITEFUNCTION => null, CURLOPT_READFUNCTION => null]);
        curl_setopt($handle, CURLOPT_COOKIELIST, 'ALL');
        curl_reset($handle);
    }
}
