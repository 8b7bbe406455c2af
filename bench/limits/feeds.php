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
do {
    $status = curl_multi_exec($multi, $running);
    if ($running > 0) {
        curl_multi_select($multi, 1.0);
    }
} while ($running > 0 && $status === CURLM_OK);
$took = intdiv(hrtime(true) - $begin, 1000);
$good = 0;
foreach ($handles as $handle) {
    $good += (int) (curl_getinfo($handle, CURLINFO_RESPONSE_CODE) === 200 && strlen((string) curl_multi_getcontent($handle)) > 0);
}
if ($good !== (int) $feeds) {
    fwrite(STDERR, "only $good of $feeds feeds came\n");
    exit(1);
}
echo json_encode([$took]), "\n";
