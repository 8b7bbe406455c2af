<?php

/** The result of a contract call, in a form common to all clients. */

declare(strict_types=1);

namespace Hearth\Tests;

final class Reply
{
    /**
     * @param array<string, list<string>> $fields by the client's names
     * @param ?string $error class and code of the exception, when there is no answer
     */
    public function __construct(
        public readonly int $status = 0,
        public readonly array $fields = [],
        public readonly string $body = '',
        public readonly ?string $error = null,
        public readonly string $message = '',
    ) {
    }

    /** @return list<string> */
    public function field(string $name): array
    {
        foreach ($this->fields as $key => $values) {
            if (strcasecmp((string) $key, $name) === 0) {
                return array_values((array) $values);
            }
        }
        return [];
    }

    /** The request that the origin received, from its `/headers`. */
    public function seen(): array
    {
        return json_decode($this->body, true, 512, JSON_THROW_ON_ERROR);
    }

    /**
     * Values of a field that the origin received.
     *
     * @return list<string>
     */
    public function sent(string $name): array
    {
        $values = [];
        foreach ($this->seen()['fields'] as [$key, $value]) {
            if (strcasecmp($key, $name) === 0) {
                $values[] = $value;
            }
        }
        return $values;
    }
}
