<?php

/** An event of a WebSocket connection at API Gateway. */

declare(strict_types=1);

namespace Hearth\Lambda\ApiGateway;

use Hearth\Lambda\Event;
use Hearth\Lambda\InvalidEvent;

final class WebsocketEvent implements Event
{
    /** @var array<mixed> */
    private readonly array $event;

    public function __construct(mixed $event)
    {
        if (!is_array($event) || !isset($event['requestContext']['connectionId'], $event['requestContext']['routeKey'])) {
            throw InvalidEvent::for('an event of a WebSocket API', $event);
        }
        $this->event = $event;
    }

    /** `$connect`, `$disconnect`, `$default` or a route of the API's own. */
    public function getRouteKey(): string
    {
        return (string) $this->event['requestContext']['routeKey'];
    }

    /** CONNECT, MESSAGE or DISCONNECT. */
    public function getEventType(): ?string
    {
        return $this->event['requestContext']['eventType'] ?? null;
    }

    /** The message; null: the event is none. */
    public function getBody(): ?string
    {
        $body = $this->event['body'] ?? null;
        if ($body === null || !($this->event['isBase64Encoded'] ?? false)) {
            return $body;
        }
        $bytes = base64_decode((string) $body, true);
        return $bytes !== false ? $bytes : throw InvalidEvent::for('an event of a WebSocket API with base64 in its body', $this->event);
    }

    public function getConnectionId(): string
    {
        return (string) $this->event['requestContext']['connectionId'];
    }

    public function getDomainName(): string
    {
        return (string) ($this->event['requestContext']['domainName'] ?? '');
    }

    public function getApiId(): string
    {
        return (string) ($this->event['requestContext']['apiId'] ?? '');
    }

    public function getStage(): string
    {
        return (string) ($this->event['requestContext']['stage'] ?? '');
    }

    /** From the API's own domain name. A custom domain does not contain the region: then it is the
     * function's. */
    public function getRegion(): string
    {
        $isAws = preg_match('/\.execute-api\.([a-z0-9-]+)\.amazonaws\.com/', $this->getDomainName(), $part) === 1;
        return $isAws ? $part[1] : (string) getenv('AWS_REGION');
    }

    public function toArray(): array
    {
        return $this->event;
    }
}
