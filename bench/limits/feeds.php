<?php

/*
 * Fetches many URLs at once under a limit of connections, once, and prints how long that took, in microseconds. Code as anyone writes it with ext-curl; with the
 * extension loaded it goes through the broker by itself.
 *
 *     php feeds.php LIMIT HTTP FEEDS AUTHORITY URL
 *
 * LIMIT: CURLMOPT_MAX_HOST_CONNECTIONS. HTTP: 1 or 2. `#` in URL becomes the number of the feed.
 */

declare(strict_types=1);

require __DIR__ . '/../egress/at_once.php';

[, $limit, $http, $feeds, $authority, $pattern] = $argv;

$begin = hrtime(true);
$multi = curl_multi_init();
curl_multi_setopt($multi, CURLMOPT_MAX_HOST_CONNECTIONS, (int) $limit);
$handles = [];
for ($n = 0; $n < (int) $feeds; $n++) {
    $handle = curl_init();
    curl_setopt_array($handle, [
        CURLOPT_URL => str_replace('#', (string) $n, $pattern),
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_TIMEOUT => 30,
        CURLOPT_CAINFO => $authority,
        CURLOPT_HTTP_VERSION => $http === '1' ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS,
    ]);
    curl_multi_add_handle($multi, $handle);
    $handles[] = $handle;
}
run_all($multi);
$took = intdiv(hrtime(true) - $begin, 1000);
must_be_all(good($handles), (int) $feeds);
echo json_encode([$took]), "\n";
