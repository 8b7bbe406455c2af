<?php

declare(strict_types=1);

namespace Hearth\Tests;

use Hearth\Realtime\Sockets;
use PHPUnit\Framework\TestCase;

/** Messages to WebSockets: over the server's socket, and through API Gateway. Stand-ins take one call each and print it. */
final class SocketsTest extends TestCase
{
    /** @var array<string, string|false> */
    private array $before = [];

    protected function setUp(): void
    {
        foreach (['HEARTH_SOCKETS', 'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'] as $name) {
            $this->before[$name] = getenv($name);
        }
    }

    protected function tearDown(): void
    {
        foreach ($this->before as $name => $value) {
            putenv($value === false ? $name : "$name=$value");
        }
        unset($_SERVER['LAMBDA_REQUEST_CONTEXT']);
    }

    /** @return array{resource, array<int, resource>, string} process, pipes and the line that it starts with */
    private function standIn(string ...$command): array
    {
        $process = proc_open([PHP_BINARY, ...$command], [1 => ['pipe', 'w']], $pipes);
        self::assertIsResource($process);
        return [$process, $pipes, trim((string) fgets($pipes[1]))];
    }

    public function testTheServersSocketTakesMessagesAndCloses(): void
    {
        if (function_exists('hearth_socket_send')) {
            self::markTestSkipped('The extension does it here.');
        }
        $path = sys_get_temp_dir() . '/hearth-sockets-' . getmypid() . '.sock';
        $code = '$l = stream_socket_server("unix://$argv[1]"); echo "there\n"; $c = stream_socket_accept($l, 60);'
            . '$r = ""; while (!str_contains($r, "\r\n\r\n") || !str_ends_with($r, $argv[3])) { $r .= fread($c, 65536); }'
            . 'fwrite($c, "HTTP/1.1 $argv[2] Said\r\n\r\n"); echo $r;';
        putenv("HEARTH_SOCKETS=$path");
        $sockets = new Sockets();
        foreach (
            [
                ['200', true, 'grüße', fn () => $sockets->send('AbC_-=', 'grüße'), 'POST /@connections/AbC_-= HTTP/1.1'],
                ['410', false, "\xff", fn () => $sockets->send('gone', "\xff", true), 'POST /@connections/gone?binary=1 HTTP/1.1'],
                ['204', true, 'enough', fn () => $sockets->close('AbC', 4001, 'enough'), 'DELETE /@connections/AbC?code=4001 HTTP/1.1'],
            ] as [$status, $expected, $body, $call, $line]
        ) {
            [$process, $pipes] = $this->standIn('-r', $code, '--', $path, $status, $body);
            self::assertSame($expected, $call());
            $request = (string) stream_get_contents($pipes[1]);
            proc_close($process);
            unlink($path);
            self::assertStringStartsWith("$line\r\n", $request);
            self::assertStringEndsWith("\r\n\r\n$body", $request);
        }
        self::assertFalse($sockets->send("a\r\nb", 'x'), 'no id');
        self::assertFalse($sockets->send('a', 'x'), 'no server');
        putenv('HEARTH_SOCKETS');
        $this->expectException(\LogicException::class);
        $sockets->send('a', 'x');
    }

    public function testInAnEventOfApiGatewayTheMessageGoesToItsConnectionsSigned(): void
    {
        [$process, $pipes, $address] = $this->standIn(__DIR__ . '/Lambda/gateway.php', '200');
        putenv('AWS_ACCESS_KEY_ID=AKIDEXAMPLE');
        putenv('AWS_SECRET_ACCESS_KEY=secret');
        $domain = 'abc.execute-api.eu-west-1.amazonaws.com';
        $_SERVER['LAMBDA_REQUEST_CONTEXT'] = json_encode(['connectionId' => 'x=', 'domainName' => $domain, 'stage' => 'prod']);
        [, , $port] = explode(':', $address);
        $connections = (new \ReflectionMethod(Sockets::class, 'gateway'))->invoke(new Sockets());
        $endpoint = (new \ReflectionProperty($connections, 'endpoint'))->getValue($connections);
        self::assertSame("https://$domain/prod", $endpoint);
        $signer = (new \ReflectionProperty($connections, 'signer'))->getValue($connections);
        $local = new \Hearth\Lambda\ApiGateway\Connections("http://127.0.0.1:$port/prod", $signer);
        self::assertTrue($local->send('x=', 'hi'));
        $request = (string) stream_get_contents($pipes[1]);
        proc_close($process);
        self::assertStringStartsWith('POST /prod/%40connections/x%3D HTTP/1.1', $request);
        self::assertMatchesRegularExpression('~/eu-west-1/execute-api/aws4_request~', $request);
    }
}
