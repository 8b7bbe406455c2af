<?php

/** Answers HTTP events. */

declare(strict_types=1);

namespace Hearth\Lambda\Http;

use Hearth\Lambda\Context;
use Hearth\Lambda\Handler;

abstract class HttpHandler implements Handler
{
    abstract public function handleRequest(HttpRequestEvent $event, Context $context): HttpResponse;

    /** @return array<mixed> */
    final public function handle(mixed $event, Context $context): array
    {
        // An event that keeps an environment warm is not a request; HTTP applications do not get it
        // either.
        if (is_array($event) && ($event['warmer'] ?? null) === true) {
            return ['Lambda is warm'];
        }
        $request = new HttpRequestEvent($event);
        return $this->handleRequest($request, $context)->toEvent($request);
    }
}
