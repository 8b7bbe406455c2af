<?php

/** A curl handle used again: with its connections, and with nothing else of the call before. */

declare(strict_types=1);

namespace Hearth\Egress;

/** @internal */
final class Handles
{
    public static function clear(\CurlHandle $handle): void
    {
        // Callbacks hold on to what they know, and curl_reset() leaves cookies where they are.
        curl_setopt_array($handle, [CURLOPT_HEADERFUNCTION => null, CURLOPT_WRITEFUNCTION => null, CURLOPT_READFUNCTION => null]);
        curl_setopt($handle, CURLOPT_COOKIELIST, 'ALL');
        curl_reset($handle);
    }
}
