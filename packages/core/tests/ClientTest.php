<?php

declare(strict_types=1);

namespace Hearth\Tests;

use GuzzleHttp\Psr7\HttpFactory;
use GuzzleHttp\Psr7\Request;
use Hearth\Egress\Broker;
use Hearth\Egress\Client;
use Hearth\Egress\NetworkFailed;
use Hearth\Egress\RequestRefused;
use Hearth\Egress\SharedConnections;

final class ClientTest extends ContractTestCase
{
    protected bool $decodes = false;
    protected bool $follows = false;

    protected function call(string $url, Wish $wish, Broker $broker): Reply
    {
        $curl = [CURLOPT_TIMEOUT_MS => (int) (1000 * $wish->timeout)];
        if (!$wish->verify) {
            $curl += [CURLOPT_SSL_VERIFYPEER => false, CURLOPT_SSL_VERIFYHOST => 0];
        }
        if ($wish->ca !== null) {
            $curl[CURLOPT_CAINFO] = $wish->ca;
        }
        foreach ($wish->resolve ?? [] as $host => $address) {
            $curl[CURLOPT_RESOLVE][] = $host . ':' . parse_url($url, PHP_URL_PORT) . ':' . $address;
        }
        $request = new Request($wish->method, $url, array_map(static fn (array $value): array => $value, array_reduce($wish->fields, static function (array $all, array $field): array {
            $all[$field[0]][] = $field[1];
            return $all;
        }, [])), $wish->body);
        $factory = new HttpFactory();
        try {
            $response = (new Client($factory, $factory, $broker, $curl))->sendRequest($request);
        } catch (NetworkFailed $e) {
            $this->assertSame($request, $e->getRequest());
            return new Reply(error: $e::class . " {$e->getCode()}", message: $e->getMessage());
        }
        return new Reply($response->getStatusCode(), $response->getHeaders(), (string) $response->getBody());
    }

    /** The client without a broker, which uses curl itself, is the only one to compare with. */
    protected function stock(string $url, Wish $wish): Reply
    {
        return $this->call($url, $wish, new Broker(null));
    }

    protected function stream(string $url, Wish $wish, Broker $broker): array
    {
        throw new \LogicException('PSR-18 gives a body when all of it is there');
    }

    public function testABodyIsReadWhileItComes(): void
    {
        $this->assertSame('xxxxxxxxxx', $this->get(Servers::plain('/drip'))->body);
    }

    protected function errorFor(int $errno): string
    {
        return NetworkFailed::class . " {$errno}";
    }

    public function testWhatIsNoRequestIsRefused(): void
    {
        $factory = new HttpFactory();
        $request = $this->createStub(\Psr\Http\Message\RequestInterface::class);
        $request->method('getMethod')->willReturn("GET / HTTP/1.1\r\nX: y");
        $request->method('getUri')->willReturn($factory->createUri(Servers::plain()));
        $request->method('getHeaders')->willReturn([]);
        $request->method('getBody')->willReturn($factory->createStream(''));
        $this->expectException(RequestRefused::class);
        (new Client($factory, $factory, Servers::broker()))->sendRequest($request);
    }

    public function testWithoutABrokerTheConnectionIsKeptAndAChildHasItsOwn(): void
    {
        $factory = new HttpFactory();
        $client = new Client($factory, $factory, new Broker(null));
        $connection = static fn (): int => json_decode((string) $client->sendRequest(new Request('GET', Servers::plain('/headers')))->getBody(), true)['connection'];
        $first = $connection();
        $this->assertSame($first, $connection());
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $child = pcntl_fork();
        if ($child === 0) {
            fwrite($theirs, (string) $connection());
            // Without PHPUnit's own end.
            posix_kill(getmypid(), SIGKILL);
        }
        fclose($theirs);
        pcntl_waitpid($child, $status);
        $this->assertNotSame($first, (int) fgets($ours));
        $this->assertSame($first, $connection());
    }

    public function testFromPhp85OnConnectionsBelongToTheProcess(): void
    {
        $this->assertSame(PHP_VERSION_ID >= 80500, SharedConnections::get() !== null);
        $factory = new HttpFactory();
        $connections = [];
        for ($i = 0; $i < 2; $i++) {
            $client = new Client($factory, $factory, new Broker(null));
            $answer = $client->sendRequest(new Request('GET', Servers::plain('/headers')));
            $connections[] = json_decode((string) $answer->getBody(), true)['connection'];
        }
        $this->assertSame(PHP_VERSION_ID >= 80500, $connections[0] === $connections[1]);
    }
}
