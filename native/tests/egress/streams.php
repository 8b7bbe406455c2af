<?php

/**
 * Uses of `http://` and `https://` opened as files in PHP code. run.php runs all cases with and without the extension
 * (`hearth.intercept_streams`), and compares.
 */

declare(strict_types=1);

require_once __DIR__ . '/facts.php';

/** A typical context; `$notes` collects the calls of its notification callback. */
function context(array $http = [], array $ssl = [], ?array &$notes = null)
{
    $notes = [];
    return stream_context_create([
        'http' => $http + ['timeout' => 20],
        'ssl' => $ssl + ['cafile' => getenv('EGRESS_FOLDER') . '/authority.pem'],
    ], ['notification' => function (int $code, int $severity, ?string $message, int $number, int $bytes, int $most) use (&$notes): void {
        // how the bytes are cut into pieces is not promised
        if ($code !== STREAM_NOTIFY_PROGRESS) {
            $notes[] = [$code, $severity, $message === null ? null : preg_replace('/^(Content-Length: )\d+$/i', '$1N', $message), $number];
        }
    }]);
}

/** The lines of an answer's head. The origin is asked to close by stock PHP; the broker keeps its connection, and closes the one to us. */
function head(?array $lines): ?array
{
    return $lines === null ? null : array_values(preg_grep('/^(connection: close|content-length: \d+)$/i', $lines, PREG_GREP_INVERT));
}

/** Runs `$call`, and returns what it did with the warnings on the way. */
function noted(callable $call): array
{
    $warnings = [];
    set_error_handler(function (int $level, string $message) use (&$warnings): bool {
        $warnings[] = [$level, $message];
        return true;
    });
    try {
        $result = $call();
    } catch (Throwable $thrown) {
        $result = [get_class($thrown), $thrown->getMessage()];
    } finally {
        restore_error_handler();
    }
    return ['result' => $result, 'warnings' => $warnings];
}

/** Removes the notifications: in stock PHP 8.4, "completed" depends on when the origin closes. */
function without_notes(array $seen): array
{
    return array_diff_key($seen, ['notes' => true]);
}

/** Makes one call with file_get_contents(), and returns everything that can be observed. */
function fetched(string $url, array $http = [], array $ssl = []): array
{
    $context = context($http, $ssl, $notes);
    $seen = noted(function () use ($url, $context) {
        $body = file_get_contents($url, false, $context);
        $head = function_exists('http_get_last_response_headers') ? http_get_last_response_headers() : $http_response_header ?? null;
        return [is_string($body) && strlen($body) > 2000 ? md5($body) : facts($body), head($head)];
    });
    return $seen + ['notes' => $notes];
}

/** Does the same with fopen(), piece by piece, and adds the stream's metadata. */
function opened(string $url, array $http = [], array $ssl = []): array
{
    return noted(function () use ($url, $http, $ssl) {
        $file = fopen($url, 'rb', false, context($http, $ssl));
        if ($file === false) {
            return false;
        }
        $body = '';
        while (!feof($file)) {
            $body .= fread($file, 100);
        }
        $about = stream_get_meta_data($file);
        $about['wrapper_data'] = head($about['wrapper_data']);
        unset($about['crypto']); // by design: docs/internals/extension.md
        return [md5($body), strlen($body), $about, fstat($file), ftell($file), fclose($file)];
    });
}

/** The installed clients, configured to use PHP's streams. */
function client_cases(string $base): array
{
    $cases = [];
    $ca = getenv('EGRESS_FOLDER') . '/authority.pem';
    if (class_exists(GuzzleHttp\Client::class)) {
        $guzzle = function (string $method, string $path, array $options = []) use ($base, $ca): array {
            $stack = GuzzleHttp\HandlerStack::create(new GuzzleHttp\Handler\StreamHandler());
            $client = new GuzzleHttp\Client(['base_uri' => $base, 'handler' => $stack, 'verify' => $ca, 'timeout' => 20]);
            try {
                $answer = $client->request($method, $path, $options);
                $fields = array_diff_key(array_change_key_case($answer->getHeaders()), ['content-length' => 0, 'connection' => 0]);
                return [$answer->getStatusCode(), $answer->getReasonPhrase(), $fields, facts((string) $answer->getBody())];
            } catch (GuzzleHttp\Exception\GuzzleException $error) {
                return [get_class($error), $error->getMessage()];
            }
        };
        $cases += [
            'Guzzle: get' => fn () => $guzzle('GET', '/headers'),
            'Guzzle: json' => fn () => $guzzle('PUT', '/headers', ['json' => ['a' => 1]]),
            'Guzzle: 404' => fn () => $guzzle('GET', '/status/404'),
            'Guzzle: redirects' => fn () => $guzzle('GET', '/redirect/2'),
            'Guzzle: a stream' => fn () => $guzzle('GET', '/bytes/100000', ['stream' => true])[0],
            'Guzzle: compressed' => fn () => $guzzle('GET', '/gzip'),
            'Guzzle: not verified' => fn () => $guzzle('GET', '/headers', ['verify' => false]),
            'Guzzle: refused' => fn () => $guzzle('GET', 'http://127.0.0.1:' . closed_port()),
        ];
    }
    if (class_exists(Symfony\Component\HttpClient\NativeHttpClient::class)) {
        $symfony = function (string $method, string $path, array $options = []) use ($base, $ca): array {
            $client = new Symfony\Component\HttpClient\NativeHttpClient(['cafile' => $ca, 'timeout' => 20]);
            try {
                $answer = $client->request($method, str_contains($path, '://') ? $path : $base . $path, $options);
                $fields = array_diff_key($answer->getHeaders(false), ['content-length' => 0, 'connection' => 0]);
                return [$answer->getStatusCode(), $fields, facts($answer->getContent(false))];
            } catch (Symfony\Contracts\HttpClient\Exception\ExceptionInterface $error) {
                return [get_class($error), $error->getMessage()];
            }
        };
        $cases += [
            'Symfony: get' => fn () => $symfony('GET', '/headers'),
            'Symfony: post' => fn () => $symfony('POST', '/headers', ['body' => ['a' => 'b']]),
            'Symfony: redirects' => fn () => $symfony('GET', '/redirect/2'),
            'Symfony: 404' => fn () => $symfony('GET', '/status/404'),
            'Symfony: refused' => fn () => $symfony('GET', 'http://127.0.0.1:' . closed_port()),
        ];
    }
    return $cases;
}

return function (string $http, string $https): array {
    $cases = [];
    $folder = getenv('EGRESS_FOLDER');
    foreach (['http' => $http, 'https' => $https] as $scheme => $base) {
        $closed = "$scheme://127.0.0.1:" . closed_port() . '/';
        foreach (client_cases($base) as $name => $case) {
            $cases["$scheme, $name"] = $case;
        }
        $cases += [
            "$scheme: get" => fn () => fetched("$base/headers"),
            "$scheme: get with a query and a fragment" => fn () => fetched("$base/headers?a=b%20c#fragment"),
            "$scheme: dots in the path" => fn () => fetched("$base/a/../headers"),
            "$scheme: no path" => fn () => fetched($base),
            "$scheme: a query without a path" => fn () => fetched("$base?a=b"),
            "$scheme: a large answer" => fn () => fetched("$base/bytes/3000000"),
            "$scheme: an empty answer" => fn () => fetched("$base/bytes/0"),
            "$scheme: piece by piece" => fn () => opened("$base/bytes/300000"),
            "$scheme: in chunks, slowly" => fn () => opened("$base/drip"),
            "$scheme: in chunks, as they are" => fn () => fetched("$base/drip", ['auto_decode' => false]),
            "$scheme: an interim answer" => fn () => fetched("$base/early-hints"),
            "$scheme: trailers" => fn () => fetched("$base/trailers"),
            "$scheme: a sign-in for a proxy" => fn () => fetched("$base/headers", ['header' => ['Authorization: Bearer one', 'Proxy-Authorization: Bearer two']]),
            "$scheme: compressed" => fn () => fetched("$base/gzip"),
            "$scheme: head" => fn () => fetched("$base/bytes/10", ['method' => 'HEAD']),
            "$scheme: delete" => fn () => fetched("$base/headers", ['method' => 'DELETE']),
            "$scheme: a method of its own" => fn () => fetched("$base/headers", ['method' => 'brew']),
            "$scheme: post" => fn () => fetched("$base/headers", [
                'method' => 'POST',
                'header' => 'Content-Type: text/plain',
                'content' => 'a=b',
            ]),
            "$scheme: post without a type" => fn () => fetched("$base/headers", ['method' => 'POST', 'content' => 'a=b']),
            "$scheme: post with a length" => fn () => fetched("$base/headers", [
                'method' => 'POST',
                'header' => "Content-Length: 3\r\nContent-Type: text/plain\r\n",
                'content' => 'a=b',
            ]),
            "$scheme: post nothing" => fn () => fetched("$base/headers", ['method' => 'POST', 'content' => '']),
            "$scheme: post in chunks of the caller's" => fn () => fetched("$base/echo", [
                'method' => 'POST',
                'header' => ['Transfer-Encoding: chunked', 'Content-Length:', 'Content-Type: text/plain'],
                'content' => "3\r\none\r\n0\r\n\r\n",
            ]),
            "$scheme: post five megabytes" => fn () => fetched("$base/echo", [
                'method' => 'POST',
                'header' => 'Content-Type: text/plain',
                'content' => str_repeat('0123456789', 500000),
            ]),
            "$scheme: asks to be told to go on" => fn () => fetched("$base/echo", [
                'method' => 'POST',
                'header' => ['Expect: 100-continue', 'Content-Type: text/plain'],
                'content' => 'body',
            ]),
            "$scheme: answered early" => fn () => array_diff_key(fetched("$base/early", [
                'method' => 'POST',
                'header' => 'Content-Type: text/plain',
                'content' => str_repeat('x', 100),
                'ignore_errors' => true,
            ]), ['notes' => 0]),
            "$scheme: fields as an array" => fn () => fetched("$base/headers", ['header' => ['X-One: 1', 'X-one: 2', 'Accept: a/b']]),
            "$scheme: fields as text" => fn () => fetched("$base/headers", ['header' => "X-One: 1\r\nCookie: a=b\r\n\r\n"]),
            "$scheme: fields ended by a line feed only" => fn () => without_notes(fetched("$base/headers", ['header' => "X-One: 1\nX-Two: 2"])),
            "$scheme: a field over two lines" => fn () => fetched("$base/status/204", ['header' => "X-One: 1\r\n more"])['warnings'],
            "$scheme: user agent" => fn () => fetched("$base/headers", ['user_agent' => 'tests']),
            "$scheme: user agent and sender of the ini settings" => function () use ($base) {
                $before = [ini_set('user_agent', 'from ini'), ini_set('from', 'me@example.com')];
                $seen = fetched("$base/headers");
                ini_set('user_agent', (string) $before[0]);
                ini_set('from', (string) $before[1]);
                return $seen;
            },
            "$scheme: user in the URL" => fn () => fetched(str_replace('://', '://user:password@', $base) . '/basic-auth'),
            "$scheme: user without a password" => fn () => fetched(str_replace('://', '://user@', $base) . '/headers'),
            "$scheme: wrong password" => fn () => fetched(str_replace('://', '://user:wrong@', $base) . '/basic-auth'),
            "$scheme: HTTP/1.0" => fn () => fetched("$base/bytes/7", ['protocol_version' => 1.0]),
            "$scheme: HTTP/1.1" => fn () => fetched("$base/headers", ['protocol_version' => '1.1']),
            "$scheme: the whole URL in the request" => fn () => fetched("$base/bytes/5", ['request_fulluri' => true]),
            "$scheme: 404" => fn () => fetched("$base/status/404"),
            "$scheme: 404, errors ignored" => fn () => fetched("$base/status/404", ['ignore_errors' => true]),
            "$scheme: 403" => fn () => fetched("$base/status/403"),
            "$scheme: a 502 of the origin's" => fn () => fetched("$base/status/502"),
            "$scheme: 304" => fn () => fetched("$base/status/304"),
            "$scheme: redirects" => fn () => fetched("$base/redirect/3"),
            "$scheme: redirects, piece by piece" => fn () => opened("$base/redirect/1")['result'][2]['wrapper_data'],
            "$scheme: redirects that are not followed" => fn () => fetched("$base/redirect/3", ['follow_location' => 0]),
            "$scheme: too many redirects" => fn () => fetched("$base/redirect/5", ['max_redirects' => 3]),
            "$scheme: no redirect at all" => fn () => fetched("$base/redirect/5", ['max_redirects' => 1]),
            "$scheme: too many redirects, errors ignored" => fn () => fetched("$base/redirect/5", [
                'max_redirects' => 2,
                'ignore_errors' => true,
            ]),
            "$scheme: a post is redirected" => fn () => fetched("$base/redirect/1", [
                'method' => 'POST',
                'header' => ['Content-Type: text/plain', 'X-One: 1', 'Authorization: Basic dXNlcjpwYXNzd29yZA=='],
                'content' => 'a=b',
            ]),
            "$scheme: no listener" => fn () => fetched($closed),
            "$scheme: no listener, posted" => fn () => fetched($closed, [
                'method' => 'POST',
                'header' => 'Content-Type: text/plain',
                'content' => 'body',
            ]),
            "$scheme: time limit" => fn () => fetched("$base/delay/5000", ['timeout' => 0.4]),
            "$scheme: time limit in the body" => fn () => noted(function () use ($base) {
                $file = fopen("$base/drip", 'r', false, context(['timeout' => 5]));
                stream_set_timeout($file, 0, 1000);
                fread($file, 8192);
                return [stream_get_meta_data($file)['timed_out'], fclose($file)];
            }),
            // OpenSSL notices the reset only sometimes, and PHP then warns of it
            "$scheme: reset in the place of an answer" => fn () => array_slice(fetched("$base/reset")['warnings'], -1),
            // PHP 8.5 does not always notify of the end, depending on OpenSSL
            "$scheme: no answer" => fn () => array_diff_key(fetched("$base/empty"), ['notes' => 0]),
            "$scheme: posted, and no answer" => fn () => array_diff_key(fetched("$base/empty", [
                'method' => 'POST',
                'header' => 'Content-Type: text/plain',
                'content' => 'body',
            ]), ['notes' => 0]),
            "$scheme: cut off" => fn () => fetched("$base/cut")['result'],
            "$scheme: written to" => fn () => noted(fn () => [
                file_put_contents("$base/headers", 'x', 0, context()),
                fopen("$base/headers", 'r+', false, context()),
                fopen("$base/headers", 'x', false, context()),
            ]),
            "$scheme: what files have and URLs have not" => fn () => noted(fn () => [
                is_file("$base/headers"),
                @filesize("$base/headers"),
                file_exists("$base/headers"),
                unlink("$base/headers"),
                rename("$base/headers", "$base/bytes"),
                mkdir("$base/folder"),
                opendir("$base/folder"),
            ]),
            "$scheme: get_headers()" => fn () => noted(fn () => head(get_headers("$base/status/404", false, context()) ?: null)),
            "$scheme: get_headers() of a redirect, by name" => fn () => noted(fn () => array_keys(
                array_diff_key(get_headers("$base/redirect/1", true, context()), ['Connection' => 0])
            )),
            "$scheme: get_headers() of chunks" => fn () => noted(fn () => head(get_headers("$base/drip", false, context()))),
            "$scheme: lines of a file" => fn () => noted(fn () => count(file("$base/bytes/9000", 0, context()))),
            "$scheme: readfile()" => fn () => noted(function () use ($base) {
                ob_start();
                $length = readfile("$base/bytes/5000", false, context());
                return [$length, md5((string) ob_get_clean())];
            }),
            "$scheme: copy()" => fn () => noted(function () use ($base, $folder) {
                $done = copy("$base/bytes/100000", "$folder/copy", context());
                return [$done, md5_file("$folder/copy"), unlink("$folder/copy")];
            }),
            "$scheme: through a filter" => fn () => noted(fn () => md5((string) file_get_contents(
                "php://filter/read=string.rot13/resource=$base/bytes/5000",
                false,
                context()
            ))),
            "$scheme: the beginning only" => fn () => noted(fn () => file_get_contents("$base/bytes/100", false, context(), 0, 20)),
            "$scheme: back to the beginning" => fn () => noted(function () use ($base) {
                $file = fopen("$base/bytes/100", 'r', false, context());
                return [fread($file, 10), fseek($file, 5), ftell($file), rewind($file)];
            }),
            "$scheme: waited for with stream_select()" => fn () => noted(function () use ($base) {
                $file = fopen("$base/drip", 'r', false, context());
                stream_set_blocking($file, false);
                $body = '';
                while (!feof($file)) {
                    $read = [$file];
                    $none = null;
                    stream_select($read, $none, $none, 10);
                    $body .= fread($file, 8192);
                }
                return [$body, stream_get_meta_data($file)['blocked']];
            }),
            "$scheme: two at once" => fn () => noted(function () use ($base) {
                $one = fopen("$base/bytes/50000", 'r', false, context());
                $two = fopen("$base/bytes/50001", 'r', false, context());
                return [strlen(stream_get_contents($two)), strlen(stream_get_contents($one))];
            }),
            "$scheme: closed before its end" => fn () => noted(function () use ($base) {
                $file = fopen("$base/bytes/3000000", 'r', false, context());
                return [strlen(fread($file, 10)), fclose($file)];
            }),
            "$scheme: an image that is none" => fn () => noted(fn () => getimagesize("$base/bytes/5000")),
            "$scheme: a document that is none" => fn () => noted(function () use ($base) {
                libxml_set_streams_context(context());
                return @simplexml_load_file("$base/bytes/50");
            }),
            "$scheme: callback that throws" => fn () => noted(fn () => file_get_contents("$base/headers", false, stream_context_create([
                'ssl' => ['cafile' => "$folder/authority.pem"],
            ], ['notification' => fn () => throw new RuntimeException('from within')]))),
            "$scheme: callback that makes a call" => fn () => noted(function () use ($base) {
                $inner = [];
                $context = context();
                stream_context_set_params($context, ['notification' => function (int $code) use (&$inner, $base): void {
                    if ($code === STREAM_NOTIFY_CONNECT && $inner === []) {
                        $inner[] = file_get_contents("$base/bytes/3", false, context());
                        $inner[] = get_resource_type(stream_socket_client(preg_replace('#^\w+#', 'tcp', $base)));
                    }
                }]);
                return [strlen((string) file_get_contents("$base/redirect/1", false, $context)) > 100, $inner];
            }),
            "$scheme: a context used twice" => function () use ($base) {
                $context = context([], [], $notes);
                $seen = noted(fn () => [
                    file_get_contents("$base/bytes/1", false, $context),
                    file_get_contents("$base/bytes/2", false, $context),
                    stream_context_get_options($context),
                ]);
                return [$seen, $notes];
            },
            "$scheme: a wish to the broker from outside" => fn () => array_filter(
                fetched("$base/headers", ['header' => ['Hearth-Control: token="0", verify=?0', 'hearth-origin: http://127.0.0.3']])
                    ['result'][0]['fields'],
                fn ($field) => !str_starts_with(strtolower($field[0]), 'hearth-')
            ),
            "$scheme: another Host" => fn () => fetched("$base/headers", ['header' => 'Host: other.example']),
            "$scheme: an unknown option" => fn () => fetched("$base/bytes/3", ['unheard_of' => 1]),
            "$scheme: from an address" => fn () => noted(fn () => file_get_contents("$base/bytes/3", false, stream_context_create([
                'socket' => ['bindto' => '127.0.0.1:0'],
                'ssl' => ['cafile' => "$folder/authority.pem"],
            ]))),
            "$scheme: included" => fn () => noted(fn () => @include "$base/headers"),
        ];
    }
    return $cases + [
        'in capitals' => fn () => fetched("HTTP" . substr($http, strlen('http')) . '/headers'),
        'no such name' => fn () => fetched('http://no-such-name.invalid/'),
        'no such name, secure' => fn () => fetched('https://no-such-name.invalid/'),
        'not a URL' => fn () => fetched('http://'),
        'a port that is none' => fn () => fetched('http://127.0.0.1:99999/'),
        'a proxy' => fn () => fetched('http://other.example/bytes/3', [
            'proxy' => preg_replace('#^\w+#', 'tcp', $http),
            'request_fulluri' => true,
        ]),
        'a proxy without a listener' => fn () => fetched("$http/headers", ['proxy' => 'tcp://127.0.0.1:' . closed_port()]),
        'unknown authority' => fn () => fetched("$https/headers", [], ['cafile' => '/etc/ssl/certs/ca-certificates.crt']),
        'no such file of authorities' => fn () => fetched("$https/headers", [], ['cafile' => '/nonexistent.pem']),
        'the system\'s authorities' => fn () => noted(fn () => file_get_contents("$https/headers")),
        'not verified' => fn () => fetched("$https/headers", [], [
            'cafile' => '/etc/ssl/certs/ca-certificates.crt',
            'verify_peer' => false,
            'verify_peer_name' => false,
        ]),
        'half verified' => fn () => fetched("$https/headers", [], [
            'cafile' => '/etc/ssl/certs/ca-certificates.crt',
            'verify_peer' => false,
        ]),
        'another name in the certificate' => fn () => fetched(str_replace('localhost', '127.0.0.2', $https) . '/headers'),
        'another name that is expected' => fn () => fetched(str_replace('localhost', '127.0.0.2', $https) . '/bytes/3', [], [
            'peer_name' => 'localhost',
        ]),
        'the name that is expected' => fn () => fetched("$https/headers", [], ['peer_name' => 'localhost', 'SNI_enabled' => true]),
        'a certificate of the client\'s' => fn () => fetched("$https/headers", [], [
            'local_cert' => "$folder/client.pem",
            'local_pk' => "$folder/client.key",
        ]),
        'no such certificate of the client\'s' => fn () => fetched("$https/bytes/3", [], ['local_cert' => '/nonexistent.pem']),
        'the certificate is asked for' => fn () => noted(function () use ($https) {
            $context = context([], ['capture_peer_cert' => true]);
            file_get_contents("$https/bytes/1", false, $context);
            return get_class(stream_context_get_params($context)['options']['ssl']['peer_certificate']);
        }),
        'a fingerprint' => fn () => fetched("$https/bytes/3", [], ['peer_fingerprint' => str_repeat('0', 40)]),
        'ciphers' => fn () => fetched("$https/bytes/3", [], ['ciphers' => 'HIGH']),
        'TLS 1.2 only' => fn () => fetched("$https/headers", [], ['crypto_method' => STREAM_CRYPTO_METHOD_TLSv1_2_CLIENT]),
        'TLS 1.0 only' => fn () => fetched("$https/headers", [], ['crypto_method' => STREAM_CRYPTO_METHOD_TLSv1_0_CLIENT])['result'],
        'wrappers' => fn () => stream_get_wrappers(),
        'transports' => fn () => stream_get_transports(),
        'the wrapper replaced, and put back' => fn () => noted(function () use ($http) {
            stream_wrapper_unregister('http');
            $without = @file_get_contents("$http/bytes/3");
            return [$without, stream_wrapper_restore('http'), file_get_contents("$http/bytes/3")];
        }),
        'what is no HTTP over a transport of its own' => fn () => noted(function () use ($http) {
            $socket = stream_socket_client(preg_replace('#^\w+#', 'tcp', $http));
            fwrite($socket, "GET /bytes/3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            return substr(stream_get_contents($socket), -3) . stream_get_meta_data($socket)['stream_type'];
        }),
    ];
};
