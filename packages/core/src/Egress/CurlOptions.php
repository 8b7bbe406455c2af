<?php

/**
 * The curl options with which a call may go through the broker, and their meaning there. A call with any other option, or with an
 * unsupported value, is made directly by libcurl.
 */

declare(strict_types=1);

namespace Hearth\Egress;

final class CurlOptions
{
    /** Options that work on the way to the broker as on the way to the origin, by name: a libcurl may lack some. */
    private const SAME = [
        'ACCEPT_ENCODING', 'ENCODING', 'BUFFERSIZE', 'UPLOAD_BUFFERSIZE', 'COOKIE', 'CUSTOMREQUEST', 'DNS_CACHE_TIMEOUT',
        'DNS_SHUFFLE_ADDRESSES', 'EXPECT_100_TIMEOUT_MS', 'FAILONERROR', 'HAPPY_EYEBALLS_TIMEOUT_MS', 'HTTPGET', 'HTTP_CONTENT_DECODING',
        'LOW_SPEED_LIMIT', 'LOW_SPEED_TIME', 'MAXFILESIZE', 'MAXFILESIZE_LARGE', 'MAX_RECV_SPEED_LARGE', 'MAX_SEND_SPEED_LARGE', 'NOBODY',
        'NOPROGRESS', 'NOSIGNAL', 'PIPEWAIT', 'POST', 'POSTFIELDS', 'PRIVATE', 'PROGRESSFUNCTION', 'PROTOCOLS', 'PROTOCOLS_STR', 'RANGE',
        'READFUNCTION', 'REFERER', 'SSL_SESSIONID_CACHE', 'TCP_FASTOPEN', 'TCP_KEEPALIVE', 'TCP_KEEPIDLE', 'TCP_KEEPINTVL', 'TCP_NODELAY',
        'TIMEOUT', 'TIMEOUT_MS', 'USERAGENT', 'XFERINFOFUNCTION',
    ];

    /** @var ?array<int, true> the values of SAME */
    private static ?array $same = null;

    /**
     * Adds the options to those of the connection; null: the call must be made directly.
     *
     * @param array<int|string, mixed> $options as for curl_setopt_array()
     * @param string $authority of the target: `host:port`, with the port even if it is the scheme's
     */
    public static function read(array $options, Control $control, string $authority): ?Control
    {
        $same = self::$same ??= self::values();
        $own = array_diff_key($options, $same);
        if ($own === []) {
            return $control;
        }
        $values = [];
        foreach ($own as $option => $value) {
            $read = match ($option) {
                CURLOPT_CONNECTTIMEOUT => ['connectTimeout' => $value > 0 ? 1000 * (int) $value : null],
                CURLOPT_CONNECTTIMEOUT_MS => ['connectTimeout' => $value > 0 ? (int) $value : null],
                CURLOPT_IPRESOLVE => self::family($value),
                CURLOPT_HTTP_VERSION => self::version($value),
                CURLOPT_SSLVERSION => self::tls((int) $value),
                CURLOPT_SSL_VERIFYPEER, CURLOPT_SSL_VERIFYHOST => self::verification($options),
                CURLOPT_CAINFO => self::file('ca', $value),
                CURLOPT_SSLCERT => self::file('cert', $value, isset($options[CURLOPT_SSLKEY]) ? [] : ['key']),
                CURLOPT_SSLKEY => isset($options[CURLOPT_SSLCERT]) ? self::file('key', $value) : null,
                CURLOPT_SSLCERTTYPE, CURLOPT_SSLKEYTYPE => strcasecmp((string) $value, 'PEM') === 0 ? [] : null,
                CURLOPT_PINNEDPUBLICKEY => is_string($value) && str_starts_with($value, 'sha256//') ? ['pin' => $value] : null,
                CURLOPT_RESOLVE => self::resolve((array) $value, $authority),
                CURLOPT_CONNECT_TO => self::connectTo((array) $value, $authority),
                default => null,
            };
            if ($read === null) {
                return null;
            }
            $values += $read;
        }
        return $values === [] ? $control : $control->with($values);
    }

    /** The authorities that PHP gives each curl handle: as in ext/curl/interface.c, curl_init(). */
    public static function authoritiesOfPhp(): ?string
    {
        foreach (['openssl.cafile', 'curl.cainfo'] as $setting) {
            $file = ini_get($setting);
            if (is_string($file) && $file !== '') {
                return $file;
            }
        }
        return null;
    }

    /** @return array<int, true> */
    private static function values(): array
    {
        $values = [];
        foreach (self::SAME as $name) {
            if (defined("CURLOPT_{$name}")) {
                $values[constant("CURLOPT_{$name}")] = true;
            }
        }
        return $values;
    }

    /** @return ?array<string, ?int> */
    private static function family(mixed $value): ?array
    {
        return match ($value) {
            CURL_IPRESOLVE_WHATEVER => ['ip' => null],
            CURL_IPRESOLVE_V4 => ['ip' => 4],
            CURL_IPRESOLVE_V6 => ['ip' => 6],
            default => null,
        };
    }

    /** @return ?array<string, string> */
    private static function version(mixed $value): ?array
    {
        return match ($value) {
            CURL_HTTP_VERSION_NONE, CURL_HTTP_VERSION_1_1, CURL_HTTP_VERSION_2_0, CURL_HTTP_VERSION_2TLS => [],
            CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE => ['http' => '2'],
            default => null,
        };
    }

    /** @return ?array<string, ?string> */
    private static function tls(int $value): ?array
    {
        $least = ['tlsMin' => match ($value & 0xffff) {
            CURL_SSLVERSION_TLSv1_3 => '1.3',
            CURL_SSLVERSION_TLSv1_2 => '1.2',
            default => null,
        }];
        return match ($value & ~0xffff) {
            0, CURL_SSLVERSION_MAX_DEFAULT, CURL_SSLVERSION_MAX_TLSv1_3 => $least,
            CURL_SSLVERSION_MAX_TLSv1_2 => $least + ['tlsMax' => '1.2'],
            default => null,
        };
    }

    /**
     * All or nothing: the broker verifies the name with the certificate.
     *
     * @param array<int|string, mixed> $options
     * @return ?array<string, bool>
     */
    private static function verification(array $options): ?array
    {
        $peer = (bool) ($options[CURLOPT_SSL_VERIFYPEER] ?? true);
        $host = (int) ($options[CURLOPT_SSL_VERIFYHOST] ?? 2) !== 0;
        return $peer === $host ? ['verify' => $peer] : null;
    }

    /**
     * @param list<string> $also keys with the same value
     * @return ?array<string, string>
     */
    private static function file(string $key, mixed $path, array $also = []): ?array
    {
        $file = is_string($path) && is_file($path) ? realpath($path) : false;
        if ($file === false || preg_match('/\.(der|p12|pfx)$/iD', $file) === 1) {
            return null;
        }
        return [$key => $file] + array_fill_keys($also, $file);
    }

    /**
     * `HOST:PORT:ADDRESS[,ADDRESS]`.
     *
     * @param array<mixed> $entries
     * @return ?array<string, string>
     */
    private static function resolve(array $entries, string $authority): ?array
    {
        foreach ($entries as $entry) {
            if (!is_string($entry) || preg_match('/^\+?([^:]+:[0-9]+):(\[[^\]]+\]|[0-9.]+|[0-9a-fA-F:]+)$/D', $entry, $found) !== 1) {
                return null;
            }
            if (strcasecmp($found[1], $authority) === 0) {
                $address = trim($found[2], '[]');
                $port = substr($authority, (int) strrpos($authority, ':') + 1);
                return ['connectTo' => (str_contains($address, ':') ? "[{$address}]" : $address) . ":{$port}"];
            }
        }
        return [];
    }

    /**
     * `HOST:PORT:CONNECT-TO-HOST:CONNECT-TO-PORT`, empty parts: any, or the same.
     *
     * @param array<mixed> $entries
     * @return ?array<string, string>
     */
    private static function connectTo(array $entries, string $authority): ?array
    {
        $at = (int) strrpos($authority, ':');
        [$host, $port] = [substr($authority, 0, $at), substr($authority, $at + 1)];
        foreach ($entries as $entry) {
            $name = '(\[[^\]]*\]|[^:\[\]]*)';
            if (!is_string($entry) || preg_match("/^{$name}:([0-9]*):{$name}:([0-9]*)$/D", $entry, $found) !== 1) {
                return null;
            }
            if (($found[1] === '' || strcasecmp($found[1], $host) === 0) && ($found[2] === '' || $found[2] === $port)) {
                return ['connectTo' => ($found[3] === '' ? $host : $found[3]) . ':' . ($found[4] === '' ? $port : $found[4])];
            }
        }
        return [];
    }
}
