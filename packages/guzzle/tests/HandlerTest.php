<?php

/** What Guzzle's options and callbacks do, they do through the broker. */

declare(strict_types=1);

namespace Hearth\Tests\Guzzle;

use GuzzleHttp\Client;
use GuzzleHttp\ClientInterface;
use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\Exception\RequestException;
use GuzzleHttp\Exception\TransferException;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Pool;
use GuzzleHttp\Promise\Utils as Promises;
use GuzzleHttp\Psr7\NoSeekStream;
use GuzzleHttp\Psr7\Request;
use GuzzleHttp\Psr7\Response;
use GuzzleHttp\Psr7\Utils as Psr7;
use GuzzleHttp\TransferStats;
use GuzzleHttp\Utils;
use Hearth\Egress\Broker;
use Hearth\Guzzle\Handler;
use Hearth\Tests\Servers;
use PHPUnit\Framework\TestCase;

final class HandlerTest extends TestCase
{
    private Client $client;

    protected function setUp(): void
    {
        $this->client = new Client(['handler' => Handler::stack(new Handler(Servers::broker())), 'timeout' => 20]);
        Servers::calls();
    }

    public function testStatisticsAreTheOrigins(): void
    {
        $stats = [];
        $this->client->get(Servers::plain('/headers'), ['on_stats' => static function (TransferStats $told) use (&$stats): void {
            $stats[] = $told;
        }]);
        $this->assertCount(1, $stats);
        $this->assertSame(Servers::plain('/headers'), $stats[0]->getHandlerStat('url'));
        $this->assertSame('127.0.0.1', $stats[0]->getHandlerStat('primary_ip'));
        $this->assertSame([], preg_grep('/^hearth-/i', array_keys($stats[0]->getResponse()->getHeaders())));
        $this->assertSame([], preg_grep('/^hearth-/i', array_keys($stats[0]->getRequest()->getHeaders())));
        $this->assertThrough(1);
    }

    /** For a declined call only the second attempt is reported; for a failed one the failure. */
    public function testCallbacksHearOfEachCallOnce(): void
    {
        $client = new Client(['handler' => Handler::stack(new Handler(Servers::standIn()))]);
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        $told = [];
        $options = static function (string $host) use ($port, &$told): array {
            return [
            'on_headers' => static function ($response) use (&$told): void {
                $told[] = $response->getStatusCode();
            },
            'on_stats' => static function (TransferStats $stats) use (&$told): void {
                $told[] = $stats->hasResponse() ? 'stats' : 'failed ' . $stats->getHandlerErrorData();
            },
            'curl' => [CURLOPT_RESOLVE => ["{$host}:{$port}:127.0.0.1"]],
        ];
        };
        $client->get("http://connect-7.declined.test:{$port}/echo", $options('connect-7.declined.test'));
        $this->assertSame([200, 'stats'], $told);
        $told = [];
        try {
            $client->get("http://empty-52.failed.test:{$port}/echo", $options('empty-52.failed.test'));
            $this->fail('there was no answer');
        } catch (TransferException) {
            $this->assertSame(['failed 52'], $told);
        }
    }

    public function testAnExceptionOfOnHeadersEndsTheCall(): void
    {
        $this->expectException(RequestException::class);
        $this->expectExceptionMessage('on_headers');
        $this->client->get(Servers::plain('/bytes/100000'), ['on_headers' => static fn () => throw new \RuntimeException('too much')]);
    }

    public function testASinkHasTheBodyAndNothingOfTheBrokers(): void
    {
        $client = new Client(['handler' => Handler::stack(new Handler(Servers::standIn()))]);
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        $file = Servers::folder() . '/guzzle-sink';
        $host = 'connect-7.declined.test';
        $client->post("http://{$host}:{$port}/echo", ['sink' => $file, 'body' => 'only this', 'curl' => [CURLOPT_RESOLVE => ["{$host}:{$port}:127.0.0.1"]]]);
        $this->assertSame('only this', file_get_contents($file));
        $response = $this->client->get(Servers::plain('/bytes/5'), ['sink' => $memory = fopen('php://memory', 'w+')]);
        $this->assertSame([5, 5], [fstat($memory)['size'], $response->getBody()->getSize()]);
    }

    public function testProgressIsToldAndMayGoOn(): void
    {
        $most = 0;
        $this->client->get(Servers::plain('/bytes/300000'), ['progress' => static function (int $total, int $now) use (&$most): void {
            $most = max($most, $now);
        }]);
        $this->assertSame(300_000, $most);
        $this->assertThrough(1);
    }

    public function testWhatIsCompressedIsLeftAloneOnDemand(): void
    {
        $response = $this->client->get(Servers::plain('/gzip'), ['decode_content' => false]);
        $this->assertSame('compressed by gzip', gzdecode((string) $response->getBody()));
        $this->assertSame('gzip', $response->getHeaderLine('Content-Encoding'));
    }

    public function testDebugShowsAConnectionToTheOriginAndNoToken(): void
    {
        $log = fopen('php://memory', 'w+');
        $this->client->get(Servers::plain('/headers'), ['debug' => $log]);
        rewind($log);
        $text = stream_get_contents($log);
        $this->assertStringContainsString('GET /headers HTTP/1.1', $text);
        $this->assertStringNotContainsString('token=', $text);
        $this->assertThrough(0);
    }

    public function testTheConnectTimeoutIsTheBrokersAndTheTimeoutIsCurls(): void
    {
        if (Servers::listener() === 'stand-in') {
            $this->client->get(Servers::plain('/headers'), ['connect_timeout' => 1.5]);
            $this->assertStringContainsString('connect-timeout=1500', Servers::calls()[0]['control']);
        }
        try {
            $this->client->get(Servers::plain('/never'), ['timeout' => 0.3]);
            $this->fail('it answered');
        } catch (TransferException $e) {
            $this->assertStringContainsString('cURL error 28', $e->getMessage());
        }
    }

    /** The broker has waited as long as the caller would. */
    public function testAConnectionThatTakesTooLongIsNotTriedTwice(): void
    {
        $client = new Client(['handler' => Handler::stack(new Handler(Servers::standIn()))]);
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        $host = 'connect-28.declined.test';
        try {
            $client->get("http://{$host}:{$port}/echo", ['curl' => [CURLOPT_RESOLVE => ["{$host}:{$port}:127.0.0.1"]]]);
            $this->fail('it was tried');
        } catch (ConnectException $e) {
            $this->assertStringContainsString('cURL error 28', $e->getMessage());
        }
    }

    public function testOptionsThatTheBrokerDoesNotKnowMeanDirectly(): void
    {
        foreach ([
            ['curl' => [CURLOPT_SSL_CIPHER_LIST => 'DEFAULT']],
            ['version' => '1.0'],
            ['headers' => ['Host' => 'another.example']],
            ['hearth' => false],
        ] as $options) {
            $this->assertSame(200, $this->client->get(Servers::plain('/headers?directly'), $options)->getStatusCode());
        }
        // A call that an earlier test gave up may come only now.
        $ours = array_filter(Servers::calls(), static fn (array $call): bool => str_contains($call['target'], 'directly'));
        $this->assertSame([], array_values($ours));
    }

    public function testClientCertificatesProxiesAndAddressesAreTheBrokersMatter(): void
    {
        if (Servers::listener() !== 'stand-in') {
            [$certificate, $key] = Servers::client();
            $options = ['verify' => Servers::authority(), 'cert' => $certificate, 'ssl_key' => $key, 'force_ip_resolve' => 'v4'];
            $this->assertSame(200, $this->client->get(Servers::secure('/headers'), $options)->getStatusCode());
            return;
        }
        [$certificate, $key] = Servers::client();
        $this->client->get(Servers::secure('/headers'), ['verify' => Servers::authority(), 'cert' => $certificate, 'ssl_key' => $key, 'force_ip_resolve' => 'v4']);
        $control = Servers::calls()[0]['control'];
        foreach (['ca=' => Servers::authority(), 'cert=' => $certificate, 'key=' => $key] as $name => $file) {
            $this->assertStringContainsString($name . '"' . realpath($file) . '"', $control);
        }
        $this->assertStringContainsString('ip=4', $control);
        $this->client->get(Servers::plain('/headers'), ['proxy' => 'http://user:secret@127.0.0.1:3128']);
        $this->assertStringContainsString('proxy="http://user:secret@127.0.0.1:3128"', Servers::calls()[0]['control']);
        $this->client->get(Servers::plain('/headers'), ['proxy' => ['http' => 'http://127.0.0.1:3128', 'no' => ['127.0.0.1']]]);
        $this->assertStringNotContainsString('proxy=', Servers::calls()[0]['control']);
    }

    /** Whatever an exception is shown to. */
    public function testNoExceptionHoldsTheToken(): void
    {
        foreach ([Servers::plain('/empty') => [], Servers::plain('/never') => ['timeout' => 0.2], Servers::plain('/cut') => []] as $url => $options) {
            try {
                $this->client->post($url, $options);
                $this->fail('there was an answer');
            } catch (TransferException $e) {
                $this->assertSame([], preg_grep('/^hearth-/i', array_keys($e->getRequest()->getHeaders())));
                $this->assertStringNotContainsString(Servers::token(), print_r(method_exists($e, 'getHandlerContext') ? $e->getHandlerContext() : [], true));
            }
        }
    }

    public function testMissingFilesAreGuzzlesErrors(): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->client->get(Servers::secure('/headers'), ['verify' => '/nowhere/ca.pem']);
    }

    public function testUserInformationOfTheUrlBecomesAuthorization(): void
    {
        foreach ([false, true] as $stream) {
            $url = str_replace('http://', 'http://user:password@', Servers::plain('/basic-auth'));
            $this->assertSame(200, $this->client->get($url, ['stream' => $stream])->getStatusCode());
        }
        $this->assertThrough(2);
    }

    public function testABodyThatIsReadOnceGoesDirectly(): void
    {
        $body = static fn (): NoSeekStream => new NoSeekStream(Psr7::streamFor(str_repeat('x', 2_000_000)));
        $this->assertSame(2_000_000, $this->client->post(Servers::plain('/echo'), ['body' => $body(), 'expect' => true])->getBody()->getSize());
        $this->assertSame(2_000_000, $this->client->post(Servers::plain('/echo'), ['body' => $body(), 'expect' => false])->getBody()->getSize());
        $this->assertThrough(0);
    }

    public function testAPoolOfGuzzlesCallsSideBySide(): void
    {
        $begin = microtime(true);
        $sizes = [];
        $requests = static function (): \Generator {
            for ($i = 0; $i < 10; $i++) {
                yield new Request('GET', Servers::plain('/delay/300'));
            }
        };
        (new Pool($this->client, $requests(), ['concurrency' => 10, 'fulfilled' => static function (Response $response) use (&$sizes): void {
            $sizes[] = $response->getBody()->getSize();
        }]))->promise()->wait();
        $this->assertSame(array_fill(0, 10, 4), $sizes);
        $this->assertLessThan(2.5, microtime(true) - $begin, 'one after the other');
        $this->assertThrough(10);
    }

    public function testDeclinedCallsOfManyAreMadeDirectlyInTheSameTurn(): void
    {
        $client = new Client(['handler' => Handler::stack(new Handler(Servers::standIn()))]);
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        $host = 'connect-7.declined.test';
        $promises = [];
        for ($i = 0; $i < 5; $i++) {
            $promises[] = $client->postAsync("http://{$host}:{$port}/echo", ['body' => "call {$i}", 'curl' => [CURLOPT_RESOLVE => ["{$host}:{$port}:127.0.0.1"]]]);
        }
        $bodies = array_map(static fn (Response $response): string => (string) $response->getBody(), Promises::unwrap($promises));
        $this->assertSame(['call 0', 'call 1', 'call 2', 'call 3', 'call 4'], $bodies);
    }

    public function testAPromiseCanBeCancelled(): void
    {
        $promise = $this->client->getAsync(Servers::plain('/never'));
        $other = $this->client->getAsync(Servers::plain('/headers'));
        $promise->cancel();
        $this->assertSame(200, $other->wait()->getStatusCode());
        $this->assertSame('rejected', $promise->getState());
    }

    public function testAStreamedAnswerIsDecodedAndWatched(): void
    {
        $read = 0;
        $response = $this->client->get(Servers::plain('/gzip'), ['stream' => true, 'decode_content' => true]);
        $this->assertSame('compressed by gzip', (string) $response->getBody());
        $response = $this->client->post(Servers::plain('/echo'), ['stream' => true, 'body' => str_repeat('y', 500_000), 'progress' => static function (int $total, int $now) use (&$read): void {
            $read = $now;
        }]);
        $this->assertSame(str_repeat('y', 500_000), $response->getBody()->getContents());
        $this->assertSame(500_000, $read);
        $this->assertSame('', (string) $this->client->head(Servers::plain('/bytes/5'), ['stream' => true])->getBody());
        $this->assertThrough(3);
    }

    public function testStreamedCallsThatAreDeclinedOrFailBehaveAsGuzzles(): void
    {
        $client = new Client(['handler' => Handler::stack(new Handler(Servers::standIn()))]);
        $stock = new Client(['handler' => HandlerStack::create(Utils::chooseHandler())]);
        $closed = Servers::closedPort();
        foreach ([$closed, Servers::plain('/empty'), Servers::plain('/reset')] as $url) {
            $thrown = [];
            foreach ([$stock, $client] as $one) {
                try {
                    $one->get($url, ['stream' => true]);
                    $thrown[] = 'none';
                } catch (\GuzzleHttp\Exception\GuzzleException $e) {
                    $thrown[] = $e::class;
                }
            }
            $this->assertSame($thrown[0], $thrown[1], $url);
            $this->assertNotSame('none', $thrown[0]);
        }
    }

    public function testWithoutABrokerAProcessKeepsConnectionsButNoCookiesAndAChildHasItsOwn(): void
    {
        $handler = new Handler(new Broker(null));
        $connection = static function (array $options = []) use ($handler): array {
            // A new client each time, as in frameworks.
            return json_decode((string) (new Client(['handler' => Handler::stack($handler)]))->get(Servers::plain('/headers'), $options)->getBody(), true);
        };
        (new Client(['handler' => Handler::stack($handler)]))->get(Servers::plain('/cookies'), ClientInterface::MAJOR_VERSION >= 8 ? [] : ['curl' => [CURLOPT_COOKIEFILE => '']]);
        $first = $connection();
        $again = $connection(ClientInterface::MAJOR_VERSION >= 8 ? [] : ['curl' => [CURLOPT_COOKIEFILE => '']]);
        $this->assertSame($first['connection'], $again['connection']);
        $this->assertNotContains('cookie', array_map('strtolower', array_column($again['fields'], 0)));

        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $child = pcntl_fork();
        if ($child === 0) {
            fwrite($theirs, (string) $connection()['connection']);
            // Without PHPUnit's own end.
            posix_kill(getmypid(), SIGKILL);
        }
        fclose($theirs);
        pcntl_waitpid($child, $status);
        $this->assertNotSame($first['connection'], (int) fgets($ours));
        $this->assertSame($first['connection'], $connection()['connection']);
    }

    private function assertThrough(int $calls): void
    {
        if (Servers::listener() === 'stand-in') {
            $this->assertCount($calls, Servers::calls());
        }
    }
}
