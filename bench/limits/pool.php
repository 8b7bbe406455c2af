<?php

/*
 * Makes many calls at once with one Hearth\Egress\Pool of the packages, and prints how long each round took, in microseconds, as a JSON list. The first round is that
 * of a new process.
 *
 *     php pool.php ROUNDS HTTP FEEDS AUTHORITY URL
 *
 * HTTP: 1 or 2. `#` in URL becomes the number of the feed. HEARTH_EGRESS: the broker's socket; without it the pool calls directly.
 */

declare(strict_types=1);

use Hearth\Egress\Broker;
use Hearth\Egress\Pool;

require __DIR__ . '/../../packages/core/tests/bootstrap.php';

[, $rounds, $http, $feeds, $authority, $pattern] = $argv;
$options = [
    CURLOPT_CAINFO => $authority,
    CURLOPT_TIMEOUT => 30,
    CURLOPT_HTTP_VERSION => $http === '1' ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS,
];
$pool = new Pool(new Broker(getenv('HEARTH_EGRESS') ?: null), (int) $feeds, curl: $options);
$times = [];
for ($round = 0; $round < (int) $rounds; $round++) {
    $begin = hrtime(true);
    for ($n = 0; $n < (int) $feeds; $n++) {
        $pool->send(str_replace('#', (string) $n, $pattern));
    }
    $good = 0;
    foreach ($pool as $answer) {
        $good += (int) ($answer->ok() && $answer->body() !== '');
    }
    $times[] = intdiv(hrtime(true) - $begin, 1000);
    if ($good !== (int) $feeds) {
        fwrite(STDERR, "only $good of $feeds feeds came\n");
        exit(1);
    }
}
echo json_encode($times), "\n";
