<?php

/** What Laravel's own Http client can do, it can do with ours beneath. */

declare(strict_types=1);

namespace Hearth\Tests\Laravel;

use GuzzleHttp\Client;
use GuzzleHttp\Handler\MockHandler;
use GuzzleHttp\Psr7\Response as PsrResponse;
use Hearth\Guzzle\Handler;
use Hearth\Laravel\HttpFactory;
use Hearth\Tests\Servers;
use Illuminate\Http\Client\Events\RequestSending;
use Illuminate\Http\Client\Events\ResponseReceived;
use Illuminate\Http\Client\Factory;
use Illuminate\Http\Client\RequestException;
use Illuminate\Support\Facades\Http;
use PHPUnit\Framework\TestCase;

final class HttpTest extends TestCase
{
    private \Illuminate\Foundation\Application $app;

    protected function setUp(): void
    {
        $this->app = Application::with(['socket' => Servers::socket()]);
        Servers::calls();
    }

    public function testTheFacadeCallsThroughTheBroker(): void
    {
        $this->assertInstanceOf(HttpFactory::class, $this->app->make(Factory::class));
        $this->assertSame('posted', Http::withBody('posted', 'text/plain')->post(Servers::plain('/echo'))->body());
        $this->assertThrough(1);
    }

    public function testOneFactoryServesTheFacadeAndWhoeverIsGivenOne(): void
    {
        Http::fake(['*' => Http::response('faked')]);
        $this->assertSame('faked', $this->app->make(Factory::class)->get(Servers::plain('/headers'))->body());
        $this->assertThrough(0);
    }

    public function testFakesAndRecordedRequestsComeBeforeTheBroker(): void
    {
        Http::fake([Servers::plain('/headers') => Http::sequence()->push('first')->push('second', 201)]);
        $this->assertSame('first', Http::get(Servers::plain('/headers'))->body());
        $this->assertSame(201, Http::get(Servers::plain('/headers'))->status());
        Http::assertSentCount(2);
        $this->assertThrough(0);
    }

    public function testStrayRequestsArePrevented(): void
    {
        if (!method_exists(Factory::class, 'preventStrayRequests')) {
            $this->assertFalse(method_exists($this->app->make(Factory::class), 'preventStrayRequests'), 'Laravel 8 has none');
            return;
        }
        Http::preventStrayRequests();
        try {
            Http::get(Servers::plain('/headers'));
            $this->fail('it was sent');
        } catch (\RuntimeException $e) {
            $this->assertStringContainsString('without a matching fake', $e->getMessage());
        }
        $this->assertThrough(0);
    }

    public function testAPoolCallsSideBySideThroughTheBroker(): void
    {
        $begin = microtime(true);
        $answers = Http::pool(static fn ($pool) => array_map(static fn (int $i) => $pool->as("call {$i}")->get(Servers::plain('/delay/300')), range(1, 6)));
        $this->assertSame(['late'], array_values(array_unique(array_map(static fn ($answer) => $answer->body(), $answers))));
        $this->assertLessThan(1.8, microtime(true) - $begin, 'one after the other');
        $this->assertThrough(6);
    }

    public function testAPoolHoldsWhatFailed(): void
    {
        $answers = Http::pool(static fn ($pool) => [$pool->as('no')->get(Servers::closedPort()), $pool->as('yes')->get(Servers::plain('/headers'))]);
        $this->assertInstanceOf(\Throwable::class, $answers['no']);
        $this->assertSame(200, $answers['yes']->status());
    }

    public function testRetriesAndThrows(): void
    {
        $this->expectException(RequestException::class);
        try {
            Http::retry(3, 1)->get(Servers::plain('/status/503'));
        } finally {
            $this->assertThrough(3);
        }
    }

    public function testMiddlewareAndEventsSeeEachCall(): void
    {
        $seen = [];
        $this->app['events']->listen(RequestSending::class, static function () use (&$seen): void {
            $seen[] = 'sending';
        });
        $this->app['events']->listen(ResponseReceived::class, static function () use (&$seen): void {
            $seen[] = 'received';
        });
        $response = Http::withMiddleware(static fn (callable $next): callable => static fn ($request, $options) => $next($request->withHeader('X-Middle', 'ware'), $options))
            ->beforeSending(static fn ($request) => $request->toPsrRequest()->withHeader('X-Before', 'yes'))
            ->get(Servers::plain('/headers'));
        $names = array_map('strtolower', array_column($response->json('fields'), 0));
        $this->assertContains('x-middle', $names);
        $this->assertContains('x-before', $names);
        $this->assertSame(['sending', 'received'], $seen);
        $this->assertSame(Servers::plain('/headers'), (string) $response->effectiveUri());
    }

    public function testSinksStatisticsAndCookies(): void
    {
        $file = Servers::folder() . '/sink';
        $response = Http::sink($file)->get(Servers::plain('/bytes/100000'));
        $this->assertSame(100_000, filesize($file));
        $this->assertGreaterThan(0, $response->transferStats->getTransferTime());
        $this->assertSame(Servers::plain('/bytes/100000'), $response->handlerStats()['url']);
        $this->assertSame(['a=b'], array_values(array_column(array_filter(Http::withCookies(['a' => 'b'], '127.0.0.1')->get(Servers::plain('/headers'))->json('fields'), static fn (array $field): bool => strtolower($field[0]) === 'cookie'), 1)));
    }

    public function testAHandlerOfTheApplicationIsLeftAlone(): void
    {
        $response = Http::setHandler(new MockHandler([new PsrResponse(299)]))->get(Servers::plain('/headers'));
        $this->assertSame(299, $response->status());
        $this->assertThrough(0);
    }

    public function testTheContainerHasTheHandlerAndAClientForOthers(): void
    {
        $this->assertSame($this->app->make(Handler::class), $this->app->make('hearth.http.handler'));
        $this->assertInstanceOf(Client::class, $this->app->make('hearth.http.client'));
        $this->assertSame(200, $this->app->make('hearth.http.client')->get(Servers::plain('/headers'))->getStatusCode());
        $this->assertThrough(1);
        $handler = $this->app->make(Handler::class);
        $this->assertSame($handler, Application::with(['socket' => Servers::socket()])->make(Handler::class), 'another application of the same process');
    }

    public function testHostsCanBeLeftOut(): void
    {
        Application::with(['socket' => Servers::socket(), 'direct' => ['127.0.0.1']]);
        $this->assertSame(200, Http::get(Servers::plain('/headers'))->status());
        $this->assertThrough(0);
    }

    public function testTheNumberOfKeptHandlesIsTheConfigurations(): void
    {
        $kept = static function (array $settings): int {
            $curl = (new \ReflectionProperty(Handler::class, 'curl'))->getValue(Application::with($settings)->make(Handler::class));
            return (new \ReflectionProperty($curl, 'maxHandles'))->getValue($curl);
        };
        $this->assertSame([7, 1], [$kept(['max_handles' => 7]), $kept(['max_handles' => 0])]);
    }

    public function testSwitchedOffItLeavesLaravelAsItIs(): void
    {
        $app = Application::with(['enabled' => false, 'socket' => Servers::socket()]);
        $this->assertSame(Factory::class, $app->make(Factory::class)::class);
    }

    public function testWithoutABrokerAProcessKeepsItsConnections(): void
    {
        Application::with(['socket' => 'off']);
        $connections = array_map(static fn (): int => Http::get(Servers::plain('/headers'))->json('connection'), range(1, 3));
        $this->assertCount(1, array_unique($connections));
    }

    private function assertThrough(int $calls): void
    {
        if (Servers::listener() === 'stand-in') {
            $this->assertCount($calls, Servers::calls());
        }
    }
}
