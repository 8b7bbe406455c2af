<?php

/*
 * The same calls as calls.php makes, with a client as applications use it, and prints how long each took, in microseconds, as a JSON list.
 *
 *     php packages.php CLIENT COUNT AUTHORITY URL...
 *
 * CLIENT: `guzzle` (through the broker's socket that HEARTH_EGRESS names, by the package hearth/guzzle), `laravel` (the same by hearth/laravel, with
 * Laravel's Http client), `stock-guzzle` (without the package, one client kept). Several URLs are called in turn. AUTHORITY: a PEM file, or `-` for the
 * client's own. The frameworks are those of Debian.
 */

declare(strict_types=1);

use GuzzleHttp\Client;
use Hearth\Egress\Broker;
use Hearth\Guzzle\Handler;
use Hearth\Laravel\HttpFactory;
use Illuminate\Http\Client\Factory;

$socket = getenv('HEARTH_EGRESS') ?: null;
require __DIR__ . '/../../packages/core/tests/bootstrap.php';

[, $client, $count, $authority] = $argv;
$urls = array_slice($argv, 4);
$options = ['verify' => $authority === '-' ? true : $authority, 'timeout' => 30];

/** @return callable(string): array{int, string} status and body of a URL */
$make = static function () use ($client, $socket, $options): callable {
    if ($client === 'laravel') {
        $http = HttpFactory::inPlaceOf(new Factory(), new Handler(new Broker($socket)));
        return static function (string $url) use ($http, $options): array {
            $answer = $http->withOptions($options)->get($url);
            return [$answer->status(), $answer->body()];
        };
    }
    $guzzle = new Client($client === 'guzzle' ? $options + ['handler' => Handler::stack(new Handler(new Broker($socket)))] : $options);
    return static function (string $url) use ($guzzle): array {
        $answer = $guzzle->get($url);
        return [$answer->getStatusCode(), (string) $answer->getBody()];
    };
};

$call = $make();
$times = [];
for ($n = 0; $n < (int) $count; $n++) {
    $url = $urls[$n % count($urls)];
    $begin = hrtime(true);
    [$status, $body] = $call($url);
    $times[] = intdiv(hrtime(true) - $begin, 1000);
    if ($status !== 200 || $body === '') {
        fwrite(STDERR, "no answer from $url: $status\n");
        exit(1);
    }
}
echo json_encode($times), "\n";
