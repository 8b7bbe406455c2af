<?php

/** E: php-fpm with one process, asked over FastCGI on a unix socket (https://fastcgi-archives.github.io/FastCGI_Specification.html). */

declare(strict_types=1);

require __DIR__ . '/runtime.php';

/** Sends one request to php-fpm over a new connection; returns the answer with its head. */
function ask(string $socket, array $variables, string $body): string
{
    $record = static fn (int $type, string $content): string => pack('CCnnCx', 1, $type, 1, strlen($content), 0) . $content;
    $size = static fn (string $text): string => strlen($text) < 128 ? chr(strlen($text)) : pack('N', strlen($text) | 0x80000000);
    $pairs = '';
    foreach ($variables as $name => $value) {
        $pairs .= $size($name) . $size($value) . $name . $value;
    }
    $connection = stream_socket_client("unix://{$socket}");
    $bodyRecords = implode('', array_map(static fn (string $piece): string => $record(5, $piece), $body === '' ? [] : str_split($body, 65535)));
    fwrite($connection, $record(1, pack('nCx5', 1, 0)) . $record(4, $pairs) . $record(4, '') . $bodyRecords . $record(5, ''));
    $answer = '';
    while (strlen($head = (string) stream_get_contents($connection, 8)) === 8) {
        ['type' => $type, 'length' => $length, 'padding' => $padding] = unpack('Cversion/Ctype/nid/nlength/Cpadding', $head);
        $content = (string) stream_get_contents($connection, $length + $padding);
        if ($type === 3) {
            break;
        }
        $answer .= $type === 6 ? substr($content, 0, $length) : '';
    }
    fclose($connection);
    return $answer;
}

$root = dirname(__DIR__, 3);
$folder = $argv[1] === 'echo' ? "{$root}/bench/models/echo/public" : "{$root}/examples/symfony-api/public";
$work = sys_get_temp_dir() . '/reference-' . getmypid();
mkdir($work);
$socket = "{$work}/fpm.sock";
file_put_contents("{$work}/fpm.conf", "[global]\nerror_log = /dev/stderr\ndaemonize = no\n[www]\nlisten = {$socket}\npm = static\npm.max_children = 1\nclear_env = no\n");
$minor = PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION;
// Whatever ends this process ends php-fpm, too.
$fpm = proc_open(['setpriv', '--pdeathsig', 'TERM', "php-fpm{$minor}", '--nodaemonize', '--allow-to-run-as-root', '--fpm-config', "{$work}/fpm.conf"], [], $pipes);
while (!file_exists($socket)) {
    usleep(1000);
}
$runtime = new Runtime();
while (true) {
    [$id, $json] = $runtime->next();
    $event = json_decode($json, true);
    $variables = [
        'GATEWAY_INTERFACE' => 'FastCGI/1.0', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => $event['httpMethod'], 'REQUEST_URI' => $event['path'],
        'QUERY_STRING' => '', 'SCRIPT_FILENAME' => "{$folder}/index.php", 'SCRIPT_NAME' => '/index.php', 'DOCUMENT_ROOT' => $folder,
        'REMOTE_ADDR' => $event['requestContext']['identity']['sourceIp'],
    ];
    foreach ($event['multiValueHeaders'] as $field => $values) {
        $variables['HTTP_' . strtr(strtoupper($field), '-', '_')] = implode(', ', $values);
    }
    [$head, $body] = explode("\r\n\r\n", ask($socket, $variables, (string) $event['body']), 2) + [1 => ''];
    $status = 200;
    $fields = [];
    foreach (explode("\r\n", $head) as $line) {
        [$field, $value] = explode(':', $line, 2);
        if (strtolower($field) === 'status') {
            $status = (int) $value;
        } else {
            $fields[strtolower($field)][] = trim($value);
        }
    }
    $runtime->respond($id, json_encode(reply($status, $fields, $body), JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES));
}
