<?php

/*
 * Fetches many URLs at once with one pool of Guzzle's, whose handler has a limit of connections to a host, and prints how long each round took, in microseconds,
 * as a JSON list. The first round is that of a new process. With the extension loaded the calls go through the broker by themselves.
 *
 *     php guzzle.php LIMIT HTTP ROUNDS FEEDS AUTHORITY URL
 *
 * HTTP: 1 (Guzzle's default) or 2. The framework is that of Debian.
 */

declare(strict_types=1);

use GuzzleHttp\Client;
use GuzzleHttp\Handler\CurlMultiHandler;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Pool;
use GuzzleHttp\Psr7\Request;

require __DIR__ . '/../../packages/core/tests/bootstrap.php';
require __DIR__ . '/../egress/at_once.php';

[, $limit, $http, $rounds, $feeds, $authority, $pattern] = $argv;

$handler = new CurlMultiHandler(['options' => [CURLMOPT_MAX_HOST_CONNECTIONS => (int) $limit]]);
$client = new Client(['handler' => HandlerStack::create($handler), 'verify' => $authority, 'timeout' => 30]);
$times = [];
for ($round = 0; $round < (int) $rounds; $round++) {
    $good = 0;
    $begin = hrtime(true);
    $requests = static function () use ($feeds, $pattern, $http): Generator {
        for ($n = 0; $n < (int) $feeds; $n++) {
            yield new Request('GET', str_replace('#', (string) $n, $pattern), [], null, $http === '1' ? '1.1' : '2.0');
        }
    };
    $pool = new Pool($client, $requests(), [
        'concurrency' => (int) $feeds,
        'fulfilled' => static function ($response) use (&$good): void {
            $good += (int) ($response->getStatusCode() === 200 && (string) $response->getBody() !== '');
        },
    ]);
    $pool->promise()->wait();
    $times[] = intdiv(hrtime(true) - $begin, 1000);
    must_be_all($good, (int) $feeds);
}
echo json_encode($times), "\n";
