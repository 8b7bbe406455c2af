<?php

/**
 * Which proxy a call would take by itself: the one it names, else the environment's, as libcurl reads it.
 * What cannot be told for certain is told as UNCERTAIN, and such a call is made directly.
 */

declare(strict_types=1);

namespace Hearth\Egress;

final class Proxies
{
    /** Some proxy that the broker cannot stand in for. */
    public const UNCERTAIN = '?';

    /**
     * The proxy for this target as the broker reads it, null for none, or UNCERTAIN.
     *
     * @param ?string $named what the call itself says; '' means none, null that it says nothing
     * @param ?string $except the hosts that the call itself wants without; null: it says nothing
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

    /** As in lib/url.c, detect_proxy(): HTTP_PROXY in capitals is not read, for it may come from a client (httpoxy). */
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

    /** Is this host on a list as in no_proxy? Null: the list holds networks, which libcurl understands by its version. */
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
