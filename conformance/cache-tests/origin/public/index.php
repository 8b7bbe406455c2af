<?php

/**
 * The server side of the suite http-tests/cache-tests, by its protocol: `/config/ID` takes what a test wants answered, `/test/ID` answers
 * that, `/state/ID` says which requests have come. The suite's own server is a program of Node.js; Hearth's origin is PHP.
 */

declare(strict_types=1);

$store = getenv('CACHE_TESTS_STORE') ?: sys_get_temp_dir();
$path = explode('/', (string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
[$what, $id] = [$path[1] ?? '', preg_replace('/[^0-9a-zA-Z-]/', '', $path[2] ?? '')];
$file = "{$store}/{$id}.config";

header_remove('X-Powered-By');

function plain(int $status, string $text): never
{
    http_response_code($status);
    header('Content-Type: text/plain');
    echo $text;
    exit;
}

if ($what === 'config') {
    $_SERVER['REQUEST_METHOD'] === 'PUT' || plain(405, 'only PUT');
    !file_exists($file) || plain(409, 'there is a config already');
    file_put_contents($file, file_get_contents('php://input'));
    plain(201, 'OK');
}
if ($what === 'state') {
    $state = @file_get_contents("{$store}/{$id}.state");
    $state === false ? plain(404, 'no state') : plain(200, $state);
}
$what === 'test' && is_file($file) || plain(409, 'no such test');
$requests = json_decode((string) file_get_contents($file), true);

/** A list that several processes append to. */
$list = fopen("{$store}/{$id}.state", 'c+');
flock($list, LOCK_EX);
$state = json_decode(stream_get_contents($list) ?: '[]', true);
$headers = array_change_key_case(getallheaders());
$number = (int) ($headers['req-num'] ?? 0);
$count = count($state) + 1;
$wanted = $requests[($number ?: $count) - 1] ?? null;
$wanted !== null || plain(409, 'no such request');
$previous = $requests[($number ?: $count) - 2]['response_headers'] ?? [];

if (isset($wanted['response_pause'])) {
    flock($list, LOCK_UN);
    usleep((int) ($wanted['response_pause'] * 1_000_000));
    flock($list, LOCK_EX);
    rewind($list);
    $state = json_decode(stream_get_contents($list) ?: '[]', true);
    $count = count($state) + 1;
}

foreach ($wanted['interim_responses'] ?? [] as $interim) {
    foreach ($interim[1] ?? [] as [$name, $value]) {
        header("{$name}: {$value}");
    }
    headers_send($interim[0]);
    header_remove();
}

$now = (int) (microtime(true) * 1000);
$date = function (int $offset, bool $rfc850) use ($now): string {
    $format = $rfc850 ? 'l, d-M-y H:i:s \G\M\T' : 'D, d M Y H:i:s \G\M\T';
    return gmdate($format, intdiv($now, 1000) + $offset);
};
$rfc850 = $wanted['rfc850date'] ?? [];
$fields = array_map(function (array $field) use ($wanted, $date, $rfc850): array {
    $name = strtolower($field[0]);
    if (is_int($field[1]) && in_array($name, ['date', 'expires', 'last-modified', 'if-modified-since', 'if-unmodified-since'], true)) {
        $field[1] = $date($field[1], in_array($name, $rfc850, true));
    }
    if (($wanted['magic_locations'] ?? false) && in_array($name, ['location', 'content-location'], true)) {
        $field[1] = $_SERVER['REQUEST_URI'] . ($field[1] ? "/{$field[1]}" : '');
    }
    return $field;
}, $wanted['response_headers'] ?? []);

$status = $wanted['response_status'] ?? [200, 'OK'];
if (str_ends_with($wanted['expected_type'] ?? '', 'validated')) {
    $status = [999, '304 Not Generated'];
    foreach ([['last-modified', 'if-modified-since'], ['etag', 'if-none-match']] as [$field, $condition]) {
        foreach ($previous as $sent) {
            if (strtolower($sent[0]) === $field && ($headers[$condition] ?? null) === $sent[1]) {
                $status = [304, 'Not Modified'];
            }
        }
    }
}
header("HTTP/1.1 {$status[0]} {$status[1]}");
header("Server-Base-Url: {$_SERVER['REQUEST_URI']}");
header("Server-Request-Count: {$count}");
header('Client-Request-Count: ' . ($number ?: 'NaN'));
header("Server-Now: {$now}");
$saved = [];
foreach ($fields as $field) {
    $value = iconv('UTF-8', 'ISO-8859-1', (string) $field[1]);
    header("{$field[0]}: {$value}", false);
    if ($field[2] ?? true) {
        $saved[$field[0]][] = $field[1];
    }
}
if (!array_filter(headers_list(), fn (string $line): bool => stripos($line, 'content-type:') === 0)) {
    header('Content-Type: text/plain');
}

$state[] = [
    'request_num' => $number,
    'request_method' => $_SERVER['REQUEST_METHOD'],
    'request_headers' => $headers,
    'response_headers' => array_map(
        fn (string $name, array $values): array => [$name, count($values) > 1 ? $values : $values[0]],
        array_keys($saved),
        $saved,
    ),
];
header('Request-Numbers: ' . implode(' ', array_column($state, 'request_num')));
rewind($list);
ftruncate($list, 0);
fwrite($list, json_encode($state, JSON_INVALID_UTF8_SUBSTITUTE));
fflush($list);
flock($list, LOCK_UN);

if ($wanted['disconnect'] ?? false) {
    // The suite's server closes the connection without an answer. PHP has none: its process ends.
    posix_kill(getmypid(), 9);
}
if (!in_array($status[0], [204, 304], true)) {
    echo $wanted['response_body'] ?? $id;
}
