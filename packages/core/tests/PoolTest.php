<?php

declare(strict_types=1);

namespace Hearth\Tests;

use Hearth\Egress\Broker;
use Hearth\Egress\Call;
use Hearth\Egress\InvalidCall;
use Hearth\Egress\Pool;
use Hearth\Egress\TransferFailed;
use PHPUnit\Framework\Attributes\DataProvider;
use PHPUnit\Framework\TestCase;

final class PoolTest extends TestCase
{
    protected function setUp(): void
    {
        Servers::broker();
        Servers::calls();
    }

    public function testResultsComeAsTheyEndAndAllKeepsTheOrder(): void
    {
        $pool = new Pool(Servers::broker());
        $pool->send(Servers::plain('/delay/800'), 'late');
        $pool->send(Servers::plain('/headers'), 'soon');
        $this->assertCount(2, $pool);
        $keys = [];
        foreach ($pool as $key => $answer) {
            $keys[] = $key;
            $this->assertTrue($answer->ok(), (string) $answer->error?->getMessage());
        }
        $this->assertSame(['soon', 'late'], $keys);
        $this->assertCount(0, $pool);

        $pool->send(Servers::plain('/delay/400'));
        $pool->send(Servers::plain('/bytes/3'));
        $this->assertSame(['late', 3], array_map(static fn ($answer) => strlen($answer->body()) === 3 ? 3 : $answer->body(), array_values($pool->all())));
        if (Servers::listener() === 'stand-in') {
            $this->assertCount(4, Servers::calls());
        }
    }

    public function testACallThatFailsStopsNoOther(): void
    {
        $pool = new Pool(Servers::broker());
        $pool->send(Servers::closedPort(), 'refused');
        $pool->send(Servers::plain('/cut'), 'cut');
        $pool->send(new Call(Servers::plain('/echo'), 'POST', ['X-A' => ['1', '2']], 'sent'), 'sent');
        $answers = $pool->all();
        $this->assertSame(['refused', 'cut', 'sent'], array_keys($answers));
        $this->assertSame([7, 18], [$answers['refused']->error->getCode(), $answers['cut']->error->getCode()]);
        $this->assertSame('sent', $answers['sent']->orFail()->body());
        $this->expectException(TransferFailed::class);
        $answers['refused']->orFail();
    }

    public function testNoMoreThanTheConcurrencyAreUnderWay(): void
    {
        $begun = 0;
        $most = 0;
        $pool = new Pool(Servers::broker(), 3);
        $ended = 0;
        $pool->feed((static function () use (&$begun): \Generator {
            for ($i = 0; $i < 10; $i++) {
                $begun++;
                yield Servers::plain('/delay/20');
            }
        })());
        foreach ($pool as $answer) {
            $most = max($most, $begun - $ended);
            $ended++;
        }
        $this->assertSame(10, $ended);
        // One more call was read, and waits.
        $this->assertLessThanOrEqual(4, $most);
    }

    public function testManyAtOnceShareFewConnections(): void
    {
        // The stand-in's backlog is short.
        [$calls, $concurrency] = Servers::listener() === 'broker' ? [500, 200] : [50, 20];
        $pool = new Pool(Servers::broker(), $concurrency);
        for ($i = 0; $i < $calls; $i++) {
            $pool->send(Servers::plain('/headers'));
        }
        $connections = [];
        foreach ($pool as $answer) {
            $connections[] = json_decode($answer->orFail()->body(), true)['connection'];
        }
        $this->assertCount($calls, $connections);
        if (Servers::listener() === 'broker') {
            // egress.connections
            $this->assertLessThanOrEqual(20, count(array_unique($connections)));
        }
    }

    public function testCallsMayBeAddedWhileResultsAreRead(): void
    {
        $pool = new Pool(Servers::broker());
        $pool->send(Servers::plain('/bytes/1'));
        $sizes = [];
        foreach ($pool as $answer) {
            $sizes[] = $size = strlen($answer->body());
            $size < 4 ? $pool->send(Servers::plain('/bytes/' . ($size + 1))) : null;
        }
        $this->assertSame([1, 2, 3, 4], $sizes);
    }

    public function testProgressIsTold(): void
    {
        $last = [];
        $pool = new Pool(Servers::broker(), 10, static function (int $done, int $total, int $bytes) use (&$last): void {
            $last = [$done, $total, $bytes];
        });
        for ($i = 0; $i < 5; $i++) {
            $pool->send(Servers::plain('/bytes/1000'));
        }
        $pool->all();
        $this->assertSame([5, 5, 5000], $last);
    }

    public function testWhoStopsReadingMayReadAgain(): void
    {
        $pool = new Pool(Servers::broker());
        $pool->send(Servers::plain('/headers'));
        $pool->send(Servers::plain('/never'));
        foreach ($pool as $answer) {
            break;
        }
        unset($answer);
        gc_collect_cycles();
        $pool->send(Servers::plain('/bytes/2'), 'after');
        $this->assertSame(['after'], array_keys($pool->all()));
    }

    public function testDeclinedCallsAreMadeDirectlyFailedOnesAreNot(): void
    {
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        $pool = new Pool(Servers::standIn());
        foreach (['connect-7.declined.test', 'reset-56.failed.test'] as $host) {
            $pool->send(new Call("http://{$host}:{$port}/echo", 'POST', [], 'once', [CURLOPT_RESOLVE => ["{$host}:{$port}:127.0.0.1"]]), $host);
        }
        $answers = $pool->all();
        $this->assertSame('once', $answers['connect-7.declined.test']->body());
        $this->assertSame(56, $answers['reset-56.failed.test']->error->getCode());
        $this->assertSame([0, []], [$answers['reset-56.failed.test']->status, $answers['reset-56.failed.test']->fields]);
    }

    public function testWithoutABrokerItIsCurlAlone(): void
    {
        $pool = new Pool(new Broker(null));
        for ($i = 0; $i < 20; $i++) {
            $pool->send(Servers::plain("/bytes/{$i}"));
        }
        $this->assertSame(range(0, 19), array_values(array_map(static fn ($answer): int => strlen($answer->body()), $pool->all())));
    }

    public function testWithoutABrokerCallsShareOneConnectionOfHttp2(): void
    {
        $this->assertSame([100, 1], $this->directly(CURL_HTTP_VERSION_2TLS));
    }

    public function testWithoutABrokerThereAreSixConnectionsOfHttp1OrAsManyAsTheCallerSays(): void
    {
        [$answers, $connections] = $this->directly(CURL_HTTP_VERSION_1_1);
        $this->assertSame(100, $answers);
        $this->assertLessThanOrEqual(6, $connections);
        $this->assertSame([100, 1], $this->directly(CURL_HTTP_VERSION_1_1, 1));
    }

    /** @return array{int, int} answers of a hundred calls, and connections that the origin saw */
    private function directly(int $version, ?int $limit = null): array
    {
        $curl = [CURLOPT_CAINFO => Servers::authority(), CURLOPT_HTTP_VERSION => $version];
        $pool = new Pool(new Broker(null), curl: $curl, connections: $limit);
        for ($i = 0; $i < 100; $i++) {
            $pool->send(Servers::secure('/headers'));
        }
        $seen = array_map(static fn ($answer) => json_decode($answer->orFail()->body(), true)['connection'], $pool->all());
        return [count($seen), count(array_unique($seen))];
    }

    public function testALimitOfConnectionsIsTheBrokersToKeep(): void
    {
        $pool = new Pool(Servers::broker(), 20, connections: 2);
        for ($i = 0; $i < 20; $i++) {
            $pool->send(Servers::plain('/headers'));
        }
        $connections = array_map(static fn ($answer) => json_decode($answer->orFail()->body(), true)['connection'], $pool->all());
        if (Servers::listener() === 'broker') {
            $this->assertLessThanOrEqual(2, count(array_unique($connections)));
            return;
        }
        $scopes = [];
        foreach (Servers::calls() as $call) {
            $this->assertSame(1, preg_match('/scope="(php-\d+-\d+)".*connections=2\b/', $call['control'], $found));
            $scopes[] = $found[1];
        }
        $this->assertSame([20, 1], [count($scopes), count(array_unique($scopes))]);
    }

    public function testTheTimingIsTheOrigins(): void
    {
        $pool = new Pool(Servers::broker());
        $pool->send(Servers::plain('/headers'));
        [$answer] = array_values($pool->all());
        $this->assertNotNull($answer->timing);
        $this->assertSame('127.0.0.1', $answer->info['primary_ip']);
        $this->assertSame(Servers::plain('/headers'), $answer->info['url']);
        $this->assertNull($answer->field('Hearth-Timing'));
    }

    /** @return iterable<string, array{\Closure}> */
    public static function nonsense(): iterable
    {
        yield 'a field of two lines' => [static fn () => new Call('http://a.test/', 'GET', ['X' => "a\r\nY: b"])];
        yield 'a name that is none' => [static fn () => new Call('http://a.test/', 'GET', ['X Y' => 'a'])];
        yield 'a method that is none' => [static fn () => new Call('http://a.test/', "GET / HTTP/1.1\r\n")];
        yield 'no room' => [static fn () => new Pool(null, 0)];
        yield 'no connection' => [static fn () => new Pool(null, connections: 0)];
    }

    /** @dataProvider nonsense */
    #[DataProvider('nonsense')]
    public function testWhatCannotBeIsRefused(\Closure $make): void
    {
        $this->expectException(InvalidCall::class);
        $make();
    }
}
