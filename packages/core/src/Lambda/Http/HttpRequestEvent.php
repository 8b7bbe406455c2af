<?php

/**
 * An HTTP request from API Gateway (REST and HTTP APIs), a Function URL or an Application Load Balancer. Promises: the same request looks the same
 * from all of them.
 *
 * For whole applications, let Hearth turn events into requests instead (`lambda.handler = http`). PHP then sees them as from any web server, uploads
 * included.
 */

declare(strict_types=1);

namespace Hearth\Lambda\Http;

use Hearth\Lambda\Event;
use Hearth\Lambda\InvalidEvent;

final class HttpRequestEvent implements Event
{
    /** @var array<mixed> */
    private readonly array $event;

    /** @var array<string, list<string>> */
    private readonly array $headers;

    public function __construct(mixed $event)
    {
        $isV2 = is_array($event) && isset($event['requestContext']['http']['method']);
        if (!$isV2 && !(is_array($event) && is_string($event['httpMethod'] ?? null) && is_string($event['path'] ?? null))) {
            throw InvalidEvent::for('an HTTP event', $event);
        }
        $this->event = $event;
        $headers = [];
        foreach ($event['multiValueHeaders'] ?? $event['headers'] ?? [] as $name => $values) {
            $headers[strtolower((string) $name)] = array_map(strval(...), array_values((array) $values));
        }
        if ($isV2 && ($event['cookies'] ?? []) !== []) {
            $headers['cookie'] = [implode('; ', $event['cookies'])];
        }
        $this->headers = $headers;
    }

    public function getMethod(): string
    {
        return $this->isFormatV2() ? $this->event['requestContext']['http']['method'] : $this->event['httpMethod'];
    }

    /** The requested path, encoded. It begins with the stage if API Gateway puts one into an HTTP API's path. */
    public function getPath(): string
    {
        return $this->isFormatV2() ? (string) ($this->event['rawPath'] ?? '/') : $this->event['path'];
    }

    public function getQueryString(): string
    {
        if ($this->isFormatV2()) {
            return (string) ($this->event['rawQueryString'] ?? '');
        }
        // A load balancer leaves them encoded, API Gateway decodes them.
        $isEncoded = isset($this->event['requestContext']['elb']);
        $encode = static fn (string $text): string => $isEncoded ? $text : rawurlencode($text);
        $pairs = [];
        foreach ($this->event['multiValueQueryStringParameters'] ?? $this->event['queryStringParameters'] ?? [] as $name => $values) {
            foreach ((array) $values as $value) {
                $pairs[] = $encode((string) $name) . '=' . $encode((string) $value);
            }
        }
        return implode('&', $pairs);
    }

    /** @return array<mixed> as `$_GET` would have them */
    public function getQueryParameters(): array
    {
        parse_str($this->getQueryString(), $parameters);
        return $parameters;
    }

    public function getUri(): string
    {
        $query = $this->getQueryString();
        return $this->getPath() . ($query === '' ? '' : "?{$query}");
    }

    /** @return array<string, list<string>> names in lower case */
    public function getHeaders(): array
    {
        return $this->headers;
    }

    /** The field's values in one line; null: there is none. */
    public function getHeader(string $name): ?string
    {
        $values = $this->headers[strtolower($name)] ?? null;
        return $values === null ? null : implode(strtolower($name) === 'cookie' ? '; ' : ', ', $values);
    }

    public function getContentType(): ?string
    {
        return $this->getHeader('content-type');
    }

    /** @return array<string, string> as in `$_COOKIE`, but with unchanged names */
    public function getCookies(): array
    {
        $cookies = [];
        foreach (explode(';', $this->getHeader('cookie') ?? '') as $cookie) {
            [$name, $value] = explode('=', trim($cookie), 2) + [1 => ''];
            if ($name !== '' && !isset($cookies[$name])) {
                // As PHP does it: a plus sign is one, other than in forms.
                $cookies[$name] = rawurldecode($value);
            }
        }
        return $cookies;
    }

    /** The bytes of the body. */
    public function getBody(): string
    {
        $body = (string) ($this->event['body'] ?? '');
        if (!($this->event['isBase64Encoded'] ?? false)) {
            return $body;
        }
        $bytes = base64_decode($body, true);
        return $bytes !== false ? $bytes : throw InvalidEvent::for('an HTTP event with base64 in its body', $this->event);
    }

    /** E.g. `HTTP/1.1`. */
    public function getProtocol(): string
    {
        return (string) ($this->event['requestContext']['http']['protocol'] ?? $this->event['requestContext']['protocol'] ?? 'HTTP/1.1');
    }

    public function getServerName(): string
    {
        return (string) preg_replace('/:\d+\z/', '', $this->getHeader('host') ?? (string) ($this->event['requestContext']['domainName'] ?? 'localhost'));
    }

    /** The client's address as seen by the service; empty: unknown. */
    public function getSourceIp(): string
    {
        $context = $this->getRequestContext();
        $told = $context['http']['sourceIp'] ?? $context['identity']['sourceIp'] ?? null;
        if ($told !== null) {
            return (string) $told;
        }
        // A load balancer appends the address that it saw; earlier addresses come from the client.
        $hops = explode(',', $this->getHeader('x-forwarded-for') ?? '');
        return trim(end($hops));
    }

    /** @return array<mixed> */
    public function getRequestContext(): array
    {
        return $this->event['requestContext'] ?? [];
    }

    /** @return array<string, string> of the route's pattern */
    public function getPathParameters(): array
    {
        return $this->event['pathParameters'] ?? [];
    }

    /** Returns whether the event comes from an HTTP API or a Function URL. */
    public function isFormatV2(): bool
    {
        return isset($this->event['requestContext']['http']['method']);
    }

    /** Returns whether the answer must have lists of field values. */
    public function hasMultiHeader(): bool
    {
        return isset($this->event['multiValueHeaders']);
    }

    public function toArray(): array
    {
        return $this->event;
    }
}
