<?php

/**
 * A PSR-18 client over curl and the egress broker. Promises: bodies are not decoded and redirects not followed, as PSR-18 requires. A
 * handle and its connections are kept, its cookies are not, and a forked process starts with none.
 */

declare(strict_types=1);

namespace Hearth\Egress;

use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\StreamFactoryInterface;

final class Client implements ClientInterface
{
    /** @var list<\CurlHandle> of the process that this one was forked from: to end them would end its connections */
    private static array $inherited = [];

    private readonly Broker $broker;
    private ?\CurlHandle $handle = null;
    private int $process = 0;

    /** @param array<int, mixed> $curl options of curl for each call: time-outs, certificates, proxies (CurlOptions) */
    public function __construct(
        private readonly ResponseFactoryInterface $responses,
        private readonly StreamFactoryInterface $streams,
        ?Broker $broker = null,
        private readonly array $curl = [],
    ) {
        $this->broker = $broker ?? Broker::fromEnvironment();
    }

    public function sendRequest(RequestInterface $request): ResponseInterface
    {
        $transfer = new Transfer($this->call($request), $this->broker, false);
        do {
            $handle = $this->take();
            $transfer->prepare($handle);
            curl_exec($handle);
            $over = $transfer->finish($handle, curl_errno($handle));
            Handles::clear($handle);
            $this->handle = $handle;
        } while (!$over);
        $answer = $transfer->answer();
        if ($answer->error !== null) {
            throw new NetworkFailed($request, $answer->error);
        }
        $response = $this->responses->createResponse($answer->status, $answer->reason)->withProtocolVersion($answer->version);
        foreach ($answer->fields as [$name, $value]) {
            $response = $response->withAddedHeader($name, $value);
        }
        return $response->withBody($this->streams->createStreamFromResource($answer->stream()));
    }

    private function call(RequestInterface $request): Call
    {
        $fields = [];
        foreach ($request->getHeaders() as $name => $values) {
            foreach ($values as $value) {
                $fields[] = [(string) $name, $value];
            }
        }
        $body = $request->getBody();
        if ($body->isSeekable()) {
            $body->rewind();
        }
        try {
            return new Call((string) $request->getUri()->withFragment(''), $request->getMethod(), $fields, $this->body($body), $this->curl);
        } catch (InvalidCall $e) {
            throw new RequestRefused($request, $e);
        }
    }

    /** @return string|resource a copy, in memory or in a temporary file, because reading a PSR-7 body consumes it */
    private function body(\Psr\Http\Message\StreamInterface $body): mixed
    {
        $piece = $body->eof() ? '' : $body->read(1_000_000);
        if ($body->eof()) {
            return $piece;
        }
        $copy = fopen('php://temp', 'w+');
        while ($piece !== '' || !$body->eof()) {
            fwrite($copy, $piece);
            $piece = $body->read(1_000_000);
        }
        rewind($copy);
        return $copy;
    }

    private function take(): \CurlHandle
    {
        $process = (int) getmypid();
        if ($this->handle !== null && $this->process !== $process) {
            self::$inherited[] = $this->handle;
            $this->handle = null;
        }
        $this->process = $process;
        $handle = $this->handle ?? curl_init();
        // A call within a callback of another uses its own handle.
        $this->handle = null;
        return $handle;
    }
}
