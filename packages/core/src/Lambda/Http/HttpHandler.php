<?php

/** Answers HTTP events. */

declare(strict_types=1);

namespace Hearth\Lambda\Http;

use Hearth\Lambda\Context;
use Hearth\Lambda\Handler;

abstract class HttpHandler implements Handler
{
    abstract public function handleRequest(HttpRequestEvent $event, Context $context): HttpResponse;

    /** @return array<string, mixed> */
    final public function handle(mixed $event, Context $context): array
    {
        $request = new HttpRequestEvent($event);
        return $this->handleRequest($request, $context)->toEvent($request);
    }
}
