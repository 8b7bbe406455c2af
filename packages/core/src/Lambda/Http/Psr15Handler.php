<?php

/**
 * A PSR-15 handler as a function for HTTP events. A file that returns the PSR-15 handler itself is the same: Hearth's runner puts this around it.
 *
 * The request's attributes are `lambda-event` (HttpRequestEvent) and `lambda-context` (Context). Bodies of forms are parsed when they are
 * `application/x-www-form-urlencoded`; for `multipart/form-data` run the application as HTTP (`lambda.handler = http`).
 */

declare(strict_types=1);

namespace Hearth\Lambda\Http;

use Hearth\Lambda\Context;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

final class Psr15Handler extends HttpHandler
{
    /** PSR-17 factories by the packages that are most often there; each makes both requests and streams. */
    private const FACTORIES = [
        'Nyholm\\Psr7\\Factory\\Psr17Factory',
        'GuzzleHttp\\Psr7\\HttpFactory',
        'HttpSoft\\Message\\ServerRequestFactory' => 'HttpSoft\\Message\\StreamFactory',
        'Laminas\\Diactoros\\ServerRequestFactory' => 'Laminas\\Diactoros\\StreamFactory',
        'Slim\\Psr7\\Factory\\ServerRequestFactory' => 'Slim\\Psr7\\Factory\\StreamFactory',
    ];

    public function __construct(private readonly RequestHandlerInterface $handler)
    {
    }

    public function handleRequest(HttpRequestEvent $event, Context $context): HttpResponse
    {
        return self::fromPsr7($this->handler->handle(self::toPsr7($event, $context)));
    }

    /** @throws \LogicException no PSR-7 implementation is installed */
    public static function toPsr7(HttpRequestEvent $event, Context $context): ServerRequestInterface
    {
        [$requests, $streams] = self::factories();
        $scheme = $event->getHeader('x-forwarded-proto') ?? 'https';
        $uri = "{$scheme}://" . ($event->getHeader('host') ?? $event->getServerName()) . $event->getUri();
        $server = [
            'REQUEST_METHOD' => $event->getMethod(),
            'REQUEST_URI' => $event->getUri(),
            'QUERY_STRING' => $event->getQueryString(),
            'REMOTE_ADDR' => $event->getSourceIp(),
            'SERVER_NAME' => $event->getServerName(),
            'SERVER_PROTOCOL' => $event->getProtocol(),
            'REQUEST_TIME' => time(),
            'REQUEST_TIME_FLOAT' => microtime(true),
        ];
        $request = $requests->createServerRequest($event->getMethod(), $uri, $server);
        foreach ($event->getHeaders() as $name => $values) {
            $request = $request->withHeader((string) $name, $values);
        }
        $body = $event->getBody();
        $type = strtolower(trim(explode(';', $event->getContentType() ?? '')[0]));
        if ($type === 'application/x-www-form-urlencoded') {
            parse_str($body, $form);
            $request = $request->withParsedBody($form);
        }
        return $request
            ->withProtocolVersion(substr((string) strrchr($event->getProtocol(), '/'), 1) ?: '1.1')
            ->withQueryParams($event->getQueryParameters())
            ->withCookieParams($event->getCookies())
            ->withBody($streams->createStream($body))
            ->withAttribute('lambda-event', $event)
            ->withAttribute('lambda-context', $context);
    }

    public static function fromPsr7(ResponseInterface $response): HttpResponse
    {
        return new HttpResponse((string) $response->getBody(), $response->getHeaders(), $response->getStatusCode());
    }

    /** @return array{\Psr\Http\Message\ServerRequestFactoryInterface, \Psr\Http\Message\StreamFactoryInterface} */
    private static function factories(): array
    {
        foreach (self::FACTORIES as $requests => $streams) {
            $requests = is_int($requests) ? $streams : $requests;
            if (class_exists($requests) && class_exists($streams)) {
                return [new $requests(), new $streams()];
            }
        }
        throw new \LogicException('A PSR-15 handler needs a PSR-7 implementation: `composer require nyholm/psr7`.');
    }
}
