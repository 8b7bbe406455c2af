<?php

declare(strict_types=1);

namespace Hearth\Tests\Symfony;

use Hearth\Egress\Broker;
use Hearth\Symfony\EgressHttpClient;
use Hearth\Tests\ContractTestCase;
use Hearth\Tests\Reply;
use Hearth\Tests\Servers;
use Hearth\Tests\Wish;
use Symfony\Component\HttpClient\CurlHttpClient;
use Symfony\Component\HttpClient\Exception\TransportException;
use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;

final class ContractTest extends ContractTestCase
{
    protected function call(string $url, Wish $wish, Broker $broker): Reply
    {
        return $this->ask($url, $wish, new EgressHttpClient(new CurlHttpClient(), $broker));
    }

    protected function stock(string $url, Wish $wish): Reply
    {
        return $this->ask($url, $wish, new CurlHttpClient());
    }

    protected function stream(string $url, Wish $wish, Broker $broker): array
    {
        $client = new EgressHttpClient(new CurlHttpClient(), $broker);
        $response = $client->request($wish->method, $url);
        $pieces = [];
        foreach ($client->stream($response) as $chunk) {
            $pieces[] = $chunk->getContent();
        }
        return [$response->getStatusCode(), $pieces];
    }

    private function ask(string $url, Wish $wish, HttpClientInterface $client): Reply
    {
        $headers = [];
        foreach ($wish->fields as [$name, $value]) {
            $headers[$name][] = $value;
        }
        $options = [
            'headers' => $headers, 'body' => $wish->body, 'max_duration' => $wish->timeout, 'verify_peer' => $wish->verify, 'verify_host' => $wish->verify,
            'cafile' => $wish->ca, 'max_redirects' => $wish->redirects, 'resolve' => $wish->resolve ?? [],
        ];
        if ($wish->body === '') {
            unset($options['body']);
        }
        if ($wish->cert !== null) {
            $options += ['local_cert' => $wish->cert[0], 'local_pk' => $wish->cert[1]];
        }
        try {
            $response = $client->request($wish->method, $url, $options);
            $reply = new Reply($response->getStatusCode(), $response->getHeaders(false), $response->getContent(false));
        } catch (TransportExceptionInterface $e) {
            return new Reply(error: $e::class, message: $e->getMessage());
        }
        $this->assertSame($url, $wish->redirects === 0 ? $response->getInfo('url') : $url);
        $this->assertStringNotContainsString(Servers::token(), print_r($response->getInfo(), true));
        return $reply;
    }

    protected function errorFor(int $errno): string
    {
        return TransportException::class;
    }
}
