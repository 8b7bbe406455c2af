<?php

/*
 * Calls URLs and prints how long each call took, in microseconds, as a JSON list.
 *
 *     php calls.php WAY COUNT AUTHORITY URL...
 *
 * WAY: `new` (a handle for each call, as most code has it), `reused` (one handle for all), `listener` (a handle for each call, through the
 * broker's socket that HEARTH_EGRESS names), `share` (PHP 8.5: a new handle with a persistent share). With the extension loaded, `new` goes through the broker by itself.
 * Several URLs are called in turn. AUTHORITY: the PEM file for CURLOPT_CAINFO, or `-` for PHP's own.
 */

declare(strict_types=1);

require __DIR__ . '/listener.php';

[, $way, $count, $authority] = $argv;
$urls = array_slice($argv, 4);
$socket = getenv('HEARTH_EGRESS') ?: '';

$options = [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 30];
if ($authority !== '-') {
    $options[CURLOPT_CAINFO] = $authority;
}
$handle = curl_init();
$share = $way === 'share' ? curl_share_init_persistent([CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_DNS, CURL_LOCK_DATA_SSL_SESSION]) : null;

$times = [];
for ($n = 0; $n < (int) $count; $n++) {
    $url = $urls[$n % count($urls)];
    $begin = hrtime(true);
    if ($way !== 'reused') {
        $handle = curl_init();
    }
    curl_setopt_array($handle, $options + ($way === 'listener' ? through_listener($socket, $url) : [CURLOPT_URL => $url]));
    if ($share !== null) {
        curl_setopt($handle, CURLOPT_SHARE, $share);
    }
    $body = curl_exec($handle);
    $times[] = intdiv(hrtime(true) - $begin, 1000);
    if ($body === false || $body === '' || curl_getinfo($handle, CURLINFO_RESPONSE_CODE) !== 200) {
        fwrite(STDERR, "no answer from $url: " . curl_error($handle) . substr((string) $body, 0, 200) . "\n");
        exit(1);
    }
}
echo json_encode($times), "\n";
