<?php

/**
 * Handles events of WebSockets. The answer to CONNECT decides whether the client is accepted (a status of 200 to 299). The body of an answer to a
 * message goes to the client only if the route has its own response. Send anything else with Connections.
 */

declare(strict_types=1);

namespace Hearth\Lambda\ApiGateway;

use Hearth\Lambda\Context;
use Hearth\Lambda\Handler;
use Hearth\Lambda\Http\HttpResponse;

abstract class WebsocketHandler implements Handler
{
    abstract public function handleWebsocket(WebsocketEvent $event, Context $context): HttpResponse;

    /** @return array<string, mixed> */
    final public function handle(mixed $event, Context $context): array
    {
        $response = $this->handleWebsocket(new WebsocketEvent($event), $context);
        $headers = array_map(static fn (string|array $values): string => implode(', ', (array) $values), $response->headers);
        return ['statusCode' => $response->statusCode, 'headers' => (object) $headers, 'body' => $response->body];
    }
}
