<?php

/**
 * Decides what happens to a call at each step: it goes through the broker, is made again directly after a decline, fails, or is redirected.
 * Promises: nothing is sent a second time if any of it may have reached the origin.
 */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Broker;
use Hearth\Egress\Timing;
use Hearth\Egress\Verdict;
use Symfony\Component\HttpClient\Chunk\ErrorChunk;
use Symfony\Component\HttpClient\Exception\TransportException;
use Symfony\Component\HttpClient\Response\AsyncContext;
use Symfony\Contracts\HttpClient\ChunkInterface;
use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;

/** @internal */
final class EgressStrategy
{
    public function __construct(private readonly Broker $broker, private readonly Attempts $attempts)
    {
    }

    public function receive(ChunkInterface $chunk, AsyncContext $context, EgressCall $call): \Generator
    {
        if ($chunk->getError() !== null) {
            yield from $this->fail($chunk, $context, $call);
            return;
        }
        if ($context->getInfo('canceled') || !$chunk->isFirst()) {
            yield $chunk;
            return;
        }
        $call->answered = true;
        $headers = $context->getHeaders();
        if ($call->listenerUrl !== null) {
            $verdict = Verdict::find($headers);
            if ($verdict !== null) {
                $this->apply($verdict, $context, $call);
                return;
            }
            $call->timing = Timing::read($headers[strtolower(Timing::FIELD)][0] ?? '');
        }
        $next = Redirects::follow($context->getStatusCode(), $headers, $call);
        if ($next === null) {
            yield $chunk;
            return;
        }
        [$url, $options] = $this->attempts->prepare($call, $next);
        $this->replace($context, $call, $url, $options);
    }

    private function apply(Verdict $verdict, AsyncContext $context, EgressCall $call): void
    {
        if ($verdict->trouble() !== null) {
            $this->broker->gone($verdict->trouble());
        }
        if (!$verdict->direct()) {
            $call->failed = true;
            throw new TransportException(sprintf('%s for "%s".', ucfirst($verdict->message), $call->url));
        }
        $this->direct($context, $call);
    }

    private function direct(AsyncContext $context, EgressCall $call): void
    {
        $call->listenerUrl = null;
        $call->answered = false;
        $this->replace($context, $call, $call->url, $call->attempt);
    }

    /** @param array<string, mixed> $options */
    private function replace(AsyncContext $context, EgressCall $call, string $url, array $options): void
    {
        $context->getResponse()->cancel();
        if (is_resource($body = $options['body'] ?? '')) {
            rewind($body);
        }
        $response = $context->replaceRequest($call->method, $url, ['max_redirects' => 0] + $options);
        if ($call->listenerUrl !== null) {
            Quiet::make($response);
        }
    }

    private function fail(ChunkInterface $chunk, AsyncContext $context, EgressCall $call): \Generator
    {
        if ($call->listenerUrl === null) {
            yield $chunk;
            return;
        }
        $message = $call->translate((string) $chunk->getError());
        try {
            // This also marks the chunk's error as handled.
            if ($chunk->isTimeout()) {
                yield new ErrorChunk($chunk->getOffset(), $message);
                return;
            }
        } catch (TransportExceptionInterface $e) {
            // It is not a time-out.
        }
        // Nothing of the request was sent: the broker's socket cannot be connected to.
        if (!$call->answered && !$context->getInfo('canceled') && (int) $context->getInfo('request_size') === 0) {
            $this->broker->gone('its socket cannot be connected to');
            $this->direct($context, $call);
            return;
        }
        yield new ErrorChunk($chunk->getOffset(), new TransportException($message, 0, $e ?? null));
    }
}
