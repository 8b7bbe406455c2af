<?php

/** The options of a contract call, which each client translates into its own. */

declare(strict_types=1);

namespace Hearth\Tests;

final class Wish
{
    /**
     * @param list<array{string, string}> $fields
     * @param string|resource $body
     * @param ?float $timeout seconds, for the whole call
     * @param ?string $ca path of authorities
     * @param ?array{string, string} $cert paths of certificate and key
     */
    public function __construct(
        public readonly string $method = 'GET',
        public readonly array $fields = [],
        public readonly mixed $body = '',
        public readonly ?float $timeout = 20,
        public readonly bool $verify = true,
        public readonly ?string $ca = null,
        public readonly ?array $cert = null,
        public readonly int $redirects = 0,
        public readonly ?string $proxy = null,
        /** `host => address` instead of asking. */
        public readonly ?array $resolve = null,
    ) {
    }
}
