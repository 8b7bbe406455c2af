<?php

/** HTTP events of all four services as one kind of request, answers in the format of each, and
 * PSR-15 handlers for them. */

declare(strict_types=1);

namespace Hearth\Tests\Lambda;

use GuzzleHttp\Psr7\Response;
use Hearth\Lambda\ApiGateway\Connections;
use Hearth\Lambda\ApiGateway\ConnectionsFailed;
use Hearth\Lambda\ApiGateway\Signer;
use Hearth\Lambda\ApiGateway\WebsocketEvent;
use Hearth\Lambda\Context;
use Hearth\Lambda\Http\HttpRequestEvent;
use Hearth\Lambda\Http\HttpResponse;
use Hearth\Lambda\Http\Psr15Handler;
use Hearth\Lambda\InvalidEvent;
use PHPUnit\Framework\Attributes\DataProvider;
use PHPUnit\Framework\TestCase;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Server\RequestHandlerInterface;

final class HttpTest extends TestCase
{
    /** @return array<string, array{array<string, mixed>}> one request, told by each */
    public static function services(): array
    {
        $body = ['body' => base64_encode('name=J%C3%BC'), 'isBase64Encoded' => true];
        $type = 'application/x-www-form-urlencoded';
        $v2 = [
            'version' => '2.0',
            'rawPath' => '/items/a%20b',
            'rawQueryString' => 'tag=x%20y&tag=z&n=1',
            'cookies' => ['sid=1', 'theme=dark%20blue'],
            'headers' => ['host' => 'example.org', 'content-type' => $type, 'x-forwarded-proto' => 'https'],
            'requestContext' => ['http' => ['method' => 'POST', 'path' => '/items/a%20b', 'protocol' => 'HTTP/1.1', 'sourceIp' => '192.0.2.1'], 'domainName' => 'example.org'],
        ] + $body;
        $headers = ['Host' => ['example.org'], 'Content-Type' => [$type], 'Cookie' => ['sid=1; theme=dark%20blue'], 'X-Forwarded-Proto' => ['https']];
        return [
            'an HTTP API or a Function URL' => [$v2],
            'a REST API' => [[
                'resource' => '/{proxy+}',
                'path' => '/items/a%20b',
                'httpMethod' => 'POST',
                'headers' => array_map(static fn (array $values): string => $values[0], $headers),
                'multiValueHeaders' => $headers,
                'queryStringParameters' => ['tag' => 'z', 'n' => '1'],
                'multiValueQueryStringParameters' => ['tag' => ['x y', 'z'], 'n' => ['1']],
                'requestContext' => ['stage' => 'prod', 'identity' => ['sourceIp' => '192.0.2.1'], 'protocol' => 'HTTP/1.1'],
            ] + $body],
            'a load balancer' => [[
                'path' => '/items/a%20b',
                'httpMethod' => 'POST',
                'multiValueHeaders' => $headers + ['X-Forwarded-For' => ['203.0.113.9, 192.0.2.1']],
                'multiValueQueryStringParameters' => ['tag' => ['x%20y', 'z'], 'n' => ['1']],
                'requestContext' => ['elb' => ['targetGroupArn' => 'arn']],
            ] + $body],
        ];
    }

    /**
     * @dataProvider services
     * @param array<string, mixed> $event
     */
    #[DataProvider('services')]
    public function testARequestReadsTheSameWhoeverSentIt(array $event): void
    {
        $request = new HttpRequestEvent($event);
        $this->assertSame(['POST', '/items/a%20b?tag=x%20y&tag=z&n=1'], [$request->getMethod(), $request->getUri()]);
        $this->assertSame(['tag' => 'z', 'n' => '1'], $request->getQueryParameters());
        $this->assertSame(['sid' => '1', 'theme' => 'dark blue'], $request->getCookies());
        $this->assertSame('name=J%C3%BC', $request->getBody());
        $this->assertSame(['192.0.2.1', 'example.org', 'HTTP/1.1'], [$request->getSourceIp(), $request->getServerName(), $request->getProtocol()]);
        $this->assertSame('application/x-www-form-urlencoded', $request->getContentType());
    }

    /**
     * @dataProvider services
     * @param array<string, mixed> $event
     */
    #[DataProvider('services')]
    public function testAPsr15HandlerGetsThatRequest(array $event): void
    {
        $handler = new class implements RequestHandlerInterface {
            public ?ServerRequestInterface $request = null;

            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                $this->request = $request;
                return new Response(201, ['Set-Cookie' => ['a=1', 'b=2'], 'X-A' => 'x'], "made {$request->getParsedBody()['name']}");
            }
        };
        $answer = json_decode(json_encode((new Psr15Handler($handler))->handle($event, Context::fake())), true);
        $this->assertSame([201, 'made Jü', false], [$answer['statusCode'], $answer['body'], $answer['isBase64Encoded']]);
        $request = $handler->request;
        $this->assertSame('https://example.org/items/a%20b?tag=x%20y&tag=z&n=1', (string) $request->getUri());
        $this->assertSame(['sid' => '1', 'theme' => 'dark blue'], $request->getCookieParams());
        $this->assertSame(['tag' => 'z', 'n' => '1'], $request->getQueryParams());
        $this->assertSame('name=J%C3%BC', (string) $request->getBody());
        $this->assertSame(['192.0.2.1', '1.1'], [$request->getServerParams()['REMOTE_ADDR'], $request->getProtocolVersion()]);
        $this->assertSame('fake-request-id', $request->getAttribute('lambda-context')->getAwsRequestId());
        $cookies = $answer['cookies'] ?? $answer['multiValueHeaders']['set-cookie'];
        $this->assertSame(['a=1', 'b=2'], $cookies);
        $this->assertSame('x', implode((array) ($answer['headers']['x-a'] ?? $answer['multiValueHeaders']['x-a'])));
        $this->assertSame(isset($event['requestContext']['elb']) ? '201 Status' : null, $answer['statusDescription'] ?? null);
    }

    public function testWhatKeepsAnEnvironmentWarmIsNoRequest(): void
    {
        $handler = new class implements RequestHandlerInterface {
            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                throw new \LogicException('asked');
            }
        };
        $this->assertSame(['Lambda is warm'], (new Psr15Handler($handler))->handle(['warmer' => true], Context::fake()));
        $this->expectException(InvalidEvent::class);
        (new Psr15Handler($handler))->handle(['warmer' => false], Context::fake());
    }

    /** What `$_COOKIE` has was looked up with php-cgi. */
    public function testCookiesAreDecodedAsPhpDoesIt(): void
    {
        $request = new HttpRequestEvent(['httpMethod' => 'GET', 'path' => '/', 'headers' => ['Cookie' => 'a=x+y; b=x%2By%20z; c=AB+/=']]);
        $this->assertSame(['a' => 'x+y', 'b' => 'x+y z', 'c' => 'AB+/='], $request->getCookies());
    }

    /** The expected values are PHP's own for this body, found with php-cgi. */
    public function testAFormWithFilesIsParsedAsPhpDoesIt(): void
    {
        $parts = [
            "Content-Disposition: form-data; name=\"title\"\r\n\r\nTwo\r\nlines --b",
            "content-disposition: form-data; name=tags[]\r\n\r\nred",
            "Content-Disposition: form-data; name=\"tags[]\"\r\n\r\n",
            "Content-Disposition: form-data; name=\"a[b][c.d]\"\r\n\r\ndeep",
            "Content-Disposition: form-data; name=\"x.y\"\r\n\r\n1",
            "Content-Disposition: form-data; name=\"photo\"; filename=\"C:\\me\\a \\\"b\\\".png\"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n\0\xff",
            "Content-Disposition: form-data; name=\"docs[one]\"; filename=\"../../é.txt\"\r\nX-Other:\r\n folded\r\n\r\ntext",
            "Content-Disposition: form-data; name=\"none\"; filename=\"\"\r\nContent-Type: application/octet-stream\r\n\r\n",
            "Content-Disposition: form-data\r\n\r\nwithout a name",
            "no head at all",
        ];
        $body = "preamble\r\n--b c\r\n" . implode("\r\n--b c  \r\n", $parts) . "\r\n--b c--\r\n--b c\r\nContent-Disposition: form-data; name=late\r\n\r\nepilogue";
        $request = self::psr7('multipart/form-data; charset=utf-8; Boundary="b c"', $body);
        $this->assertSame(
            ['title' => "Two\r\nlines --b", 'tags' => ['red', ''], 'a' => ['b' => ['c.d' => 'deep']], 'x_y' => '1'],
            $request->getParsedBody(),
        );
        $files = $request->getUploadedFiles();
        $this->assertSame(['photo', 'docs', 'none'], array_keys($files));
        $tell = static fn (UploadedFileInterface $file): array => [$file->getClientFilename(), $file->getClientMediaType(), $file->getSize(), $file->getError()];
        $this->assertSame(['a "b".png', 'image/png', 8, UPLOAD_ERR_OK], $tell($files['photo']));
        $this->assertSame("\x89PNG\r\n\0\xff", (string) $files['photo']->getStream());
        $this->assertSame(['é.txt', null, 4, UPLOAD_ERR_OK], $tell($files['docs']['one']));
        $this->assertSame(UPLOAD_ERR_NO_FILE, $files['none']->getError());
        $target = tempnam(sys_get_temp_dir(), 'hearth');
        $files['docs']['one']->moveTo($target);
        $this->assertSame('text', file_get_contents($target));
        unlink($target);
    }

    public function testOfAFormThatIsBrokenTheWholePartsCount(): void
    {
        $field = static fn (string $name): string => "--b\r\nContent-Disposition: form-data; name=\"{$name}\"\r\n\r\n1\r\n";
        $type = 'multipart/form-data; boundary=b';
        foreach ([
            [$type, $field('a') . $field('b') . '--b--', ['a' => '1', 'b' => '1']],
            [$type, $field('a') . $field('b'), ['a' => '1']],
            [$type, '', []],
            [$type, '--b--', []],
            [$type, str_repeat('--b', 1000), []],
            [$type, "--b\r\nContent-Disposition: form-data; name=\"" . str_repeat('\\\\', 50_000) . "\r\n\r\n1\r\n--b--", []],
            ['multipart/form-data', $field('a') . '--b--', []],
            ['multipart/form-data; boundary=', $field('a') . '--b--', []],
        ] as [$type, $body, $expected]) {
            $request = self::psr7($type, $body);
            $this->assertSame($expected, array_intersect_key($request->getParsedBody(), ['a' => 1, 'b' => 1]));
            $this->assertSame([], $request->getUploadedFiles());
        }
    }

    private static function psr7(string $type, string $body): ServerRequestInterface
    {
        $event = ['httpMethod' => 'POST', 'path' => '/', 'headers' => ['Content-Type' => $type], 'body' => base64_encode($body), 'isBase64Encoded' => true];
        return Psr15Handler::toPsr7(new HttpRequestEvent($event), Context::fake());
    }

    public function testWithoutListsInTheRequestThereAreNoneInTheAnswer(): void
    {
        $request = new HttpRequestEvent(['httpMethod' => 'GET', 'path' => '/', 'headers' => ['host' => 'a:81'], 'requestContext' => ['elb' => []]]);
        $answer = (new HttpResponse("\xff", ['A' => ['1', '2'], 'Set-Cookie' => ['x=1', 'y=2']]))->toEvent($request);
        $this->assertSame(
            '{"statusCode":200,"body":"\/w==","isBase64Encoded":true,"headers":{"a":"1, 2","set-cookie":"y=2"},"statusDescription":"200 Status"}',
            json_encode($answer),
        );
        $this->assertSame(['', [], [], 'a'], [$request->getQueryString(), $request->getQueryParameters(), $request->getCookies(), $request->getServerName()]);
    }

    public function testOtherEventsAndBrokenBodiesAreRefused(): void
    {
        $broken = ['httpMethod' => 'GET', 'path' => '/', 'body' => '*', 'isBase64Encoded' => true];
        foreach ([null, [], ['httpMethod' => 'GET'], ['httpMethod' => ['GET'], 'path' => '/'], Samples::sqs(['a']), $broken] as $event) {
            try {
                (new HttpRequestEvent($event))->getBody();
                $this->fail(json_encode($event));
            } catch (InvalidEvent $e) {
                $this->addToAssertionCount(1);
            }
        }
    }

    /** AWS's own test suite for signatures: get-vanilla, and get-vanilla-query-order-key-case. */
    public function testRequestsAreSignedAsAwsSays(): void
    {
        $signer = new Signer('AKIDEXAMPLE', 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY', null, 'us-east-1', 'service');
        $now = gmmktime(12, 36, 0, 8, 30, 2015);
        $vanilla = $signer->sign('GET', 'https://example.amazonaws.com/', '', [], $now);
        $this->assertSame('20150830T123600Z', $vanilla['x-amz-date']);
        $this->assertSame(
            'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, '
            . 'Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31',
            $vanilla['authorization'],
        );
        $query = $signer->sign('GET', 'https://example.amazonaws.com/?Param2=value2&Param1=value1', '', [], $now);
        $this->assertStringEndsWith('Signature=b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500', $query['authorization']);
    }

    public function testAMessageGoesToItsConnectionSigned(): void
    {
        [$connections, $request] = $this->gateway(200);
        $this->assertTrue($connections->send('Fc5SzcQYGj0CFXg=', 'hello'));
        $request = $request();
        $this->assertStringStartsWith("POST /prod/%40connections/Fc5SzcQYGj0CFXg%3D HTTP/1.1\r\n", $request);
        $this->assertStringContainsString('x-amz-security-token: token', $request);
        $this->assertMatchesRegularExpression('#authorization: AWS4-HMAC-SHA256 Credential=AKID/\d{8}/eu-west-1/execute-api/aws4_request, '
            . 'SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}#', $request);
        $this->assertStringEndsWith("\r\n\r\nhello", $request);
    }

    public function testAClientThatIsGoneIsNoFailureAndARefusalIs(): void
    {
        [$connections, $request] = $this->gateway(410);
        $this->assertFalse($connections->close('a='));
        $this->assertStringStartsWith("DELETE /prod/%40connections/a%3D HTTP/1.1\r\n", $request());
        [$connections] = $this->gateway(403);
        $this->expectException(ConnectionsFailed::class);
        $this->expectExceptionCode(403);
        $connections->send('a=', 'hello');
    }

    public function testConnectionsAreWhereTheEventCameFrom(): void
    {
        putenv('AWS_ACCESS_KEY_ID=AKID');
        putenv('AWS_SECRET_ACCESS_KEY=secret');
        try {
            $connections = Connections::of(new WebsocketEvent(Samples::websocket('MESSAGE', 'hi')));
            $endpoint = (new \ReflectionProperty($connections, 'endpoint'))->getValue($connections);
            $this->assertSame('https://abc.execute-api.eu-west-1.amazonaws.com/prod', $endpoint);
        } finally {
            putenv('AWS_ACCESS_KEY_ID');
            putenv('AWS_SECRET_ACCESS_KEY');
        }
        $this->expectExceptionMessage('AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set');
        Connections::of(new WebsocketEvent(Samples::websocket('MESSAGE', 'hi')));
    }

    /** @return array{Connections, \Closure(): string} and what came there */
    private function gateway(int $status): array
    {
        $process = proc_open([PHP_BINARY, '-n', __DIR__ . '/gateway.php', (string) $status], [1 => ['pipe', 'w']], $pipes);
        $endpoint = trim((string) fgets($pipes[1])) . '/prod';
        $signer = new Signer('AKID', 'secret', 'token', 'eu-west-1', 'execute-api');
        $request = static function () use ($process, $pipes): string {
            $said = (string) stream_get_contents($pipes[1]);
            proc_close($process);
            return $said;
        };
        return [new Connections($endpoint, $signer), $request];
    }
}
