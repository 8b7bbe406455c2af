<?php

/*
 * The same as feeds.php with the packages' own ways of many calls at once.
 *
 *     php package_feeds.php WAY ROUNDS PAUSE_MS FEEDS AUTHORITY URL
 *
 * WAY: `pool` (Hearth\Egress\Pool, a new one in each round), `guzzle-pool` (GuzzleHttp\Pool over hearth/guzzle, one client). AUTHORITY is the broker's
 * business.
 */

declare(strict_types=1);

use GuzzleHttp\Client;
use GuzzleHttp\Psr7\Request;
use Hearth\Egress\Broker;
use Hearth\Egress\Pool;
use Hearth\Guzzle\Handler;

$socket = getenv('HEARTH_EGRESS') ?: null;
require __DIR__ . '/../../packages/core/tests/bootstrap.php';

[, $way, $rounds, $pause, $feeds, , $pattern] = $argv;
$broker = new Broker($socket);
$guzzle = new Client(['handler' => Handler::stack(new Handler($broker)), 'timeout' => 30]);

$times = [];
for ($round = 0; $round < (int) $rounds; $round++) {
    if ($round > 0) {
        usleep((int) $pause * 1000);
    }
    $urls = array_map(static fn (int $n): string => str_replace('#', (string) $n, $pattern), range(0, (int) $feeds - 1));
    $good = 0;
    $begin = hrtime(true);
    if ($way === 'pool') {
        $pool = new Pool(concurrency: (int) $feeds, broker: $broker);
        foreach ($urls as $url) {
            $pool->send($url);
        }
        foreach ($pool as $answer) {
            $good += (int) ($answer->ok() && $answer->body() !== '');
        }
    } else {
        $requests = array_map(static fn (string $url): Request => new Request('GET', $url), $urls);
        (new GuzzleHttp\Pool($guzzle, $requests, [
            'concurrency' => (int) $feeds,
            'fulfilled' => static function ($answer) use (&$good): void {
                $good += (int) ((string) $answer->getBody() !== '');
            },
        ]))->promise()->wait();
    }
    $times[] = intdiv(hrtime(true) - $begin, 1000);
    if ($good !== (int) $feeds) {
        fwrite(STDERR, "only $good of $feeds feeds came\n");
        exit(1);
    }
}
echo json_encode($times), "\n";
