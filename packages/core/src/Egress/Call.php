<?php

/** One HTTP call with its options. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Call
{
    /** @var list<array{string, string}> */
    public readonly array $fields;

    /**
     * @param iterable<int|string, string|list<string>|array{string, string}> $fields by name, or as pairs of name and value
     * @param string|resource $body a stream is sent from its current position
     * @param array<int, mixed> $curl options for curl_setopt_array(): time-outs, certificates, proxies. With some of them a call is
     * made directly (CurlOptions). Options that this package itself sets are overwritten
     */
    public function __construct(
        public readonly string $url,
        public readonly string $method = 'GET',
        iterable $fields = [],
        public readonly mixed $body = '',
        public readonly array $curl = [],
    ) {
        $pairs = [];
        foreach ($fields as $name => $values) {
            if (is_int($name)) {
                $pairs[] = [(string) $values[0], (string) $values[1]];
                continue;
            }
            foreach ((array) $values as $value) {
                $pairs[] = [$name, (string) $value];
            }
        }
        foreach ($pairs as [$name, $value]) {
            if (preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', $name) !== 1 || preg_match('/[\x00\r\n]/', $value) === 1) {
                throw new InvalidCall("The field {$name} cannot be sent: a name is a token, and a value is one line.");
            }
        }
        if (preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/D', $method) !== 1) {
            throw new InvalidCall('A method is a token.');
        }
        $this->fields = array_values(array_filter($pairs, static fn (array $pair): bool => !Listener::reserves($pair[0])));
    }

    public function has(string $field): bool
    {
        foreach ($this->fields as [$name]) {
            if (strcasecmp($name, $field) === 0) {
                return true;
            }
        }
        return false;
    }
}
