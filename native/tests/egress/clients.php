<?php

/**
 * The installed Guzzle and Symfony HttpClient, and requests like those of well-known services' clients. They do not know Hearth.
 */

declare(strict_types=1);

use GuzzleHttp\Client;
use GuzzleHttp\Exception\GuzzleException;
use GuzzleHttp\Handler\CurlMultiHandler;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Pool;
use GuzzleHttp\Psr7\Request;
use GuzzleHttp\Psr7\Utils;
use Symfony\Component\HttpClient\CurlHttpClient;
use Symfony\Contracts\HttpClient\Exception\ExceptionInterface;

/** Class, code and text of a client's exception, without numbers that differ between runs. */
function thrown(Throwable $error): array
{
    return [get_class($error), $error->getCode(), preg_replace('/\d+ m(s|illiseconds)|:\d{4,5}|stream \d+/', 'N', $error->getMessage())];
}

function guzzle_cases(string $base): array
{
    $client = fn (array $options = []) => new Client($options + ['base_uri' => $base, 'verify' => getenv('EGRESS_FOLDER') . '/authority.pem']);
    $answer = fn ($response) => [
        $response->getStatusCode(),
        $response->getProtocolVersion(),
        $response->getHeaders() === [] ? [] : array_diff_key($response->getHeaders(), ['Content-Length' => 0, 'content-length' => 0]),
        facts((string) $response->getBody()),
    ];
    $try = function (callable $call) use ($answer) {
        try {
            return $answer($call());
        } catch (GuzzleException $error) {
            return thrown($error);
        }
    };
    return [
        'get' => fn () => $try(fn () => $client()->get('/headers')),
        'json' => fn () => $try(fn () => $client()->post('/headers', ['json' => ['a' => 1]])),
        'HTTP/2' => fn () => $try(fn () => $client()->get('/headers', ['version' => 2.0])),
        'multipart' => fn () => $client()->post('/echo', ['multipart' => [['name' => 'f', 'contents' => fopen(__FILE__, 'r'), 'filename' => 'x']]])
            ->getStatusCode(),
        'a stream' => fn () => $try(fn () => $client()->put('/headers', ['body' => Utils::streamFor(fopen(__FILE__, 'r'))])),
        'redirects' => fn () => $try(fn () => $client()->get('/redirect/2')),
        'too many redirects' => fn () => $try(fn () => $client()->get('/redirect/9', ['allow_redirects' => ['max' => 2]])),
        'cookies' => function () use ($client, $try) {
            $keeps = $client(['cookies' => true]);
            $keeps->get('/cookies');
            return $try(fn () => $keeps->get('/headers'));
        },
        'sink' => function () use ($client) {
            $file = tempnam(sys_get_temp_dir(), 'sink');
            $client()->get('/bytes/70000', ['sink' => $file]);
            return [md5_file($file), unlink($file)];
        },
        '404' => fn () => $try(fn () => $client()->get('/status/404')),
        'compressed' => fn () => $try(fn () => $client()->get('/gzip')),
        'time limit' => fn () => $try(fn () => $client()->get('/delay/5000', ['timeout' => 0.3])),
        'reset' => fn () => $try(fn () => $client()->get('/reset')),
        'refused' => fn () => $try(fn () => $client()->get('http://127.0.0.1:' . closed_port())),
        'refused while it streams' => fn () => $try(fn () => $client()->post('http://127.0.0.1:' . closed_port(), [
            'body' => Utils::streamFor(fopen(__FILE__, 'r')),
        ])),
        'statistics' => function () use ($client) {
            $seen = null;
            $client()->get('/headers', ['on_stats' => function ($stats) use (&$seen) {
                $seen = [(string) $stats->getEffectiveUri(), $stats->getHandlerStat('http_code'), $stats->getHandlerErrorData()];
            }]);
            return $seen;
        },
        'pool' => function () use ($client, $answer) {
            $seen = [];
            $requests = fn () => yield from array_map(fn ($n) => new Request('GET', "/bytes/$n"), range(1, 20));
            (new Pool($client(), $requests(), [
                'concurrency' => 7,
                'fulfilled' => function ($response, $index) use (&$seen) {
                    $seen[$index] = strlen((string) $response->getBody());
                },
            ]))->promise()->wait();
            ksort($seen);
            return $seen;
        },
        'pool with a limit of connections' => function () use ($client) {
            $limited = $client(['handler' => HandlerStack::create(new CurlMultiHandler(['options' => [CURLMOPT_MAX_HOST_CONNECTIONS => 2]]))]);
            $seen = [];
            (new Pool($limited, array_map(fn () => new Request('GET', '/headers'), range(1, 20)), [
                'concurrency' => 20,
                'fulfilled' => function ($response) use (&$seen) {
                    $seen[] = json_decode((string) $response->getBody(), true)['connection'];
                },
            ]))->promise()->wait();
            return [count($seen), count(array_unique($seen)) <= 2];
        },
    ];
}

function symfony_cases(string $base): array
{
    $client = fn (array $options = []) => new CurlHttpClient($options + ['cafile' => getenv('EGRESS_FOLDER') . '/authority.pem', 'timeout' => 10]);
    $try = function (callable $call) {
        try {
            $response = $call();
            return [
                $response->getStatusCode(),
                array_diff_key($response->getHeaders(false), ['content-length' => 0]),
                facts($response->getContent(false)),
                $response->getInfo('redirect_count'),
                $response->getInfo('url'),
            ];
        } catch (ExceptionInterface $error) {
            return thrown($error);
        }
    };
    return [
        'get' => fn () => $try(fn () => $client()->request('GET', "$base/headers")),
        'post' => fn () => $try(fn () => $client()->request('POST', "$base/headers", ['body' => ['a' => 'b']])),
        'json' => fn () => $try(fn () => $client()->request('PUT', "$base/headers", ['json' => ['a' => 'b']])),
        'a stream' => fn () => $try(fn () => $client()->request('POST', "$base/headers", ['body' => fopen(__FILE__, 'r')])),
        'redirects' => fn () => $try(fn () => $client()->request('GET', "$base/redirect/2")),
        'post redirected' => fn () => $try(fn () => $client()->request('POST', "$base/redirect/1", ['body' => 'x'])),
        'too many redirects' => fn () => $try(fn () => $client()->request('GET', "$base/redirect/9", ['max_redirects' => 2])),
        '404' => fn () => $try(fn () => $client()->request('GET', "$base/status/404")),
        'cookies on the way' => fn () => $try(fn () => $client()->request('GET', "$base/cookies")),
        'refused' => fn () => $try(fn () => $client()->request('GET', 'http://127.0.0.1:' . closed_port())),
        'time limit' => fn () => $try(fn () => $client()->request('GET', "$base/delay/5000", ['max_duration' => 0.3])),
        'side by side' => function () use ($client, $base) {
            $one = $client();
            $responses = array_map(fn ($n) => $one->request('GET', "$base/bytes/$n"), range(1, 20));
            return array_map(fn ($response) => strlen($response->getContent()), $responses);
        },
        'stream' => function () use ($client, $base) {
            $one = $client();
            $got = '';
            foreach ($one->stream($one->request('GET', "$base/drip")) as $chunk) {
                $got .= $chunk->getContent();
            }
            return $got;
        },
        'no token in the debug text' => function () use ($client, $base) {
            $response = $client()->request('GET', "$base/headers");
            $response->getContent();
            return preg_match('/hearth-(control|origin)|[0-9a-f]{64}/i', $response->getInfo('debug'));
        },
    ];
}

/** Sets options like the clients of Stripe, AWS and WordPress. */
function service_cases(string $base): array
{
    $ca = getenv('EGRESS_FOLDER') . '/authority.pem';
    return [
        'Stripe' => function () use ($base, $ca) {
            $curl = curl_init();
            $lines = [];
            curl_setopt_array($curl, [
                CURLOPT_POST => 1,
                CURLOPT_POSTFIELDS => 'amount=100&currency=eur',
                CURLOPT_HEADERFUNCTION => function ($curl, $line) use (&$lines) {
                    if (str_contains($line, ':')) {
                        [$name, $value] = explode(':', trim($line), 2);
                        $lines[strtolower($name)] = trim($value);
                    }
                    return strlen($line);
                },
                CURLOPT_URL => "$base/headers",
                CURLOPT_RETURNTRANSFER => true,
                CURLOPT_CONNECTTIMEOUT => 30,
                CURLOPT_TIMEOUT => 80,
                CURLOPT_HTTPHEADER => ['Authorization: Bearer sk_test', 'Idempotency-Key: 1', 'Expect:'],
                CURLOPT_SSLVERSION => CURL_SSLVERSION_TLSv1_2,
                CURLOPT_CAINFO => $ca,
                CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_2TLS,
            ]);
            $seen = [];
            for ($i = 0; $i < 3; $i++) {
                $seen[] = [facts(curl_exec($curl)), curl_errno($curl), curl_getinfo($curl, CURLINFO_HTTP_CODE)];
            }
            return $seen + ['type' => $lines['content-type'] ?? null];
        },
        'AWS' => function () use ($base, $ca) { // through Guzzle, which asks for HTTP/1.1
            $body = fopen('php://temp', 'r+');
            fwrite($body, 'an object');
            rewind($body);
            $curl = curl_init("$base/headers?list-type=2");
            curl_setopt_array($curl, [
                CURLOPT_CUSTOMREQUEST => 'PUT',
                CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
                CURLOPT_RETURNTRANSFER => true,
                CURLOPT_HTTPHEADER => [
                    'Host: ' . preg_replace('#https?://#', '', $base),
                    'X-Amz-Content-Sha256: e3b0',
                    'Authorization: AWS4-HMAC-SHA256 Credential=x',
                ],
                CURLOPT_CAINFO => $ca,
                CURLOPT_UPLOAD => true,
                CURLOPT_INFILE => $body,
                CURLOPT_INFILESIZE => 9,
            ]);
            return facts(curl_exec($curl));
        },
        'WordPress' => function () use ($base, $ca) {
            $curl = curl_init();
            $body = '';
            $head = '';
            curl_setopt($curl, CURLOPT_HEADER, false);
            curl_setopt($curl, CURLOPT_RETURNTRANSFER, 1);
            curl_setopt($curl, CURLOPT_ENCODING, '');
            curl_setopt($curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
            curl_setopt($curl, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
            curl_setopt($curl, CURLOPT_HTTPHEADER, ['Accept: */*', 'Connection: close']);
            curl_setopt($curl, CURLOPT_TIMEOUT_MS, 10000);
            curl_setopt($curl, CURLOPT_CONNECTTIMEOUT_MS, 10000);
            curl_setopt($curl, CURLOPT_URL, "$base/gzip");
            curl_setopt($curl, CURLOPT_REFERER, "$base/");
            curl_setopt($curl, CURLOPT_USERAGENT, 'WordPress/6.5; tests');
            curl_setopt($curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
            curl_setopt($curl, CURLOPT_CAINFO, $ca);
            curl_setopt($curl, CURLOPT_HEADERFUNCTION, function ($curl, $line) use (&$head) {
                $head .= $line;
                return strlen($line);
            });
            curl_setopt($curl, CURLOPT_WRITEFUNCTION, function ($curl, $bytes) use (&$body) {
                $body .= $bytes;
                return strlen($bytes);
            });
            return [curl_exec($curl), str_replace("Connection: close\r\n", '', $head), $body, curl_errno($curl)];
        },
    ];
}

return function (string $http, string $https): array {
    $cases = [];
    foreach (['http' => $http, 'https' => $https] as $scheme => $base) {
        $sets = ['service' => service_cases($base)];
        if (class_exists(Client::class)) {
            $sets['guzzle'] = guzzle_cases($base);
        }
        if (class_exists(CurlHttpClient::class)) {
            $sets['symfony'] = symfony_cases($base);
        }
        foreach ($sets as $set => $inside) {
            foreach ($inside as $name => $case) {
                $cases["$set, $scheme: $name"] = $case;
            }
        }
    }
    return $cases;
};
