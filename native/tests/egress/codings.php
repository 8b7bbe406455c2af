<?php

/** Calls whose application names the codings of answers in a field of its own. cases.php has those that leave it to CURLOPT_ENCODING. */

declare(strict_types=1);

/** Returns the address of an origin that answers `hello` in Brotli if the request accepts it. The origin ends with this process. */
function brotli_origin(): string
{
    static $origin = null;
    if ($origin === null) {
        $pipes = [];
        $process = proc_open([PHP_BINARY, '-n', '-r', '
            $listener = stream_socket_server("tcp://127.0.0.1:0");
            echo stream_socket_get_name($listener, false), "\n";
            for (;;) {
                $ready = [STDIN, $listener];
                $none = null;
                stream_select($ready, $none, $none, null);
                if (in_array(STDIN, $ready, true)) {
                    exit;
                }
                $connection = stream_socket_accept($listener);
                $accepted = "";
                while (trim($line = (string) fgets($connection)) !== "") {
                    $accepted .= stripos($line, "Accept-Encoding:") === 0 ? $line : "";
                }
                [$coding, $body] = str_contains($accepted, "br") ? ["br", "\x0b\x02\x80hello\x03"] : ["identity", "hello"];
                $length = strlen($body);
                fwrite($connection, "HTTP/1.1 200 OK\r\nContent-Encoding: $coding\r\nContent-Length: $length\r\nConnection: close\r\n\r\n$body");
                fclose($connection);
            }'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
        $origin = ['http://' . trim((string) fgets($pipes[1])) . '/', $process, $pipes];
    }
    return $origin[0];
}

/** What does not depend on the origin's port. */
function answer(string $url, array $options): array
{
    $seen = run($url, $options);
    return [$seen['result'], $seen['errno'], $seen['error'], $seen['info']['content_type']];
}

return function (string $http): array {
    $brotli = fn (string $coding, array $fields) => fn () => answer(brotli_origin(), [CURLOPT_ENCODING => $coding, CURLOPT_HTTPHEADER => $fields]);
    $gzip = fn (string $coding, array $fields) => fn () => run("$http/gzip", [CURLOPT_ENCODING => $coding, CURLOPT_HTTPHEADER => $fields]);
    return [
        'codings: all, Brotli in the field' => $brotli('', ['Accept-Encoding: gzip, deflate, br']),
        'codings: some, Brotli in both' => $brotli('gzip, br', ['Accept-Encoding: gzip, br']),
        'codings: Brotli in the second field' => $brotli('gzip', ['Accept-Encoding: gzip', 'accept-encoding:br;q=0.5']),
        'codings: a field without value, Brotli in the second' => $brotli('', ['Accept-Encoding:', 'Accept-Encoding: br']),
        'codings: any in the field' => $gzip('', ['Accept-Encoding: *']),
        'codings: gzip in the field' => $gzip('', ['Accept-Encoding: gzip, deflate']),
        'codings: gzip in the field, more in the option' => $gzip('gzip, br', ['Accept-Encoding: gzip']),
        'codings: a field with an empty value' => $gzip('', ['Accept-Encoding;']),
    ];
};
