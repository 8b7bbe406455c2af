<?php

/** The result of a call: an answer, or why there is none. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Answer
{
    /**
     * @param int $status 0: there is no answer
     * @param list<array{string, string}> $fields in the origin's order and case
     * @param resource $body rewound
     * @param ?Timing $timing of a call that went through the broker
     * @param array<string, mixed> $info of curl_getinfo(), with the origin in place of the broker
     */
    public function __construct(
        public readonly Call $call,
        public readonly int $status,
        public readonly string $reason,
        public readonly string $version,
        public readonly array $fields,
        private readonly mixed $body,
        public readonly ?Timing $timing,
        public readonly array $info,
        public readonly ?TransferFailed $error,
    ) {
    }

    public function ok(): bool
    {
        return $this->error === null && $this->status >= 200 && $this->status < 300;
    }

    /** This; throws when there is no whole answer. Statuses are the caller's business. */
    public function orFail(): self
    {
        return $this->error === null ? $this : throw $this->error;
    }

    /** The first field of this name. */
    public function field(string $name): ?string
    {
        foreach ($this->fields as [$key, $value]) {
            if (strcasecmp($key, $name) === 0) {
                return $value;
            }
        }
        return null;
    }

    public function body(): string
    {
        rewind($this->body);
        return (string) stream_get_contents($this->body);
    }

    /** @return resource in memory, beyond 2 MiB in a temporary file */
    public function stream()
    {
        return $this->body;
    }
}
