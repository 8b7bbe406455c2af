<?php

/** Symfony's HttpClient beyond single calls, and the bundle's effect on an application. */

declare(strict_types=1);

namespace Hearth\Tests\Symfony;

use Hearth\Egress\Broker;
use Hearth\Symfony\DependencyInjection\HearthExtension;
use Hearth\Symfony\EgressHttpClient;
use Hearth\Symfony\HearthBundle;
use Hearth\Symfony\Quiet;
use Hearth\Symfony\RedirectCookies;
use Hearth\Tests\Servers;
use PHPUnit\Framework\TestCase;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\HttpClient\CurlHttpClient;
use Symfony\Component\HttpClient\Exception\ClientException;
use Symfony\Component\HttpClient\Exception\RedirectionException;
use Symfony\Component\HttpClient\HttpClient;
use Symfony\Component\HttpClient\MockHttpClient;
use Symfony\Component\HttpClient\Response\MockResponse;
use Symfony\Component\HttpClient\Retry\GenericRetryStrategy;
use Symfony\Component\HttpClient\RetryableHttpClient;
use Symfony\Component\HttpClient\ScopingHttpClient;
use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;

final class HttpClientTest extends TestCase
{
    private EgressHttpClient $client;

    protected function setUp(): void
    {
        $this->client = new EgressHttpClient(new CurlHttpClient(), Servers::broker());
        Servers::calls();
    }

    public function testCallsRunSideBySideAndComeAsTheyEnd(): void
    {
        $begin = microtime(true);
        $responses = [];
        foreach ([300, 0, 300, 300] as $delay) {
            $responses[] = $this->client->request('GET', Servers::plain("/delay/{$delay}"), ['user_data' => $delay]);
        }
        $ended = [];
        foreach ($this->client->stream($responses) as $response => $chunk) {
            if ($chunk->isLast()) {
                $ended[] = $response->getInfo('user_data');
            }
        }
        $this->assertSame([0, 300, 300, 300], $ended);
        $this->assertLessThan(1.1, microtime(true) - $begin, 'one after the other');
        $this->assertThrough(4);
    }

    public function testALimitOfConnectionsHoldsNoCallBackOnItsWayToTheBroker(): void
    {
        // Over HTTP/2 one connection carries them all.
        $client = new EgressHttpClient(new CurlHttpClient([], 1), Servers::broker(), ['cafile' => Servers::authority()], [], 1);
        $responses = [];
        for ($i = 0; $i < 12; $i++) {
            $responses[] = $client->request('GET', Servers::secure('/drip'));
        }
        $begun = $most = $ended = 0;
        foreach ($client->stream($responses) as $chunk) {
            $begun += (int) $chunk->isFirst();
            $ended += (int) $chunk->isLast();
            $most = max($most, $begun - $ended);
        }
        $this->assertSame(12, $ended);
        if (Servers::listener() === 'broker') {
            $this->assertSame(12, $most);
            return;
        }
        $this->assertGreaterThan(1, $most);
        foreach (Servers::calls() as $call) {
            $this->assertMatchesRegularExpression('/scope="php-\d+-\d+".*connections=1\b/', $call['control']);
        }
    }

    public function testRequestsAreSentWhileOthersAreMade(): void
    {
        $responses = [];
        for ($i = 0; $i < 9; $i++) {
            $responses[] = $this->client->request('GET', Servers::plain('/headers'));
        }
        if (Servers::listener() === 'stand-in') {
            // No answer was asked for.
            $sent = static fn (): int => substr_count((string) @file_get_contents(Servers::folder() . '/stand-in/calls'), "\n");
            for ($wait = 0; $wait < 2000 && $sent() < 8; $wait++) {
                usleep(10_000);
            }
            $this->assertSame(8, $sent());
        }
        foreach ($responses as $response) {
            $this->assertSame(200, $response->getStatusCode());
        }
    }

    /** CurlHttpClient has no option for it, so its handle is looked for: other versions may keep it elsewhere. */
    public function testTheHandleOfACallIsFound(): void
    {
        $response = (new CurlHttpClient())->request('GET', Servers::plain('/headers'));
        $this->assertTrue(Quiet::make($response));
        $this->assertSame(200, $response->getStatusCode());
        $this->assertFalse(Quiet::make(new MockResponse()));
    }

    public function testTheLimitOfTheClientBeneathIsTheBrokersToKeep(): void
    {
        $client = $this->container('http_client', ['egress' => ['socket' => Servers::socket()]], 3)->get('http_client');
        $this->assertSame(200, $client->request('GET', Servers::plain('/headers'))->getStatusCode());
        if (Servers::listener() === 'stand-in') {
            $this->assertStringContainsString('connections=3', Servers::calls()[0]['control']);
        }
    }

    public function testSilenceIsToldAndTheCallGoesOn(): void
    {
        $response = $this->client->request('GET', Servers::plain('/delay/600'));
        $silent = false;
        $body = '';
        foreach ($this->client->stream($response, 0.2) as $chunk) {
            if ($chunk->isTimeout()) {
                $silent = true;
                $this->assertStringContainsString(Servers::plain('/delay/600'), (string) $chunk->getError());
                break;
            }
        }
        $this->assertTrue($silent);
        $this->assertSame('late', $response->getContent());
    }

    public function testWhatWasFollowedIsTold(): void
    {
        $response = $this->client->request('GET', Servers::plain('/redirect/2'));
        $this->assertSame('/headers', $response->toArray()['target']);
        $this->assertSame([Servers::plain('/headers'), 3, 200], [$response->getInfo('url'), $response->getInfo('redirect_count'), $response->getInfo('http_code')]);
        $this->assertThrough(4);
    }

    /** Symfony 6.4 and later do the same; 5.4 compares only the host. */
    public function testSecretsFollowARedirectOnlyToTheFirstOrigin(): void
    {
        $options = ['headers' => ['Authorization' => 'Bearer secret', 'Cookie' => 'session=secret', 'X-Plain' => 'yes'], 'cafile' => Servers::authority()];
        $secrets = static function (HttpClientInterface $client, string $url) use ($options): array {
            // Over HTTP/2 names are in lower case.
            $fields = array_change_key_case(array_column($client->request('GET', $url, $options)->toArray()['fields'], 1, 0));
            return array_intersect_key($fields, ['authorization' => 1, 'cookie' => 1, 'x-plain' => 1]);
        };
        $to = static fn (string $url): string => "/redirect-to?{$url}";
        $all = ['authorization' => 'Bearer secret', 'cookie' => 'session=secret', 'x-plain' => 'yes'];
        $none = ['x-plain' => 'yes'];
        foreach ([
            [Servers::plain($to('/headers')), $all],
            [Servers::plain($to(Servers::plain('/headers'))), $all],
            [Servers::plain($to(Servers::another($to(Servers::plain('/headers'))))), $all],
            [Servers::plain($to(Servers::another('/headers'))), $none],
            [Servers::plain($to(Servers::another($to('/headers')))), $none],
            [Servers::secure($to(Servers::plain('/headers'))), $none],
            [Servers::plain($to(Servers::secure('/headers'))), $none],
        ] as [$url, $expected]) {
            $seen = $secrets($this->client, $url);
            ksort($seen);
            $this->assertSame($expected, $seen, $url);
            $this->assertSame([], array_diff_key($seen, $secrets(new CurlHttpClient(), $url)), "more than Symfony's own client sends: {$url}");
        }
    }

    public function testTooManyRedirectsAreAnException(): void
    {
        $response = $this->client->request('GET', Servers::plain('/redirect/3'), ['max_redirects' => 2]);
        $stock = (new CurlHttpClient())->request('GET', Servers::plain('/redirect/3'), ['max_redirects' => 2]);
        foreach (['http_code', 'redirect_count', 'url', 'redirect_url'] as $key) {
            $stock->getStatusCode();
            $response->getStatusCode();
            $this->assertSame($stock->getInfo($key), $response->getInfo($key), $key);
        }
        $stock->cancel();
        $this->expectException(RedirectionException::class);
        $response->getContent();
    }

    public function testCookiesOfARedirectFollowItWhereTheyBelong(): void
    {
        $cookies = new RedirectCookies();
        $cookies->receive('https://a.example.test/x/y', ['a=1; Path=/', 'b=2', 'c=3; Domain=example.test; Path=/', 'd=4; Secure; Path=/', 'e=5; Domain=other.test', 'f=6; Path=/; Max-Age=0', 'g', '=h', 'i=7; Domain=test; Path=/']);
        $this->assertSame('a=1; b=2; c=3; d=4', $cookies->for('https://a.example.test/x/z'));
        $this->assertSame('a=1; c=3', $cookies->for('http://a.example.test/'));
        $this->assertSame('c=3', $cookies->for('https://b.example.test/'));
        $this->assertNull($cookies->for('https://aexample.test/'));
        $cookies->receive('https://a.example.test/', ['a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT']);
        $this->assertSame('c=3', $cookies->for('http://a.example.test/'));
    }

    public function testStatusesAreExceptionsAsEver(): void
    {
        $response = $this->client->request('GET', Servers::plain('/status/404'));
        try {
            $response->getContent();
            $this->fail('it was found');
        } catch (ClientException $e) {
            $this->assertSame($response, $e->getResponse());
            $this->assertStringContainsString(Servers::plain('/status/404'), $e->getMessage());
        }
        $this->expectException(ClientException::class);
        $unseen = $this->client->request('GET', Servers::plain('/status/404'));
        unset($unseen);
    }

    public function testABodyIsAPhpStream(): void
    {
        $stream = $this->client->request('GET', Servers::plain('/bytes/100000'))->toStream();
        $this->assertSame(100_000, strlen(stream_get_contents($stream)));
        $this->assertThrough(1);
    }

    public function testProgressIsTheOrigins(): void
    {
        $urls = [];
        $most = 0;
        $this->client->request('GET', Servers::plain('/bytes/200000'), ['on_progress' => static function (int $now, int $size, array $info) use (&$urls, &$most): void {
            $urls[] = $info['url'];
            $most = max($most, $now);
        }])->getContent();
        $this->assertSame([Servers::plain('/bytes/200000')], array_values(array_unique($urls)));
        $this->assertSame(200_000, $most);
    }

    public function testOptionsOfAScopeAndOfTheClientCount(): void
    {
        $scoped = ScopingHttpClient::forBaseUri($this->client, Servers::plain('/'), ['headers' => ['X-Scope' => 'yes'], 'auth_bearer' => 'secret', 'query' => ['a' => 'b']]);
        $seen = $scoped->withOptions(['headers' => ['X-More' => 'too']])->request('POST', 'headers', ['json' => ['c' => 1]])->toArray();
        $fields = array_column($seen['fields'], 1, 0);
        $this->assertSame(['/headers?a=b', '{"c":1}', 'yes', 'Bearer secret', 'application/json'], [$seen['target'], $seen['body'], $fields['X-Scope'], $fields['Authorization'], $fields['Content-Type']]);
        $this->assertThrough(1);
    }

    /** A retrying client does not send a POST again that may have arrived; the original client does
     * the same. */
    public function testAPostThatFailedIsNotRepeatedByRetries(): void
    {
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        foreach (['reset-56.failed.test', 'killed.test'] as $host) {
            $client = new RetryableHttpClient(new EgressHttpClient(new CurlHttpClient(), Servers::standIn()), new GenericRetryStrategy(GenericRetryStrategy::DEFAULT_RETRY_STATUS_CODES, 1), 3);
            try {
                $client->request('POST', "http://{$host}:{$port}/echo", ['body' => 'once', 'resolve' => [$host => '127.0.0.1']])->getContent();
                $this->fail('there was no answer');
            } catch (TransportExceptionInterface) {
                $this->assertCount(1, Servers::calls(), $host);
            }
        }
    }

    public function testRetriesRepeatWhatMayBe(): void
    {
        $client = new RetryableHttpClient($this->client, new GenericRetryStrategy([503], 1), 2);
        $this->assertSame(503, $client->request('GET', Servers::plain('/status/503'))->getStatusCode());
        $this->assertThrough(3);
    }

    public function testAClientThatIsNotCurlsIsLeftAlone(): void
    {
        $client = new EgressHttpClient(new MockHttpClient(new MockResponse('mocked')), Servers::broker());
        $this->assertSame('mocked', $client->request('GET', Servers::plain('/headers'))->getContent());
        $this->assertThrough(0);
    }

    public function testOptionsThatTheBrokerDoesNotKnowMeanDirectly(): void
    {
        foreach ([['bindto' => '127.0.0.1'], ['ciphers' => 'DEFAULT'], ['http_version' => '1.0'], ['headers' => ['Host' => 'another.example']], ['body' => static fn (): string => '']] as $options) {
            $this->assertSame(200, $this->client->request('GET', Servers::plain('/headers'), $options)->getStatusCode());
        }
        $this->assertThrough(0);
    }

    public function testTheBundleDecoratesTheTransport(): void
    {
        foreach (['http_client', 'http_client.transport'] as $transport) {
            $container = $this->container($transport, ['egress' => ['socket' => Servers::socket(), 'direct' => ['direct.example']]]);
            $client = $container->get('http_client');
            $this->assertInstanceOf($transport === 'http_client' ? EgressHttpClient::class : ScopingHttpClient::class, $client);
            $fields = array_column($client->request('GET', Servers::plain('/headers'))->toArray()['fields'], 1, 0);
            $this->assertSame('of the framework', $fields['X-Default']);
            $this->assertThrough(1);
        }
    }

    public function testSwitchedOffItLeavesSymfonyAsItIs(): void
    {
        $this->assertInstanceOf(CurlHttpClient::class, $this->container('http_client', ['egress' => ['enabled' => false]])->get('http_client'));
    }

    /** @param array<string, mixed> $config */
    private function container(string $transport, array $config, int $maxHostConnections = 6): ContainerBuilder
    {
        $container = new ContainerBuilder();
        $container->register($transport, HttpClientInterface::class)
            ->setFactory([HttpClient::class, 'create'])
            ->setArguments([['headers' => ['X-Default' => 'of the framework']], $maxHostConnections])
            ->setPublic(true);
        if ($transport !== 'http_client') {
            $container->register('http_client', ScopingHttpClient::class)->setArguments([new \Symfony\Component\DependencyInjection\Reference($transport), []])->setPublic(true);
        }
        $bundle = new HearthBundle();
        $container->registerExtension(new HearthExtension());
        $container->loadFromExtension('hearth', $config);
        $bundle->build($container);
        $container->compile();
        return $container;
    }

    private function assertThrough(int $calls): void
    {
        if (Servers::listener() === 'stand-in') {
            $this->assertCount($calls, Servers::calls());
        }
    }
}
