<?php

/** The target of a call, from its URL: the parts that the broker gets, and the parts that it does
 * not. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Target
{
    private function __construct(
        public readonly string $scheme,
        /** The host as in the URL: an IPv6 address has brackets. */
        public readonly string $host,
        public readonly int $port,
        /** Path and query. */
        public readonly string $path,
        public readonly ?string $user,
        public readonly ?string $password,
    ) {
    }

    /** Null: the broker has nothing to do with such a URL, or might read it otherwise than libcurl. */
    public static function of(string $url): ?self
    {
        // Only characters that are valid in a request line. URL parsers disagree about a backslash.
        if (preg_match('/^[\x21-\x5b\x5d-\x7e]+$/D', $url) !== 1) {
            return null;
        }
        $parts = parse_url($url);
        if ($parts === false || !isset($parts['scheme'], $parts['host'])) {
            return null;
        }
        $scheme = strtolower($parts['scheme']);
        $name = preg_match('/^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)$/D', $parts['host']) === 1;
        if (($scheme !== 'http' && $scheme !== 'https') || !$name || ($parts['port'] ?? 1) === 0) {
            return null;
        }
        $path = $parts['path'] ?? '/';
        // libcurl takes `.` and `..` out of a path.
        if (preg_match('#/\.{1,2}(/|$)#D', $path) === 1) {
            return null;
        }
        return new self(
            $scheme,
            $parts['host'],
            $parts['port'] ?? ($scheme === 'https' ? 443 : 80),
            $path . (isset($parts['query']) ? "?{$parts['query']}" : ''),
            isset($parts['user']) ? rawurldecode($parts['user']) : null,
            isset($parts['pass']) ? rawurldecode($parts['pass']) : null,
        );
    }

    /**
     * Returns whether the host matches one of these patterns. `*.example.com` means all hosts below
     * `example.com`.
     *
     * @param list<string> $patterns
     */
    public function isOneOf(array $patterns): bool
    {
        $host = strtolower($this->host);
        foreach ($patterns as $pattern) {
            $pattern = strtolower($pattern);
            if ($pattern === $host || (str_starts_with($pattern, '*.') && str_ends_with($host, substr($pattern, 1)))) {
                return true;
            }
        }
        return false;
    }

    /** The value of the field Host: `host:port`, without the scheme's own port. */
    public function authority(): string
    {
        return $this->port === ($this->scheme === 'https' ? 443 : 80) ? $this->host : "{$this->host}:{$this->port}";
    }

    /** `host:port` always. */
    public function place(): string
    {
        return "{$this->host}:{$this->port}";
    }

    public function origin(): string
    {
        return "{$this->scheme}://{$this->authority()}";
    }

    /** Returns the target in absolute form, for the request line. */
    public function absolute(): string
    {
        return $this->origin() . $this->path;
    }
}
