<?php

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use GuzzleHttp\ClientInterface;
use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\Exception\RequestException;
use GuzzleHttp\Exception\TransferException;
use Hearth\Egress\Broker;
use Hearth\Guzzle\Handler;
use Hearth\Laravel\HttpFactory;
use Hearth\Tests\Guzzle\ContractTest as GuzzleContract;
use Hearth\Tests\Reply;
use Hearth\Tests\Wish;
use Illuminate\Http\Client\ConnectionException;
use Illuminate\Http\Client\Factory;

final class ContractTest extends GuzzleContract
{
    protected function call(string $url, Wish $wish, Broker $broker): Reply
    {
        return $this->ask($url, $wish, HttpFactory::inPlaceOf(new Factory(), new Handler($broker)));
    }

    protected function stock(string $url, Wish $wish): Reply
    {
        return $this->ask($url, $wish, new Factory());
    }

    protected function stream(string $url, Wish $wish, Broker $broker): array
    {
        $http = HttpFactory::inPlaceOf(new Factory(), new Handler($broker));
        $response = $http->withOptions(['stream' => true])->get($url)->toPsrResponse();
        $pieces = [];
        while (!$response->getBody()->eof()) {
            $pieces[] = $response->getBody()->read(1000);
        }
        return [$response->getStatusCode(), $pieces];
    }

    private function ask(string $url, Wish $wish, Factory $http): Reply
    {
        $options = self::options($url, $wish);
        unset($options['headers'], $options['body']);
        $request = $http->withOptions($options)->withHeaders(array_column($wish->fields, 1, 0));
        if ($wish->body !== '') {
            // Laravel 8 takes strings.
            $request->withBody(is_resource($wish->body) ? stream_get_contents($wish->body) : $wish->body, 'text/plain');
        }
        try {
            $response = $request->send($wish->method, $url);
        } catch (ConnectionException $e) {
            return new Reply(error: self::class($e), message: $e->getMessage());
        } catch (TransferException $e) {
            return new Reply(error: self::describe($e), message: $e->getMessage());
        }
        return new Reply($response->status(), $response->headers(), $response->body());
    }

    private static function class(ConnectionException $e): string
    {
        preg_match('/cURL error ([0-9]+)/', $e->getMessage(), $found);
        return ConnectionException::class . ' ' . ($found[1] ?? '-') . ' ' . ($e->getPrevious() === null ? '-' : $e->getPrevious()::class);
    }

    protected function errorFor(int $errno): string
    {
        $theirs = parent::errorFor($errno);
        [$class] = explode(' ', $theirs);
        // With Guzzle 8 Laravel takes whatever has no response for no connection.
        if ($class === ConnectException::class || ClientInterface::MAJOR_VERSION >= 8) {
            return ConnectionException::class . " {$errno} {$class}";
        }
        return $theirs;
    }
}
