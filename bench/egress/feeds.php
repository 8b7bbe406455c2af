<?php

/*
 * Fetches many URLs at once and prints how long each round took until the last was there, in microseconds, as a JSON list.
 *
 *     php feeds.php WAY ROUNDS PAUSE_MS FEEDS AUTHORITY URL
 *
 * WAY: `multi` (a new curl_multi in each round, HTTP/2 multiplexed), `multi1` (the same without HTTP/2), `kept` (one curl_multi for all
 * rounds: what only a process that lives on can have), `listener` (a new curl_multi in each round, through the broker's socket that
 * HEARTH_EGRESS names). With the extension loaded `multi` goes through the broker by itself.
 * `#` in URL becomes the number of the feed. PAUSE_MS: between two rounds.
 */

declare(strict_types=1);

require __DIR__ . '/at_once.php';
require __DIR__ . '/listener.php';

[, $way, $rounds, $pause, $feeds, $authority, $pattern] = $argv;
$socket = getenv('HEARTH_EGRESS') ?: '';

$newMulti = static function () use ($way): CurlMultiHandle {
    $multi = curl_multi_init();
    curl_multi_setopt($multi, CURLMOPT_PIPELINING, $way === 'multi1' ? CURLPIPE_NOTHING : CURLPIPE_MULTIPLEX);
    return $multi;
};
$multi = $newMulti();
$times = [];
for ($round = 0; $round < (int) $rounds; $round++) {
    if ($round > 0) {
        usleep((int) $pause * 1000);
    }
    $begin = hrtime(true);
    if ($way !== 'kept') {
        $multi = $newMulti();
    }
    $handles = [];
    for ($n = 0; $n < (int) $feeds; $n++) {
        $handle = curl_init();
        $url = str_replace('#', (string) $n, $pattern);
        $options = [CURLOPT_URL => $url, CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 30];
        if ($authority !== '-') {
            $options[CURLOPT_CAINFO] = $authority;
        }
        if ($way === 'listener') {
            $options = through_listener($socket, $url) + $options;
        } elseif ($way === 'multi1') {
            $options[CURLOPT_HTTP_VERSION] = CURL_HTTP_VERSION_1_1;
        } else {
            $options[CURLOPT_PIPEWAIT] = true;
        }
        curl_setopt_array($handle, $options);
        curl_multi_add_handle($multi, $handle);
        $handles[] = $handle;
    }
    run_all($multi);
    $good = good($handles);
    foreach ($handles as $handle) {
        curl_multi_remove_handle($multi, $handle);
    }
    $times[] = intdiv(hrtime(true) - $begin, 1000);
    must_be_all($good, (int) $feeds);
}
echo json_encode($times), "\n";
