<?php

declare(strict_types=1);

namespace Hearth\Tests\Guzzle;

use GuzzleHttp\Client;
use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\Exception\RequestException;
use GuzzleHttp\Exception\TransferException;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Utils;
use Hearth\Egress\Broker;
use Hearth\Egress\Verdict;
use Hearth\Guzzle\Handler;
use Hearth\Guzzle\Rejection;
use Hearth\Tests\ContractTestCase;
use Hearth\Tests\Reply;
use Hearth\Tests\Wish;

class ContractTest extends ContractTestCase
{
    protected function call(string $url, Wish $wish, Broker $broker): Reply
    {
        return $this->send($url, $wish, new Client(['handler' => Handler::stack(new Handler($broker))]));
    }

    protected function stock(string $url, Wish $wish): Reply
    {
        return $this->send($url, $wish, new Client(['handler' => HandlerStack::create(Utils::chooseHandler())]));
    }

    protected function stream(string $url, Wish $wish, Broker $broker): array
    {
        $client = new Client(['handler' => Handler::stack(new Handler($broker))]);
        $response = $client->request($wish->method, $url, ['stream' => true, 'timeout' => 20]);
        $pieces = [];
        while (!$response->getBody()->eof()) {
            $pieces[] = $response->getBody()->read(1000);
        }
        return [$response->getStatusCode(), $pieces];
    }

    protected function send(string $url, Wish $wish, Client $client): Reply
    {
        try {
            $response = $client->request($wish->method, $url, self::options($url, $wish));
        } catch (TransferException $e) {
            return new Reply(error: self::describe($e), message: $e->getMessage());
        }
        return new Reply($response->getStatusCode(), $response->getHeaders(), (string) $response->getBody());
    }

    /** @return array<string, mixed> */
    protected static function options(string $url, Wish $wish): array
    {
        $headers = [];
        foreach ($wish->fields as [$name, $value]) {
            $headers[$name][] = $value;
        }
        $options = [
            'headers' => $headers, 'body' => $wish->body === '' ? null : $wish->body, 'timeout' => $wish->timeout, 'http_errors' => false,
            'verify' => $wish->verify ? $wish->ca ?? true : false, 'allow_redirects' => $wish->redirects === 0 ? false : ['max' => $wish->redirects],
        ];
        if ($wish->cert !== null) {
            $options += ['cert' => $wish->cert[0], 'ssl_key' => $wish->cert[1]];
        }
        foreach ($wish->resolve ?? [] as $host => $address) {
            $options['curl'][CURLOPT_RESOLVE][] = $host . ':' . parse_url($url, PHP_URL_PORT) . ':' . $address;
        }
        if ($wish->proxy !== null) {
            $options['proxy'] = $wish->proxy;
        }
        return $options;
    }

    protected static function describe(TransferException $e): string
    {
        $context = method_exists($e, 'getHandlerContext') ? $e->getHandlerContext() : [];
        preg_match('/cURL error ([0-9]+)/', $e->getMessage(), $found);
        return $e::class . ' ' . ($context['errno'] ?? '-') . ' ' . ($found[1] ?? '-') . (method_exists($e, 'getResponse') && $e->getResponse() !== null ? ' with a response' : '');
    }

    /** Guzzle 8 reports whether the time-out came before the connection. Here only the broker knows
     * that, and curl's own time-out is earlier. */
    protected function expected(string $error): string
    {
        return str_replace('ConnectTimeoutException', 'NetworkTimeoutException', $error);
    }

    protected function errorFor(int $errno): string
    {
        $class = $errno === 52 ? ConnectException::class : RequestException::class;
        if (class_exists(\GuzzleHttp\Exception\NetworkException::class)) {
            $class = $errno === 1 ? RequestException::class : \GuzzleHttp\Exception\NetworkException::class;
            return "{$class} - {$errno}";
        }
        return "{$class} {$errno} {$errno}";
    }
}
