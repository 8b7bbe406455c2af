<?php

/*
 * The same as feeds.php with the package's own way of many calls at once, and prints the same.
 *
 *     php pool.php LIMIT HTTP FEEDS AUTHORITY URL
 *
 * LIMIT: the pool's `connections`. HTTP is not asked: the origin decides. Through the broker's socket that HEARTH_EGRESS names, without one directly.
 */

declare(strict_types=1);

use Hearth\Egress\Broker;
use Hearth\Egress\Call;
use Hearth\Egress\Pool;

$socket = getenv('HEARTH_EGRESS') ?: null;
require __DIR__ . '/../../packages/core/tests/bootstrap.php';
require __DIR__ . '/../egress/at_once.php';

[, $limit, , $feeds, $authority, $pattern] = $argv;

$good = 0;
$begin = hrtime(true);
$pool = new Pool(concurrency: (int) $feeds, broker: new Broker($socket), curl: $socket === null ? [CURLOPT_CAINFO => $authority] : [], connections: (int) $limit);
for ($n = 0; $n < (int) $feeds; $n++) {
    $pool->send(str_replace('#', (string) $n, $pattern));
}
foreach ($pool as $answer) {
    $good += (int) ($answer->ok() && $answer->body() !== '');
}
$took = intdiv(hrtime(true) - $begin, 1000);
must_be_all($good, (int) $feeds);
echo json_encode([$took, processor_time()]), "\n";
