<?php

/** A call's options for its connection: the keys of Hearth-Control (docs/internals/egress.md). A null is the broker's default. */

declare(strict_types=1);

namespace Hearth\Egress;

final class Control
{
    /**
     * @param ?string $ca path of a PEM file, as are `cert` and `key`
     * @param ?string $pin as CURLOPT_PINNEDPUBLICKEY
     * @param ?string $tlsMin 1.2 or 1.3, as `tlsMax`
     * @param ?string $http 1.1, or 2: without asking
     * @param ?int $ip 4 or 6
     * @param ?string $interface local address
     * @param ?string $connectTo `host:port`
     * @param ?int $connectTimeout milliseconds
     * @param ?string $scope calls of one name share the limit `connections`
     * @param ?int $connections the most connections to the origin for calls of the scope
     */
    public function __construct(
        public readonly bool $verify = true,
        public readonly ?string $ca = null,
        public readonly ?string $cert = null,
        public readonly ?string $key = null,
        public readonly ?string $pin = null,
        public readonly ?string $tlsMin = null,
        public readonly ?string $tlsMax = null,
        public readonly ?string $http = null,
        public readonly ?int $ip = null,
        public readonly ?string $interface = null,
        public readonly ?string $connectTo = null,
        public readonly ?string $proxy = null,
        public readonly ?int $connectTimeout = null,
        public readonly bool $timing = false,
        public readonly ?string $scope = null,
        public readonly ?int $connections = null,
    ) {
    }

    /**
     * Returns a copy with other values.
     *
     * @param array<string, mixed> $values by parameter of the constructor
     */
    public function with(array $values): self
    {
        return new self(...array_replace(get_object_vars($this), $values));
    }

    /**
     * Returns a copy with bounds on the version of TLS, as bits STREAM_CRYPTO_METHOD_*_CLIENT of stream_socket_enable_crypto()
     * (main/streams/php_stream_transport.h). A minimum below the broker's is no bound. Null: the broker cannot apply them.
     */
    public function withCryptoMethods(?int $least, ?int $most = null): ?self
    {
        $versions = [STREAM_CRYPTO_METHOD_TLSv1_2_CLIENT => '1.2', STREAM_CRYPTO_METHOD_TLSv1_3_CLIENT => '1.3'];
        $old = [STREAM_CRYPTO_METHOD_TLSv1_0_CLIENT, STREAM_CRYPTO_METHOD_TLSv1_1_CLIENT];
        $known = $least === null || isset($versions[$least]) || in_array($least, $old, true);
        if (!$known || ($most !== null && !isset($versions[$most]))) {
            return null;
        }
        return $this->with(['tlsMin' => $versions[$least ?? 0] ?? null, 'tlsMax' => $versions[$most ?? 0] ?? null]);
    }

    /** The dictionary of structured fields; null: some value has characters that it cannot hold. */
    public function field(string $token): ?string
    {
        $members = ['token' => self::string($token)];
        if (!$this->verify) {
            $members['verify'] = '?0';
        }
        $strings = [
            'ca' => $this->ca, 'cert' => $this->cert, 'key' => $this->key, 'pin' => $this->pin, 'interface' => $this->interface,
            'connect-to' => $this->connectTo, 'proxy' => $this->proxy, 'scope' => $this->scope,
        ];
        foreach ($strings as $key => $value) {
            if ($value !== null) {
                $members[$key] = self::string($value);
            }
        }
        // A decimal has a fraction: 2 would be an integer.
        foreach (['tls-min' => $this->tlsMin, 'tls-max' => $this->tlsMax, 'http' => $this->http] as $key => $value) {
            if ($value !== null) {
                $members[$key] = number_format((float) $value, 1, '.', '');
            }
        }
        foreach (['ip' => $this->ip, 'connect-timeout' => $this->connectTimeout, 'connections' => $this->connections] as $key => $value) {
            if ($value !== null) {
                $members[$key] = (string) $value;
            }
        }
        if ($this->timing) {
            $members['timing'] = '?1';
        }
        $field = [];
        foreach ($members as $key => $value) {
            if ($value === null) {
                return null;
            }
            $field[] = "{$key}={$value}";
        }
        return implode(', ', $field);
    }

    /** RFC 8941, 3.3.3: printable ASCII only. */
    private static function string(string $value): ?string
    {
        return preg_match('/^[\x20-\x7e]*$/D', $value) === 1 ? '"' . addcslashes($value, '"\\') . '"' : null;
    }
}
