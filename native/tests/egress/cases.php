<?php

/**
 * Uses of ext-curl in PHP code. Each case returns what it observed; run.php runs all of them with and without the extension, and
 * compares.
 */

declare(strict_types=1);

require_once __DIR__ . '/facts.php';

/** A handle as most code makes it. */
function handle(string $url, array $options = []): CurlHandle
{
    $curl = curl_init($url);
    curl_setopt_array($curl, array_replace([
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_CAINFO => getenv('EGRESS_FOLDER') . '/authority.pem',
        CURLOPT_TIMEOUT => 20,
    ], $options));
    return $curl;
}

/** Everything that can be seen of a call, but for what differs by design: docs/internals/extension.md, "Differences". */
function seen(CurlHandle $curl, mixed $result): array
{
    $info = curl_getinfo($curl);
    foreach (array_keys($info) as $key) {
        if (preg_match('/_time(_us)?$|^speed_|^local_|^request_size$|^conn_id$/', $key)) {
            unset($info[$key]);
        }
    }
    if (in_array(curl_errno($curl), [CURLE_OPERATION_TIMEDOUT, CURLE_ABORTED_BY_CALLBACK], true)) {
        // No answer shows it; but an empty address says that nothing was sent.
        $info['primary_ip'] = $info['primary_ip'] !== '';
        unset($info['primary_port']);
    }
    if (curl_errno($curl) === CURLE_ABORTED_BY_CALLBACK) {
        unset($info['primary_ip']); // libcurl 8.23 is connected when it asks the callback first, 8.14 is not
    }
    if (curl_errno($curl) !== 0) {
        unset(
            $info['upload_content_length'],
            $info['size_upload'],
            $info['protocol'],
            $info['scheme'],
        );
    }
    unset($info['ssl_verify_result']); // of a certificate that is not verified anyway
    return [
        'result' => is_string($result) && strlen($result) > 2000 ? md5($result) : facts($result),
        'errno' => curl_errno($curl),
        'error' => preg_replace(
            ['/after \d+ m/', '/stream \d+/', '/reset by server \(error 0x(\d) (\w+)\)/'],
            ['after N m', 'stream N', 'was not closed cleanly: $2 (err $1)'], // whose messages differ between libcurl's versions
            curl_error($curl)
        ),
        'info' => array_diff_key($info, is_string($result) && $result !== '' && $result[0] === '{'
            ? ['size_download' => 0, 'download_content_length' => 0] : []),
    ];
}

/** The address of an origin with faulty TLS: crates/testkit/src/bin/scripted_origin.rs. */
function faulty(string $name): string
{
    return file_get_contents(getenv('EGRESS_FOLDER') . "/$name.url") . '/headers';
}

function run(string $url, array $options = []): array
{
    $curl = handle($url, $options);
    return seen($curl, curl_exec($curl));
}

/** Lines as CURLOPT_HEADERFUNCTION gets them. */
function lines(string $url, array $options = []): array
{
    $lines = [];
    $options[CURLOPT_HEADERFUNCTION] = function ($curl, string $line) use (&$lines): int {
        $lines[] = $line;
        return strlen($line);
    };
    return ['lines' => &$lines] + ['call' => run($url, $options)];
}

/** Runs handles side by side, as Guzzle does, and returns what came of each. */
function together(array $handles): array
{
    $multi = curl_multi_init();
    foreach ($handles as $curl) {
        curl_multi_add_handle($multi, $curl);
    }
    $results = [];
    do {
        $status = curl_multi_exec($multi, $running);
        while ($message = curl_multi_info_read($multi)) {
            $results[array_search($message['handle'], $handles, true)] = $message['result'];
        }
        if ($running) {
            curl_multi_select($multi, 1.0);
        }
    } while ($running && $status === CURLM_OK);
    $seen = [];
    foreach ($handles as $name => $curl) {
        $seen[$name] = [$results[$name] ?? 'no message', seen($curl, curl_multi_getcontent($curl))];
        curl_multi_remove_handle($multi, $curl);
    }
    return $seen;
}

return function (string $http, string $https): array {
    $file = __FILE__;
    $cases = [];
    foreach (['http' => $http, 'https' => $https] as $scheme => $base) {
        $cases += [
            "$scheme: get" => fn () => run("$base/headers"),
            "$scheme: get with a query and a fragment" => fn () => run("$base/headers?a=b%20c#fragment"),
            "$scheme: dots in the path" => fn () => run("$base/a/../headers"),
            "$scheme: no path" => fn () => run($base),
            "$scheme: a large answer" => fn () => run("$base/bytes/3000000"),
            "$scheme: an empty answer" => fn () => run("$base/bytes/0"),
            "$scheme: head" => fn () => run("$base/bytes/10", [CURLOPT_NOBODY => true]),
            "$scheme: head, by its name too" => fn () => run("$base/bytes/10", [CURLOPT_NOBODY => true, CURLOPT_CUSTOMREQUEST => 'HEAD']),
            "$scheme: no body of a GET" => fn () => run("$base/bytes/10", [CURLOPT_NOBODY => true, CURLOPT_CUSTOMREQUEST => 'GET']),
            "$scheme: no body, then a post" => fn () => run("$base/bytes/10", [CURLOPT_NOBODY => true, CURLOPT_POSTFIELDS => 'a=b']),
            "$scheme: no body, then a post by the name of HEAD" => fn () => run("$base/bytes/10", [
                CURLOPT_NOBODY => true,
                CURLOPT_POSTFIELDS => 'a=b',
                CURLOPT_CUSTOMREQUEST => 'HEAD',
            ]),
            "$scheme: no body, then a post, redirected twice" => function () use ($base) {
                $curl = handle("$base/redirect/1", [CURLOPT_FOLLOWLOCATION => true, CURLOPT_NOBODY => true, CURLOPT_POSTFIELDS => 'a=b']);
                $seen = [seen($curl, curl_exec($curl)), seen($curl, curl_exec($curl))];
                unset($seen[0]['info']['download_content_length'], $seen[1]['info']['download_content_length']); // it has the connection's number
                return $seen;
            },
            "$scheme: delete" => fn () => run("$base/headers", [CURLOPT_CUSTOMREQUEST => 'DELETE']),
            "$scheme: post" => fn () => run("$base/headers", [CURLOPT_POSTFIELDS => 'a=b']),
            "$scheme: post nothing" => fn () => run("$base/headers", [CURLOPT_POST => true, CURLOPT_POSTFIELDS => '']),
            "$scheme: post an array" => fn () => array_diff_key(
                run("$base/echo", [CURLOPT_POSTFIELDS => ['a' => 'b']])['info'],
                ['size_download' => 0]
            ),
            "$scheme: post a file" => fn () => substr_count(
                (string) curl_exec(handle("$base/echo", [CURLOPT_POSTFIELDS => ['f' => new CURLFile($file, 'text/x-php', 'cases.php')]])),
                'name="f"; filename="cases.php"'
            ),
            "$scheme: post two megabytes" => fn () => run("$base/echo", [CURLOPT_POSTFIELDS => str_repeat('0123456789', 200000)]),
            "$scheme: post a hundred kilobytes" => fn () => run("$base/echo", [CURLOPT_POSTFIELDS => str_repeat('0123456789', 10000)]),
            "$scheme: put a string" => fn () => run("$base/echo", [CURLOPT_CUSTOMREQUEST => 'PUT', CURLOPT_POSTFIELDS => 'a=b']),
            "$scheme: put a file" => fn () => run("$base/echo", [
                CURLOPT_UPLOAD => true,
                CURLOPT_INFILE => fopen($file, 'r'),
                CURLOPT_INFILESIZE => filesize($file),
            ]),
            "$scheme: put without a length" => function () use ($base) {
                $pieces = ['one ', 'two ', 'three'];
                return run("$base/echo", [
                    CURLOPT_UPLOAD => true,
                    CURLOPT_HTTPHEADER => ['Expect:'],
                    CURLOPT_READFUNCTION => function () use (&$pieces): string {
                        return (string) array_shift($pieces);
                    },
                ]);
            },
            "$scheme: fields of the caller's" => fn () => run("$base/headers", [
                CURLOPT_HTTPHEADER => ['X-One: 1', 'X-one: 2', 'X-Empty;', 'Accept:'],
                CURLOPT_USERAGENT => 'tests',
                CURLOPT_REFERER => 'http://example.com/',
                CURLOPT_COOKIE => 'a=b',
            ]),
            "$scheme: a sign-in for a proxy" => fn () => run("$base/headers", [
                CURLOPT_HTTPHEADER => ['Authorization: Bearer one', 'Proxy-Authorization: Bearer two'],
            ]),
            "$scheme: a sign-in for a proxy, side by side" => fn () => together([
                'one' => handle("$base/headers", [CURLOPT_HTTPHEADER => ['proxy-authorization: Bearer two']]),
                'other' => handle("$base/headers"),
            ]),
            "$scheme: the head in the answer" => fn () => run("$base/bytes/3", [CURLOPT_HEADER => true]),
            "$scheme: header callback" => fn () => lines("$base/bytes/3"),
            "$scheme: body callback" => function () use ($base) {
                $body = '';
                $seen = run("$base/drip", [CURLOPT_WRITEFUNCTION => function ($curl, string $bytes) use (&$body): int {
                    $body .= $bytes;
                    return strlen($bytes);
                }]);
                return [$seen, $body];
            },
            "$scheme: body callback that refuses" => fn () => run("$base/bytes/10", [CURLOPT_WRITEFUNCTION => fn () => 0]),
            "$scheme: header callback that refuses" => fn () => run("$base/bytes/10", [CURLOPT_HEADERFUNCTION => fn () => 0])['errno'],
            "$scheme: callback that throws" => function () use ($base) {
                try {
                    return run("$base/bytes/10", [CURLOPT_WRITEFUNCTION => fn () => throw new RuntimeException('from within')]);
                } catch (RuntimeException $thrown) {
                    return $thrown->getMessage();
                }
            },
            "$scheme: what a callback can ask" => function () use ($base) {
                $asked = [];
                run("$base/redirect/1", [
                    CURLOPT_FOLLOWLOCATION => true,
                    CURLOPT_HEADERFUNCTION => function (CurlHandle $curl, string $line) use (&$asked): int {
                        $asked[] = [
                            trim($line),
                            curl_getinfo($curl, CURLINFO_EFFECTIVE_URL),
                            curl_getinfo($curl, CURLINFO_RESPONSE_CODE),
                            curl_getinfo($curl, CURLINFO_REDIRECT_COUNT),
                        ];
                        return strlen($line);
                    },
                ]);
                return array_map(fn ($line) => str_starts_with(strtolower($line[0]), 'content-length') ? null : $line, $asked);
            },
            "$scheme: callback that calls" => function () use ($base) {
                $inner = [];
                $outer = run("$base/bytes/5", [CURLOPT_WRITEFUNCTION => function ($curl, string $bytes) use ($base, &$inner): int {
                    $inner[] = run("$base/redirect/1", [CURLOPT_FOLLOWLOCATION => true]);
                    return strlen($bytes);
                }]);
                return [$outer, $inner, run("$base/headers")];
            },
            "$scheme: callback that sets options" => function () use ($base) {
                $curl = handle("$base/bytes/5", [CURLOPT_HEADERFUNCTION => function ($curl, string $line): int {
                    curl_setopt($curl, CURLOPT_USERAGENT, 'later');
                    return strlen($line);
                }]);
                curl_exec($curl);
                curl_setopt($curl, CURLOPT_URL, "$base/headers");
                return seen($curl, curl_exec($curl));
            },
            "$scheme: lines of an interim answer" => fn () => lines("$base/early-hints", [CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1]),
            "$scheme: into a file" => function () use ($base) {
                $to = tmpfile();
                $seen = run("$base/bytes/5000", [CURLOPT_RETURNTRANSFER => false, CURLOPT_FILE => $to]);
                rewind($to);
                return [$seen, md5(stream_get_contents($to))];
            },
            "$scheme: head into a file" => function () use ($base) {
                $to = tmpfile();
                run("$base/bytes/5", [CURLOPT_WRITEHEADER => $to]);
                rewind($to);
                return stream_get_contents($to);
            },
            "$scheme: progress" => function () use ($base) {
                $last = [];
                run("$base/bytes/1000", [
                    CURLOPT_NOPROGRESS => false,
                    CURLOPT_PROGRESSFUNCTION => function ($curl, ...$numbers) use (&$last): int {
                        $last = $numbers;
                        return 0;
                    },
                ]);
                return $last;
            },
            "$scheme: progress callback that aborts" => fn () => run("$base/delay/2000", [
                CURLOPT_NOPROGRESS => false,
                CURLOPT_PROGRESSFUNCTION => fn () => 1,
            ]),
            "$scheme: what was sent" => function () use ($base) {
                $curl = handle("$base/headers", [CURLINFO_HEADER_OUT => true, CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1]);
                curl_exec($curl);
                return curl_getinfo($curl, CURLINFO_HEADER_OUT);
            },
            "$scheme: 404 with fail on error" => fn () => lines("$base/status/404", [CURLOPT_FAILONERROR => true]),
            "$scheme: a 502 of the origin's" => fn () => run("$base/status/502"),
            "$scheme: compressed" => fn () => run("$base/gzip", [CURLOPT_ENCODING => '']),
            "$scheme: compressed with gzip" => fn () => run("$base/gzip", [CURLOPT_ENCODING => 'gzip, deflate']),
            "$scheme: compressed twice" => fn () => run("$base/twice", [CURLOPT_ENCODING => 'gzip, deflate']),
            "$scheme: compressed twice, said twice" => fn () => run("$base/twice/1", [CURLOPT_ENCODING => 'gzip, deflate']),
            "$scheme: compressed, not said" => fn () => run("$base/gzip", [CURLOPT_ENCODING => '', CURLOPT_HTTPHEADER => ['Accept-Encoding:']]),
            "$scheme: asked to be compressed" => fn () => run("$base/headers", [CURLOPT_ENCODING => 'gzip']),
            "$scheme: compressed, and the callback refuses" => fn () => run("$base/gzip", [
                CURLOPT_ENCODING => 'gzip',
                CURLOPT_WRITEFUNCTION => fn () => 0,
            ])['errno'],
            "$scheme: compressed, as it is" => fn () => md5((string) curl_exec(handle("$base/gzip"))),
            "$scheme: basic authentication" => fn () => run("$base/basic-auth", [CURLOPT_USERPWD => 'user:password']),
            "$scheme: user in the URL" => fn () => run(str_replace('://', '://user:password@', $base) . '/basic-auth'),
            "$scheme: digest goes directly" => fn () => run("$base/basic-auth", [
                CURLOPT_USERPWD => 'user:password',
                CURLOPT_HTTPAUTH => CURLAUTH_ANY,
            ]),
            "$scheme: redirects are not followed" => fn () => run("$base/redirect/2"),
            "$scheme: redirects are followed" => fn () => lines("$base/redirect/3", [CURLOPT_FOLLOWLOCATION => true])['call'],
            "$scheme: a redirect of a call that resumes" => fn () => array_intersect_key(
                run("$base/redirect/1", [CURLOPT_FOLLOWLOCATION => true, CURLOPT_RESUME_FROM => 1]), // the length has the connection's number
                ['result' => 0, 'errno' => 0],
            ),
            "$scheme: a redirect below a path as it is" => fn () => run("$base/../redirect/1", [CURLOPT_FOLLOWLOCATION => true, CURLOPT_PATH_AS_IS => true]),
            "$scheme: fields without value" => fn () => run("$base/headers", [CURLOPT_HTTPHEADER => ['X-One;', 'X-Two;  ', 'X-Three;more', 'X-Four:']]),
            "$scheme: a Host field without value" => fn () => run("$base/headers", [CURLOPT_HTTPHEADER => ['Host;']]),
            "$scheme: too many redirects" => fn () => run("$base/redirect/5", [CURLOPT_FOLLOWLOCATION => true, CURLOPT_MAXREDIRS => 2]),
            "$scheme: a post is redirected" => fn () => run("$base/redirect/0", [CURLOPT_FOLLOWLOCATION => true, CURLOPT_POSTFIELDS => 'a']),
            "$scheme: a post stays one" => fn () => run("$base/redirect/0", [
                CURLOPT_FOLLOWLOCATION => true,
                CURLOPT_POSTFIELDS => 'a',
                CURLOPT_POSTREDIR => 7,
            ]),
            "$scheme: redirect with referer" => fn () => run("$base/redirect/0", [
                CURLOPT_FOLLOWLOCATION => true,
                CURLOPT_AUTOREFERER => true,
            ]),
            "$scheme: after a redirect the handle is as before" => function () use ($base) {
                $curl = handle("$base/redirect/0", [CURLOPT_FOLLOWLOCATION => true, CURLOPT_POSTFIELDS => 'body']);
                curl_exec($curl);
                curl_setopt($curl, CURLOPT_URL, "$base/headers");
                return seen($curl, curl_exec($curl));
            },
            "$scheme: cookies" => function () use ($base) {
                $curl = handle("$base/cookies", [CURLOPT_COOKIEFILE => '']);
                curl_exec($curl);
                curl_setopt($curl, CURLOPT_URL, "$base/headers");
                return [seen($curl, curl_exec($curl)), count(curl_getinfo($curl, CURLINFO_COOKIELIST))];
            },
            "$scheme: a handle after another" => function () use ($base) {
                run("$base/headers", [CURLOPT_POSTFIELDS => 'x', CURLOPT_HTTPHEADER => ['X-Before: 1'], CURLOPT_USERAGENT => 'before',
                    CURLOPT_CUSTOMREQUEST => 'PUT', CURLOPT_COOKIE => 'a=b', CURLOPT_REFERER => 'http://before.test/', CURLOPT_HEADER => true]);
                // It may be the same one for libcurl: nothing of the other is left.
                return run("$base/headers");
            },
            "$scheme: a handle twice" => function () use ($base) {
                $curl = handle("$base/headers", [CURLOPT_POSTFIELDS => 'x']);
                $first = seen($curl, curl_exec($curl));
                curl_setopt($curl, CURLOPT_HTTPGET, true);
                return [$first, seen($curl, curl_exec($curl))];
            },
            "$scheme: reset" => function () use ($base) {
                $curl = handle("$base/headers", [CURLOPT_HTTPHEADER => ['X-A: b'], CURLOPT_HEADER => true]);
                curl_exec($curl);
                $before = curl_getinfo($curl, CURLINFO_EFFECTIVE_URL);
                curl_reset($curl);
                curl_setopt_array($curl, [
                    CURLOPT_URL => "$base/headers",
                    CURLOPT_RETURNTRANSFER => true,
                    CURLOPT_SSL_VERIFYPEER => false,
                    CURLOPT_SSL_VERIFYHOST => 0,
                ]);
                return [$before, seen($curl, curl_exec($curl))];
            },
            "$scheme: copy" => function () use ($base) {
                $curl = handle("$base/headers", [CURLOPT_HTTPHEADER => ['X-A: b']]);
                curl_exec($curl);
                $copy = curl_copy_handle($curl);
                unset($curl);
                return seen($copy, curl_exec($copy));
            },
            "$scheme: URL set after a call" => function () use ($base) {
                $curl = handle("$base/headers");
                curl_exec($curl);
                curl_setopt($curl, CURLOPT_URL, "$base/bytes/1");
                return curl_getinfo($curl, CURLINFO_EFFECTIVE_URL);
            },
            "$scheme: private" => function () use ($base) {
                $curl = handle("$base/headers", [CURLOPT_PRIVATE => 'mine']);
                curl_exec($curl);
                return curl_getinfo($curl, CURLINFO_PRIVATE);
            },
            "$scheme: time limit" => fn () => run("$base/delay/5000", [CURLOPT_TIMEOUT_MS => 300]),
            "$scheme: no listener" => fn () => run("$scheme://127.0.0.1:" . closed_port() . '/'),
            "$scheme: no listener, posted from a stream" => fn () => run("$scheme://127.0.0.1:" . closed_port() . '/', [
                CURLOPT_UPLOAD => true,
                CURLOPT_INFILE => fopen($file, 'r'),
                CURLOPT_INFILESIZE => filesize($file),
            ]),
            "$scheme: reset in the place of an answer" => fn () => run("$base/reset"),
            "$scheme: cut off" => fn () => array_diff_key(run("$base/cut"), ['info' => 0]),
            "$scheme: a field without a colon" => fn () => run("$base/headers", [CURLOPT_HTTPHEADER => ['nonsense']]),
            "$scheme: another Host" => fn () => run("$base/headers", [CURLOPT_HTTPHEADER => ['Host: other.example']]),
            "$scheme: several at once" => fn () => together([
                'one' => handle("$base/headers"),
                'two' => handle("$base/bytes/50000"),
                'three' => handle("$base/redirect/2", [CURLOPT_FOLLOWLOCATION => true]),
                'refused' => handle("$scheme://127.0.0.1:" . closed_port() . '/'),
                'late' => handle("$base/delay/5000", [CURLOPT_TIMEOUT_MS => 300]),
                'posted' => handle("$base/echo", [CURLOPT_POSTFIELDS => 'body']),
            ]),
            "$scheme: options between adding and starting" => function () use ($base) {
                $multi = curl_multi_init();
                $curl = handle("$base/bytes/1");
                curl_multi_add_handle($multi, $curl);
                curl_setopt($curl, CURLOPT_URL, "$base/headers");
                curl_setopt($curl, CURLOPT_HTTPHEADER, ['X-Late: 1']);
                do {
                    curl_multi_exec($multi, $running);
                    curl_multi_select($multi, 0.05);
                } while ($running);
                return seen($curl, curl_multi_getcontent($curl));
            },
            "$scheme: one that is taken out" => function () use ($base) {
                $multi = curl_multi_init();
                $curl = handle("$base/delay/5000");
                curl_multi_add_handle($multi, $curl);
                curl_multi_exec($multi, $running);
                curl_multi_remove_handle($multi, $curl);
                curl_setopt($curl, CURLOPT_URL, "$base/headers");
                return seen($curl, curl_exec($curl));
            },
            "$scheme: pause" => function () use ($base) {
                $multi = curl_multi_init();
                $paused = false;
                $body = '';
                $curl = handle("$base/bytes/100", [
                    CURLOPT_WRITEFUNCTION => function ($curl, string $bytes) use (&$paused, &$body): int {
                        if (!$paused) {
                            $paused = true;
                            return CURL_WRITEFUNC_PAUSE;
                        }
                        $body .= $bytes;
                        return strlen($bytes);
                    },
                ]);
                curl_multi_add_handle($multi, $curl);
                do {
                    curl_multi_exec($multi, $running);
                    if ($paused && $body === '') {
                        curl_pause($curl, CURLPAUSE_CONT);
                    }
                    curl_multi_select($multi, 0.05);
                } while ($running);
                return [$paused, strlen($body)];
            },
        ];
    }
    return $cases + [
        'no such name' => fn () => run('http://no-such-name.invalid/'),
        'empty answer' => fn () => run("$http/empty"),
        'rubbish' => fn () => run("$http/rubbish"),
        'fields as old servers write them' => function () use ($http) {
            $seen = lines("$http/old");
            $names = preg_filter('/^(x-[a-z]+) ?:.*/is', '$1', $seen['lines']);
            return [$seen['call']['result'], $seen['call']['errno'], array_count_values(array_map('strtolower', $names))];
        },
        'a chunk without a size' => fn () => run("$http/bad-chunk")['result'],
        'a certificate that has expired' => fn () => run(faulty('expired')),
        'a certificate of another host' => fn () => run(faulty('other-host')),
        'a certificate that signs itself' => fn () => run(faulty('stranger')),
        'a handshake that stalls' => fn () => run(faulty('stalls'), [CURLOPT_CONNECTTIMEOUT_MS => 300])['errno'],
        'a handshake that is none' => fn () => run(faulty('no-tls')),
        'early refusal' => fn () => run("$http/early", [CURLOPT_POSTFIELDS => str_repeat('x', 100)])['result'],
        'cookies for https only' => function () use ($https) {
            // not `localhost`, which libcurl takes for as good as https
            $base = str_replace('localhost', '127.0.0.2', $https);
            $curl = handle("$base/secure-cookie", [
                CURLOPT_COOKIEFILE => '',
                CURLOPT_SSL_VERIFYPEER => false,
                CURLOPT_SSL_VERIFYHOST => 0,
            ]);
            curl_exec($curl);
            $kept = curl_getinfo($curl, CURLINFO_COOKIELIST);
            sort($kept);
            curl_setopt($curl, CURLOPT_URL, "$base/headers");
            return [$kept, seen($curl, curl_exec($curl))];
        },
        'unknown authority' => fn () => run("$https/headers", [CURLOPT_CAINFO => '/etc/ssl/certs/ca-certificates.crt']),
        'no such file of authorities' => fn () => run("$https/headers", [CURLOPT_CAINFO => '/nonexistent.pem']),
        'not verified' => fn () => run("$https/headers", [
            CURLOPT_CAINFO => '/etc/ssl/certs/ca-certificates.crt',
            CURLOPT_SSL_VERIFYPEER => false,
            CURLOPT_SSL_VERIFYHOST => 0,
        ]),
        'another name in the certificate' => fn () => run(str_replace('localhost', '127.0.0.2', $https) . '/headers')['errno'],
        'HTTP/1.1 only' => fn () => run("$https/headers", [CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1]),
        'a wish to the broker from outside' => fn () => array_filter(
            run("$https/headers", [
                CURLOPT_HTTPHEADER => ['Hearth-Control: token="0", verify=?0', 'hearth-origin: http://127.0.0.3'],
                CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            ])['result']['fields'],
            fn ($field) => !str_starts_with(strtolower($field[0]), 'hearth-')
        ),
        'a line break in a field' => fn () => run("$http/headers", [CURLOPT_HTTPHEADER => ["X-A: b\r\nX-C: d"]]),
        'a wrong pin' => fn () => run("$https/headers", [CURLOPT_PINNEDPUBLICKEY => 'sha256//' . base64_encode(str_repeat('x', 32))]),
        'resolved by the caller' => fn () => run(
            preg_replace('/localhost/', 'other.example', $http) . '/headers',
            [CURLOPT_RESOLVE => ['other.example:' . parse_url($http, PHP_URL_PORT) . ':127.0.0.1']]
        ),
        'from one scheme to the other' => fn () => run("$http/redirect/0", [
            CURLOPT_FOLLOWLOCATION => true,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP,
        ]),
        'protocol not allowed' => fn () => run("$http/headers", [CURLOPT_PROTOCOLS => CURLPROTO_HTTPS]),
        'no URL' => fn () => seen($curl = curl_init(), curl_exec($curl)),
        'not a URL' => fn () => run('http://'),
        'another scheme' => fn () => run('file://' . __FILE__)['errno'],
        'shared cookies' => function () use ($http) {
            $share = curl_share_init();
            curl_share_setopt($share, CURLSHOPT_SHARE, CURL_LOCK_DATA_COOKIE);
            curl_exec(handle("$http/cookies", [CURLOPT_SHARE => $share]));
            return run("$http/headers", [CURLOPT_SHARE => $share]);
        },
    ];
};
