<?php

/** API Gateway's @connections for one call: says its address, answers with the status of the first argument, and prints the request. */

declare(strict_types=1);

$listener = stream_socket_server('tcp://127.0.0.1:0');
echo 'http://', stream_socket_get_name($listener, false), "\n";
$client = stream_socket_accept($listener, 60);
$request = '';
do {
    $request .= (string) fread($client, 65536);
    [$head, $body] = explode("\r\n\r\n", $request, 2) + [1 => null];
    $length = preg_match('/^content-length: *(\d+)/mi', $head, $part) === 1 ? (int) $part[1] : 0;
} while (!feof($client) && ($body === null || strlen($body) < $length));
fwrite($client, "HTTP/1.1 {$argv[1]} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
fclose($client);
echo $request;
