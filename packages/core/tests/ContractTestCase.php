<?php

/**
 * The promises of every client in these packages, with and without the broker. A client's own tests define how it makes a
 * call.
 */

declare(strict_types=1);

namespace Hearth\Tests;

use Hearth\Egress\Broker;
use PHPUnit\Framework\Attributes\DataProvider;
use PHPUnit\Framework\TestCase;

abstract class ContractTestCase extends TestCase
{
    /** Makes one call with the client and this broker. */
    abstract protected function call(string $url, Wish $wish, Broker $broker): Reply;

    /** Makes the same call with the original client. */
    abstract protected function stock(string $url, Wish $wish): Reply;

    /** Status, and the pieces of the body as they came. @return array{int, list<string>} */
    abstract protected function stream(string $url, Wish $wish, Broker $broker): array;

    /** Returns whether the client decodes compressed bodies. */
    protected bool $decodes = true;

    /** Returns whether the client follows redirects. */
    protected bool $follows = true;

    protected function get(string $url, ?Wish $wish = null): Reply
    {
        return $this->call($url, $wish ?? new Wish(), Servers::broker());
    }

    protected function setUp(): void
    {
        Servers::broker();
        Servers::calls();
    }

    /** The broker supports every option that the packages send. */
    protected function tearDown(): void
    {
        $this->assertDoesNotMatchRegularExpression('/"reason":"(control|host|target|unsupported|token|user|request)"/', Servers::log('broker'));
    }

    /** @return iterable<string, array{string}> */
    public static function methods(): iterable
    {
        foreach (['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as $method) {
            yield $method => [$method];
        }
    }

    /** @dataProvider methods */
    #[DataProvider('methods')]
    public function testEachMethodReachesTheOrigin(string $method): void
    {
        $body = in_array($method, ['POST', 'PUT', 'PATCH'], true) ? 'name=value' : '';
        $reply = $this->get(Servers::plain('/headers?a=1&b=%20'), new Wish($method, body: $body));
        $this->assertSame(200, $reply->status, $reply->message);
        $this->assertSame($method, $reply->seen()['method']);
        $this->assertSame('/headers?a=1&b=%20', $reply->seen()['target']);
        $this->assertSame($body, $reply->seen()['body']);
        $this->assertThrough();
    }

    public function testHeadHasNoBody(): void
    {
        $reply = $this->get(Servers::plain('/bytes/100'), new Wish('HEAD'));
        $this->assertSame([200, ''], [$reply->status, $reply->body], $reply->message);
        $this->assertSame(['100'], $reply->field('Content-Length'));
        $this->assertThrough();
    }

    public function testTheOriginSeesTheFieldsOfTheCallAndNoneOfOurs(): void
    {
        $fields = [['X-One', '1'], ['X-Two', 'two words'], ['Cookie', 'a=b; c=d'], ['Accept', 'text/plain']];
        $reply = $this->get(Servers::plain('/headers'), new Wish(fields: $fields));
        $names = array_map('strtolower', array_column($reply->seen()['fields'], 0));
        foreach ($fields as [$name, $value]) {
            $this->assertSame([$value], $reply->sent($name));
        }
        $this->assertSame([], preg_grep('/^hearth-/', $names));
        $this->assertSame([substr(Servers::plain(), 7)], $reply->sent('Host'));
        $this->assertThrough();
    }

    public function testTheBrokerIsToldWhatACallIsPartOf(): void
    {
        $trace = '4bf92f3577b34da6a3ce929d0e0e4736';
        $before = $_SERVER;
        $_SERVER['HTTP_TRACEPARENT'] = "00-{$trace}-00f067aa0ba902b7-01";
        $_SERVER['HTTP_TRACESTATE'] = 'a=1';
        try {
            $reply = $this->call(Servers::plain('/headers'), new Wish(fields: [['hearth-traceparent', 'forged']]), Servers::tracing());
        } finally {
            $_SERVER = $before;
        }
        $this->assertSame(200, $reply->status, $reply->message);
        $sent = $reply->sent('traceparent');
        $this->assertCount(1, $sent);
        $this->assertMatchesRegularExpression("/^00-{$trace}-[0-9a-f]{16}-01$/", $sent[0]);
        $this->assertStringNotContainsString('00f067aa0ba902b7', $sent[0], 'the span of the call is below the one of the request');
        $this->assertSame(['a=1'], $reply->sent('tracestate'));
        $names = array_map('strtolower', array_column($reply->seen()['fields'], 0));
        $this->assertSame([], preg_grep('/^hearth-/', $names));
    }

    public function testAFieldNamedAsOursIsDropped(): void
    {
        $forged = [['Hearth-Control', 'token="x", verify=?0'], ['hearth-origin', 'http://other.test']];
        $reply = $this->get(Servers::plain('/headers'), new Wish(fields: $forged));
        $this->assertSame(200, $reply->status, $reply->message);
        $this->assertSame([], [...$reply->sent('hearth-control'), ...$reply->sent('hearth-origin')]);
        $this->assertThrough();
    }

    public function testFieldsOfTheAnswerKeepTheirNumberAndOrder(): void
    {
        $reply = $this->get(Servers::plain('/cookies'));
        $this->assertSame(['one=1; Path=/', 'two=2; Path=/'], $reply->field('Set-Cookie'));
        $this->assertSame(['cookies'], $reply->field('X-Between'));
        $this->assertSame([], preg_grep('/^hearth-/i', array_map('strval', array_keys($reply->fields))));
        $this->assertThrough();
    }

    public function testStatusesComeAsTheyAre(): void
    {
        foreach ([201, 204, 404, 500, 502, 503] as $status) {
            $this->assertSame($status, $this->get(Servers::plain("/status/{$status}"))->status);
        }
        $this->assertThrough();
    }

    public function testRedirectsAreFollowed(): void
    {
        if (!$this->follows) {
            $this->assertSame(302, $this->get(Servers::plain('/redirect/1'), new Wish(redirects: 5))->status);
            return;
        }
        $reply = $this->get(Servers::plain('/redirect/3'), new Wish('POST', body: 'x=1', redirects: 5));
        $this->assertSame(200, $reply->status, $reply->message);
        $this->assertSame(['GET', '/headers'], [$reply->seen()['method'], $reply->seen()['target']]);
        $this->assertThrough();
    }

    public function testWhatIsCompressedIsDecoded(): void
    {
        $reply = $this->get(Servers::plain('/gzip'));
        $body = $this->decodes ? $reply->body : gzdecode($reply->body);
        $this->assertSame('compressed by gzip', $body);
        $this->assertThrough();
    }

    public function testInterimAnswersAndTrailersDoNoHarm(): void
    {
        $this->assertSame('hinted', $this->get(Servers::plain('/early-hints'))->body);
        $this->assertSame('with trailers', $this->get(Servers::plain('/trailers'))->body);
        $this->assertThrough();
    }

    public function testBigBodiesGoBothWays(): void
    {
        $body = random_bytes(3_000_000);
        $reply = $this->get(Servers::plain('/echo'), new Wish('POST', body: $body));
        $this->assertSame(200, $reply->status, $reply->message);
        $this->assertTrue($body === $reply->body);
        $this->assertSame(5_000_000, strlen($this->get(Servers::plain('/bytes/5000000'))->body));
        $this->assertThrough();
    }

    public function testABodyIsReadFromAStream(): void
    {
        $file = tmpfile();
        fwrite($file, str_repeat('0123456789', 200_000));
        rewind($file);
        $reply = $this->get(Servers::plain('/echo'), new Wish('PUT', body: $file));
        $this->assertSame(2_000_000, strlen($reply->body), $reply->message);
        $this->assertThrough();
    }

    public function testABodyIsReadWhileItComes(): void
    {
        [$status, $pieces] = $this->stream(Servers::plain('/drip'), new Wish(), Servers::broker());
        $this->assertSame([200, 'xxxxxxxxxx'], [$status, implode('', $pieces)]);
        $this->assertGreaterThan(2, count(array_filter($pieces, static fn (string $piece): bool => $piece !== '')));
        $this->assertThrough();
    }

    public function testAnOriginWithTlsIsVerifiedByTheAuthoritiesOfTheCall(): void
    {
        $reply = $this->get(Servers::secure('/headers'), new Wish(ca: Servers::authority()));
        $this->assertSame(200, $reply->status, $reply->message);
        $this->assertThrough();
    }

    public function testVerificationCanBeSwitchedOff(): void
    {
        $reply = $this->get(Servers::secure('/headers'), new Wish(verify: false));
        $this->assertSame(200, $reply->status, $reply->message);
        $this->assertThrough();
    }

    public function testANameCanBeResolvedByTheCall(): void
    {
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        $reply = $this->get("http://some.example:{$port}/headers", new Wish(resolve: ['some.example' => '127.0.0.1']));
        $this->assertSame(200, $reply->status, $reply->message);
        $this->assertSame(["some.example:{$port}"], $reply->sent('Host'));
        $this->assertThrough();
    }

    public function testAnswersThatTheOriginGivesEarlyArrive(): void
    {
        $reply = $this->get(Servers::plain('/early'), new Wish('POST', [['Expect', '100-continue']], str_repeat('x', 2_000_000)));
        $this->assertSame(413, $reply->status, $reply->message);
    }

    /** Two independent clients. */
    public function testTheConnectionOutlivesTheClient(): void
    {
        if (Servers::listener() !== 'broker') {
            $this->assertSame('stand-in', Servers::listener());
            return;
        }
        $connections = [];
        for ($i = 0; $i < 3; $i++) {
            $connections[] = $this->get(Servers::secure('/headers'), new Wish(ca: Servers::authority()))->seen()['connection'];
        }
        $this->assertCount(1, array_unique($connections), implode(' ', $connections));
    }

    public function testWithoutABrokerTheCallIsMadeDirectlyAndThatIsToldOnce(): void
    {
        $told = [];
        $broker = new Broker(Servers::folder() . '/nowhere-' . str_replace('\\', '-', static::class) . '/egress.sock', static function (string $message) use (&$told): void {
            $told[] = $message;
        });
        for ($i = 0; $i < 2; $i++) {
            $this->assertSame(200, $this->call(Servers::plain('/headers'), new Wish(), $broker)->status);
        }
        $this->assertCount(1, $told);
    }

    public function testASocketWhereNobodyListensMeansDirectly(): void
    {
        $folder = Servers::folder() . '/dead-' . str_replace('\\', '-', static::class);
        @mkdir($folder);
        $listener = stream_socket_server("unix://{$folder}/egress.sock");
        fclose($listener);
        file_put_contents("{$folder}/egress.token", str_repeat('0', 64));
        $told = [];
        $broker = new Broker("{$folder}/egress.sock", static function (string $message) use (&$told): void {
            $told[] = $message;
        });
        $reply = $this->call(Servers::plain('/echo'), new Wish('POST', body: 'again'), $broker);
        $this->assertSame('again', $reply->body, $reply->message);
        $this->assertCount(1, $told);
    }

    public function testABrokerThatIsKilledIsDoneWithoutAndOneThatIsStartedAnewIsFound(): void
    {
        $broker = Servers::mortal();
        $call = fn (): string => $this->call(Servers::plain('/echo'), new Wish('POST', body: 'on and on'), $broker)->body;
        $this->assertSame('on and on', $call());
        $this->assertCount(1, Servers::calls('mortal'));
        Servers::end('mortal');
        $this->assertSame('on and on', $call());
        $this->assertCount(0, Servers::calls('mortal'));
        Servers::mortal();
        $this->assertSame('on and on', $call());
        $this->assertCount(1, Servers::calls('mortal'));
        Servers::end('mortal');
    }

    public function testAWrongTokenMeansDirectly(): void
    {
        Servers::standIn();
        $folder = Servers::folder() . '/forged-' . str_replace('\\', '-', static::class);
        @mkdir($folder);
        symlink(Servers::folder() . '/stand-in/egress.sock', "{$folder}/egress.sock");
        file_put_contents("{$folder}/egress.token", str_repeat('0', 64));
        $reply = $this->call(Servers::plain('/echo'), new Wish('POST', body: 'again'), new Broker("{$folder}/egress.sock", static fn () => null));
        $this->assertSame('again', $reply->body, $reply->message);
        $this->assertCount(1, Servers::calls());
    }

    public function testABrokerThatIsOffIsNotAsked(): void
    {
        foreach ([null, '', 'off'] as $off) {
            $this->assertSame(200, $this->call(Servers::plain('/headers'), new Wish(), new Broker($off))->status);
        }
        $this->assertSame([], Servers::calls());
    }

    /**
     * Stock beside ours: the same exception with the same code.
     *
     * @return iterable<string, array{\Closure(): string, Wish}>
     */
    public static function faults(): iterable
    {
        yield 'refused' => [static fn () => Servers::closedPort(), new Wish()];
        yield 'no such name' => [static fn () => 'http://no-such-name.invalid/', new Wish()];
        yield 'certificate of an unknown authority' => [static fn () => Servers::secure('/headers'), new Wish()];
        yield 'certificate of another host' => [static fn () => str_replace('127.0.0.1', 'other.example', Servers::secure('/headers')), new Wish(ca: 'authority', resolve: ['other.example' => '127.0.0.1'])];
        yield 'no TLS there' => [static fn () => Servers::babbler(), new Wish(verify: false)];
        yield 'a handshake that stalls' => [static fn () => str_replace('http://', 'https://', Servers::plain('/headers')), new Wish(timeout: 1.5, verify: false)];
        yield 'closed without an answer' => [static fn () => Servers::plain('/empty'), new Wish()];
        yield 'closed without an answer to a POST' => [static fn () => Servers::plain('/empty'), new Wish('POST', body: 'x=1')];
        yield 'reset' => [static fn () => Servers::plain('/reset'), new Wish('POST', body: 'x=1')];
        yield 'cut in the body' => [static fn () => Servers::plain('/cut'), new Wish()];
        yield 'never answers' => [static fn () => Servers::plain('/never'), new Wish(timeout: 1)];
    }

    /** @dataProvider faults */
    #[DataProvider('faults')]
    public function testFaultsAreTheSameAsWithoutUs(\Closure $url, Wish $wish): void
    {
        $ca = $wish->ca === null ? null : Servers::authority();
        $wish = new Wish($wish->method, $wish->fields, $wish->body, $wish->timeout, $wish->verify, $ca, null, 0, null, $wish->resolve);
        $stock = $this->stock($url(), $wish);
        $ours = $this->get($url(), $wish);
        $this->assertNotNull($stock->error, "status {$stock->status}");
        $this->assertSame($this->expected($stock->error), $ours->error, "{$stock->message}\n{$ours->message}");
        $this->assertStringNotContainsString('//hearth', $ours->message);
    }

    /** Known differences from the original client's error. */
    protected function expected(string $error): string
    {
        return $error;
    }

    /** Whatever the broker's reason, the result is that of the direct call. */
    public function testADeclinedCallIsMadeDirectly(): void
    {
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        foreach (['connect-7', 'tls-35', 'certificate-60', 'queue-28', 'denied-7', 'unsupported-0', 'control-0', 'future-99'] as $reason) {
            $wish = new Wish('POST', body: 'once', resolve: ["{$reason}.declined.test" => '127.0.0.1']);
            $reply = $this->call("http://{$reason}.declined.test:{$port}/echo", $wish, Servers::standIn());
            $this->assertSame([200, 'once'], [$reply->status, $reply->body], "{$reason}: {$reply->message}");
            $this->assertSame([], $reply->field('Hearth-Declined'));
        }
        $this->assertCount(8, Servers::calls());
    }

    /** The direct call would have been answered. */
    public function testAFailedCallIsNotMadeAgain(): void
    {
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        foreach (['reset-56' => 56, 'empty-52' => 52, 'rubbish-1' => 1, 'stream-92' => 92] as $reason => $errno) {
            $wish = new Wish('POST', body: 'once', resolve: ["{$reason}.failed.test" => '127.0.0.1']);
            $reply = $this->call("http://{$reason}.failed.test:{$port}/echo", $wish, Servers::standIn());
            $this->assertNotNull($reply->error, $reason);
            $this->assertStringContainsStringIgnoringCase('the "words" of the broker', $reply->message);
            $this->assertSame($this->errorFor($errno), $reply->error);
        }
        $this->assertCount(4, Servers::calls());
    }

    /** Returns the client's exception for an error of curl. */
    abstract protected function errorFor(int $errno): string;

    public function testABrokerThatDiesUnderACallHasFailedIt(): void
    {
        $port = parse_url(Servers::plain(), PHP_URL_PORT);
        $wish = new Wish('POST', body: 'once', resolve: ['killed.test' => '127.0.0.1']);
        $reply = $this->call("http://killed.test:{$port}/echo", $wish, Servers::standIn());
        $this->assertNotNull($reply->error);
        $this->assertCount(1, Servers::calls());
    }

    /** Checks that the stand-in has received calls. */
    protected function assertThrough(): void
    {
        if (Servers::listener() === 'stand-in') {
            $this->assertNotSame([], Servers::calls(), 'the call was made directly');
        }
    }
}
