<?php

/** An answer to an HTTP event. Promises: its body may be any bytes; those that are invalid in JSON
 * are sent in base64. */

declare(strict_types=1);

namespace Hearth\Lambda\Http;

final class HttpResponse
{
    /** @param array<string, string|list<string>> $headers */
    public function __construct(
        public readonly string $body = '',
        public readonly array $headers = [],
        public readonly int $statusCode = 200,
    ) {
    }

    /** @return array<string, mixed> the answer in the format of the service that sent the event */
    public function toEvent(HttpRequestEvent $event): array
    {
        $isText = preg_match('//u', $this->body) === 1;
        $answer = [
            'statusCode' => $this->statusCode,
            'body' => $isText ? $this->body : base64_encode($this->body),
            'isBase64Encoded' => !$isText,
        ];
        $headers = [];
        foreach ($this->headers as $name => $values) {
            $name = strtolower((string) $name);
            $headers[$name] = [...$headers[$name] ?? [], ...array_map(strval(...), array_values((array) $values))];
        }
        if ($event->isFormatV2()) {
            $cookies = $headers['set-cookie'] ?? [];
            unset($headers['set-cookie']);
            $answer += $cookies === [] ? [] : ['cookies' => $cookies];
            $answer['headers'] = (object) array_map(static fn (array $values): string => implode(', ', $values), $headers);
        } elseif ($event->hasMultiHeader()) {
            $answer['multiValueHeaders'] = (object) $headers;
        } else {
            // One value of each: of several cookies the last.
            $one = static fn (string $name, array $values): string => $name === 'set-cookie' ? (string) end($values) : implode(', ', $values);
            $answer['headers'] = (object) array_combine(array_keys($headers), array_map($one, array_keys($headers), $headers));
        }
        if (isset($event->getRequestContext()['elb'])) {
            // A load balancer refuses an answer without one; the phrase itself is not shown.
            $answer['statusDescription'] = "{$this->statusCode} Status";
        }
        return $answer;
    }
}
