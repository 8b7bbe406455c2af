<?php

/**
 * From PHP 8.5 on, curl's connections can stay open from one request of a process to the next. This is for calls without a broker.
 * Promises: a process that was forked during a request does not share its parent's.
 */

declare(strict_types=1);

namespace Hearth\Egress;

final class SharedConnections
{
    private static ?object $share = null;
    private static int $process = 0;

    /** Returns the value of CURLOPT_SHARE; null before PHP 8.5. */
    public static function get(): ?object
    {
        if (!function_exists('curl_share_init_persistent')) {
            return null;
        }
        $process = (int) getmypid();
        if (self::$process === 0) {
            self::$process = $process;
            self::$share = \curl_share_init_persistent([CURL_LOCK_DATA_DNS, CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_SSL_SESSION]);
        }
        return self::$process === $process ? self::$share : null;
    }
}
