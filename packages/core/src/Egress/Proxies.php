<?php

/**
 * The proxy that libcurl would use for a call: the call's own, or the environment's. If that is not
 * certain, the result is UNCERTAIN, and the call is made directly.
 */

declare(strict_types=1);

namespace Hearth\Egress;

final class Proxies
{
    /** Some proxy that the broker cannot stand in for. */
    public const UNCERTAIN = '?';

    /**
     * Returns the proxy for this target in the broker's format, null for none, or UNCERTAIN.
     *
     * @param ?string $named the call's own proxy; '' means none, null that it is not set
     * @param ?string $except the hosts that the call excludes; null: it is not set
     */
    public static function for(string $scheme, string $host, ?string $named, ?string $except = null): ?string
    {
        $proxy = $named ?? self::environment($scheme);
        if ($proxy === null || $proxy === '') {
            return null;
        }
        $except ??= self::variable('no_proxy') ?? self::variable('NO_PROXY') ?? '';
        $excepted = self::excepts($host, $except);
        if ($excepted === true) {
            return null;
        }
        return $excepted === null ? self::UNCERTAIN : self::understood($proxy);
    }

    /** As in lib/url.c, detect_proxy(): HTTP_PROXY in capitals is not read, because it may come from a
     * client (httpoxy). */
    private static function environment(string $scheme): ?string
    {
        $names = $scheme === 'https' ? ['https_proxy', 'HTTPS_PROXY'] : ['http_proxy'];
        foreach ([...$names, 'all_proxy', 'ALL_PROXY'] as $name) {
            $value = self::variable($name);
            if ($value !== null) {
                return $value;
            }
        }
        return null;
    }

    private static function variable(string $name): ?string
    {
        $value = getenv($name);
        return $value === false || $value === '' ? null : $value;
    }

    /** Returns whether this host is on a list as in no_proxy. Null: the list has networks, which only
     * some versions of libcurl support. */
    public static function excepts(string $host, string $list): ?bool
    {
        $host = strtolower(trim($host, '[]'));
        $isAddress = filter_var($host, FILTER_VALIDATE_IP) !== false;
        foreach (preg_split('/[\s,]+/', strtolower($list), -1, PREG_SPLIT_NO_EMPTY) as $entry) {
            if ($entry === '*') {
                return true;
            }
            if ($isAddress && str_contains($entry, '/')) {
                return null;
            }
            $entry = trim(ltrim($entry, '.'), '[]');
            if ($host === $entry || (!$isAddress && str_ends_with($host, ".{$entry}"))) {
                return true;
            }
        }
        return false;
    }

    private static function understood(string $proxy): string
    {
        if (!str_contains($proxy, '://')) {
            $proxy = "http://{$proxy}";
        }
        $parts = parse_url($proxy);
        if ($parts === false || !isset($parts['host']) || !in_array($parts['scheme'] ?? '', ['http', 'socks5', 'socks5h'], true)) {
            return self::UNCERTAIN;
        }
        // The port that libcurl takes when none is given (CURL_DEFAULT_PROXY_PORT).
        $port = $parts['port'] ?? 1080;
        $credentials = isset($parts['user']) ? "{$parts['user']}:" . ($parts['pass'] ?? '') . '@' : '';
        return "{$parts['scheme']}://{$credentials}{$parts['host']}:{$port}";
    }
}
