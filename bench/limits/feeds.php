<?php

/*
 * Fetches many URLs at once under a limit of connections, once, and prints how long that took and what processor time PHP had for it, in microseconds. Code as
 * anyone writes it with ext-curl; with the extension loaded it goes through the broker by itself. Answers may be packed by gzip.
 *
 *     php feeds.php LIMIT HTTP FEEDS AUTHORITY URL [share]
 *
 * LIMIT: CURLMOPT_MAX_HOST_CONNECTIONS. HTTP: 1 or 2. `#` in URL becomes the number of the feed. `share`: with PHP 8.5's persistent share, which has been used
 * once before, as in a process that answers one request after another.
 */

declare(strict_types=1);

require __DIR__ . '/../egress/at_once.php';

[, $limit, $http, $feeds, $authority, $pattern] = $argv;

$share = ($argv[6] ?? '') === 'share' ? curl_share_init_persistent([CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_DNS, CURL_LOCK_DATA_SSL_SESSION]) : null;
for ($round = $share === null ? 1 : 0; $round < 2; $round++) {
    [$begin, $before] = [hrtime(true), processor_time()];
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
            CURLOPT_ENCODING => 'gzip',
            CURLOPT_HTTP_VERSION => $http === '1' ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS,
        ]);
        if ($share !== null) {
            curl_setopt($handle, CURLOPT_SHARE, $share);
        }
        curl_multi_add_handle($multi, $handle);
        $handles[] = $handle;
    }
    run_all($multi);
    $took = [intdiv(hrtime(true) - $begin, 1000), processor_time() - $before];
    must_be_all(good($handles), (int) $feeds);
}
echo json_encode($took), "\n";
