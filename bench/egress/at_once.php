<?php

/** Many calls at once, for the benches of outgoing calls. */

declare(strict_types=1);

/** Runs all calls of a multi handle to their ends. */
function run_all(CurlMultiHandle $multi): void
{
    do {
        $status = curl_multi_exec($multi, $running);
        if ($running > 0) {
            curl_multi_select($multi, 1.0);
        }
    } while ($running > 0 && $status === CURLM_OK);
}

/**
 * How many of them have an answer with a body.
 *
 * @param list<CurlHandle> $handles
 */
function good(array $handles): int
{
    return count(array_filter($handles, static fn (CurlHandle $handle): bool =>
        curl_getinfo($handle, CURLINFO_RESPONSE_CODE) === 200 && (string) curl_multi_getcontent($handle) !== ''));
}

/** Ends the process if one is missing. */
function must_be_all(int $good, int $feeds): void
{
    if ($good !== $feeds) {
        fwrite(STDERR, "only $good of $feeds feeds came\n");
        exit(1);
    }
}

/** Microseconds of processor time that this process has taken. */
function processor_time(): int
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1_000_000 + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
}
