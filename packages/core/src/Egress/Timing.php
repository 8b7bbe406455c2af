<?php

/** The times of a call, from the broker's field Hearth-Timing. curl itself measures only the way to the broker's
 * socket. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Timing
{
    public const FIELD = 'Hearth-Timing';

    /**
     * @param int $dns microseconds from the start of the call, like `connect`, `tls` and `firstByte`; 0: not needed
     * @param bool $reused over a connection that had carried a call before
     * @param string $protocol "1.1" or "2", to the origin
     * @param string $address `address:port` of the origin
     */
    private function __construct(
        public readonly int $dns,
        public readonly int $connect,
        public readonly int $tls,
        public readonly int $firstByte,
        public readonly bool $reused,
        public readonly string $protocol,
        public readonly string $address,
    ) {
    }

    /** Null: this is no such field. */
    public static function read(string $value): ?self
    {
        $read = StructuredField::dictionary($value);
        return $read === [] ? null : new self(
            (int) ($read['dns'] ?? 0),
            (int) ($read['connect'] ?? 0),
            (int) ($read['tls'] ?? 0),
            (int) ($read['first-byte'] ?? 0),
            (bool) ($read['reused'] ?? false),
            (string) ($read['protocol'] ?? ''),
            (string) ($read['address'] ?? ''),
        );
    }

    /** The address alone, without brackets. */
    public function ip(): string
    {
        return trim((string) preg_replace('/:[0-9]+$/D', '', $this->address), '[]');
    }

    public function port(): int
    {
        return preg_match('/:([0-9]+)$/D', $this->address, $found) === 1 ? (int) $found[1] : 0;
    }

    /**
     * Returns curl_getinfo()'s values with those of the way to the origin instead of the way to the socket.
     *
     * @param array<string, mixed> $info
     * @return array<string, mixed>
     */
    public static function amend(array $info, string $url, ?self $timing): array
    {
        $info['url'] = $url;
        $info['scheme'] = strtoupper((string) parse_url($url, PHP_URL_SCHEME));
        foreach (['primary_ip' => '', 'primary_port' => 0, 'local_ip' => '', 'local_port' => 0] as $key => $unknown) {
            if (array_key_exists($key, $info)) {
                $info[$key] = $unknown;
            }
        }
        if ($timing === null) {
            return $info;
        }
        $seconds = [
            'namelookup_time' => $timing->dns, 'connect_time' => $timing->connect, 'appconnect_time' => $timing->tls,
            'pretransfer_time' => max($timing->connect, $timing->tls), 'starttransfer_time' => $timing->firstByte,
        ];
        foreach ($seconds as $key => $microseconds) {
            $info[$key] = $microseconds / 1e6;
            if (isset($info["{$key}_us"])) {
                $info["{$key}_us"] = $microseconds;
            }
        }
        $info['primary_ip'] = $timing->ip();
        $info['primary_port'] = $timing->port();
        $info['http_version'] = $timing->protocol === '2' ? CURL_HTTP_VERSION_2_0 : CURL_HTTP_VERSION_1_1;
        return $info;
    }
}
