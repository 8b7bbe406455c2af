<?php

/**
 * A PSR-15 handler as a function for HTTP events. A file that returns the PSR-15 handler itself is the same: Hearth's runner puts this around it.
 *
 * The request's attributes are `lambda-event` (HttpRequestEvent) and `lambda-context` (Context). Bodies of forms are parsed, whatever the method:
 * `application/x-www-form-urlencoded`, and `multipart/form-data` with its files.
 */

declare(strict_types=1);

namespace Hearth\Lambda\Http;

use Hearth\Lambda\Context;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestFactoryInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Message\UploadedFileFactoryInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Server\RequestHandlerInterface;

final class Psr15Handler extends HttpHandler
{
    /** PSR-17 factories of requests, streams and uploaded files, by the packages that are most often there; some have one class for all. */
    private const FACTORIES = [
        ['Nyholm\\Psr7\\Factory\\Psr17Factory', null, null],
        ['GuzzleHttp\\Psr7\\HttpFactory', null, null],
        ['HttpSoft\\Message\\ServerRequestFactory', 'HttpSoft\\Message\\StreamFactory', 'HttpSoft\\Message\\UploadedFileFactory'],
        ['Laminas\\Diactoros\\ServerRequestFactory', 'Laminas\\Diactoros\\StreamFactory', 'Laminas\\Diactoros\\UploadedFileFactory'],
        ['Slim\\Psr7\\Factory\\ServerRequestFactory', 'Slim\\Psr7\\Factory\\StreamFactory', 'Slim\\Psr7\\Factory\\UploadedFileFactory'],
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
        [$requests, $streams, $files] = self::factories();
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
        } elseif ($type === 'multipart/form-data') {
            $form = new Multipart((string) $event->getContentType(), $body);
            $request = $request->withParsedBody($form->fields())->withUploadedFiles($form->files(
                static fn (array $file): UploadedFileInterface => self::uploadedFile($file, $streams, $files),
            ));
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

    /** @param array{name: string, type: string, content: string} $file */
    private static function uploadedFile(array $file, StreamFactoryInterface $streams, UploadedFileFactoryInterface $files): UploadedFileInterface
    {
        // A browser's part for a form field without a chosen file.
        $isNone = $file['name'] === '' && $file['content'] === '';
        $type = $file['type'] === '' ? null : $file['type'];
        return $files->createUploadedFile(
            $streams->createStream($file['content']),
            strlen($file['content']),
            $isNone ? UPLOAD_ERR_NO_FILE : UPLOAD_ERR_OK,
            $file['name'],
            $type,
        );
    }

    /** @return array{ServerRequestFactoryInterface, StreamFactoryInterface, UploadedFileFactoryInterface} */
    private static function factories(): array
    {
        foreach (self::FACTORIES as [$requests, $streams, $files]) {
            if (class_exists($requests)) {
                $factory = new $requests();
                return [$factory, $streams === null ? $factory : new $streams(), $files === null ? $factory : new $files()];
            }
        }
        throw new \LogicException('A PSR-15 handler needs a PSR-7 implementation: `composer require nyholm/psr7`.');
    }
}
