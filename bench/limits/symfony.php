<?php

/*
 * Fetches many URLs at once with one client of Symfony's, which allows six connections to a host by itself, and prints how long each round took, in microseconds,
 * as a JSON list. The first round is that of a new process.
 *
 *     php symfony.php CLIENT ROUNDS FEEDS AUTHORITY URL
 *
 * CLIENT: `stock` (CurlHttpClient; with the extension loaded it goes through the broker by itself), `package` (hearth/symfony, through the broker's socket that
 * HEARTH_EGRESS names). The framework is that of Debian.
 */

declare(strict_types=1);

use Hearth\Egress\Broker;
use Hearth\Symfony\EgressHttpClient;
use Symfony\Component\HttpClient\CurlHttpClient;

$socket = getenv('HEARTH_EGRESS') ?: null;
require __DIR__ . '/../../packages/core/tests/bootstrap.php';

[, $way, $rounds, $feeds, $authority, $pattern] = $argv;
$options = ['cafile' => $authority, 'timeout' => 30];
$client = new CurlHttpClient($options);
if ($way === 'package') {
    $client = new EgressHttpClient($client, new Broker($socket), $options);
}
$times = [];
for ($round = 0; $round < (int) $rounds; $round++) {
    $good = 0;
    $begin = hrtime(true);
    $responses = [];
    for ($n = 0; $n < (int) $feeds; $n++) {
        $responses[] = $client->request('GET', str_replace('#', (string) $n, $pattern));
    }
    foreach ($responses as $response) {
        $good += (int) ($response->getStatusCode() === 200 && $response->getContent() !== '');
    }
    $times[] = intdiv(hrtime(true) - $begin, 1000);
    if ($good !== (int) $feeds) {
        fwrite(STDERR, "only $good of $feeds feeds came\n");
        exit(1);
    }
}
echo json_encode($times), "\n";
