<?php

/**
 * Calls of one curl_multi with limits of connections. Prints the observations as JSON; run.php runs it without the extension, with it, and without a
 * broker. The origins are run.php's: `/headers` shows the number of the connection.
 */

declare(strict_types=1);

/** A curl_multi with a limit for each host, and perhaps one for all. */
function limited(int $host, int $total = 0): CurlMultiHandle
{
    $multi = curl_multi_init();
    curl_multi_setopt($multi, CURLMOPT_MAX_HOST_CONNECTIONS, $host);
    curl_multi_setopt($multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, $total);
    return $multi;
}

function one(string $url, array $options = []): CurlHandle
{
    $curl = curl_init($url);
    curl_setopt_array($curl, array_replace([
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_CAINFO => getenv('EGRESS_FOLDER') . '/authority.pem',
        CURLOPT_TIMEOUT => 60,
        CURLOPT_PIPEWAIT => true,
    ], $options));
    return $curl;
}

/** Runs them all, and returns how many had an answer. */
function finish(CurlMultiHandle $multi, array $handles): int
{
    foreach ($handles as $curl) {
        curl_multi_add_handle($multi, $curl);
    }
    do {
        $status = curl_multi_exec($multi, $running);
        if ($running) {
            curl_multi_select($multi, 1.0);
        }
    } while ($running && $status === CURLM_OK);
    $good = 0;
    while ($message = curl_multi_info_read($multi)) {
        $good += (int) ($message['result'] === CURLE_OK && curl_getinfo($message['handle'], CURLINFO_RESPONSE_CODE) === 200);
    }
    return $good;
}

/** Connections that the origin saw. */
function connections(array $handles): int
{
    return count(array_unique(array_map(fn (CurlHandle $curl) => json_decode((string) curl_multi_getcontent($curl), true)['connection'] ?? -1, $handles)));
}

/** Connections that this process opened directly. */
function own(array $handles): int
{
    return count(array_filter(array_unique(array_map(fn (CurlHandle $curl) => curl_getinfo($curl, CURLINFO_LOCAL_PORT), $handles))));
}

$seen = [];
$http = getenv('EGRESS_HTTP');
$https = getenv('EGRESS_HTTPS');
foreach ([1, 2, 5, 20, 100] as $limit) {
    foreach (['http' => [$http, []], 'https, HTTP/1.1' => [$https, [CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1]], 'HTTP/2' => [$https, []]] as $name => [$base, $options]) {
        $handles = array_map(fn () => one("$base/headers", $options), range(1, 100));
        $good = finish(limited($limit), $handles);
        $seen["$name, $limit: answers"] = $good;
        $seen["$name, $limit: connections"] = connections($handles) <= $limit;
    }
}

/**
 * How many of 20 calls have an answer, and how many answers come at the same time, byte by byte.
 *
 * @return array{int, int}
 */
function at_once(CurlMultiHandle $multi, string $url, array $options = []): array
{
    $open = [];
    $most = 0;
    $handles = [];
    for ($i = 0; $i < 20; $i++) {
        $left = 10;
        $write = function ($curl, string $bytes) use (&$open, &$most, $i, &$left): int {
            $left -= strlen($bytes);
            $open[$i] = true;
            if ($left === 0) {
                unset($open[$i]);
            }
            $most = max($most, count($open));
            return strlen($bytes);
        };
        $handles[] = one($url, [CURLOPT_WRITEFUNCTION => $write] + $options);
        unset($left);
    }
    return [finish($multi, $handles), $most];
}

[$seen['HTTP/2 at once: answers'], $most] = at_once(limited(1), "$https/drip");
$seen['HTTP/2 at once'] = $most > 10;

// CURLMOPT_MAXCONNECTS is a limit of idle connections, and holds no call back.
foreach (['HTTP/2' => [], 'HTTP/1.1' => [CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1]] as $name => $options) {
    $multi = limited(0);
    curl_multi_setopt($multi, CURLMOPT_MAXCONNECTS, 1);
    [$seen["one idle connection, $name: answers"], $most] = at_once($multi, "$https/drip", $options);
    $seen["one idle connection, $name: at once"] = $most > 10;
}

// Calls that must go directly beside such that need not.
foreach ([[2, 0], [0, 2]] as [$host, $total]) {
    $multi = limited($host, $total);
    $handles = $direct = [];
    for ($i = 0; $i < 15; $i++) {
        $handles[] = one("$http/headers");
        $handles[] = $direct[] = one("$http/headers", [CURLOPT_INTERFACE => 'lo']);
    }
    $seen["mixed, $host, $total: answers"] = finish($multi, $handles);
    $seen["mixed, $host, $total: own connections"] = own($direct) <= 2;
}

// A handle is taken away before its call has begun, and used again.
$multi = limited(1);
$handles = $direct = [];
for ($i = 0; $i < 6; $i++) {
    $handles[] = one("$http/delay/200");
    $handles[] = $direct[] = one("$http/delay/200", [CURLOPT_INTERFACE => 'lo']);
}
foreach ($handles as $curl) {
    curl_multi_add_handle($multi, $curl);
}
curl_multi_exec($multi, $running);
$seen['all run'] = $running;
$seen['added twice'] = curl_multi_add_handle($multi, $direct[5]);
foreach ($direct as $curl) {
    $seen['taken away'][] = curl_multi_remove_handle($multi, $curl);
}
do {
    curl_multi_exec($multi, $running);
    curl_multi_select($multi, 0.1);
} while ($running);
$seen['used again'] = finish($multi, $direct);
unset($multi);
$seen['used alone'] = (bool) curl_exec($direct[0]);

// No origin answers the calls: each gets its error.
$handles = array_map(fn () => one('http://127.0.0.1:' . getenv('EGRESS_CLOSED_PORT')), range(1, 10));
$multi = limited(2);
finish($multi, $handles);
$seen['refused'] = array_unique(array_map('curl_errno', $handles));

echo json_encode($seen);
