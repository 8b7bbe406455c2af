<?php

/**
 * Decides whether a call may go through the broker, and with which options. An option whose meaning there is not certain means that the
 * call is made directly.
 */

declare(strict_types=1);

namespace Hearth\Symfony;

use Hearth\Egress\Broker;
use Hearth\Egress\Control;
use Hearth\Egress\CurlOptions;
use Hearth\Egress\Listener;
use Hearth\Egress\Limit;
use Hearth\Egress\Proxies;
use Hearth\Egress\Target;

/** @internal */
final class Planner
{
    /** Options that, with any value, cause a direct call. */
    private const DIRECT = ['bindto', 'auth_ntlm', 'capath', 'ciphers', 'passphrase', 'capture_peer_cert_chain'];

    /** libcurl's default connect time-out in milliseconds; the option `timeout` limits silence, and curl applies it. */
    private const CONNECT_TIMEOUT = 300_000;

    /** @param list<string> $directHosts */
    public function __construct(private readonly Broker $broker, private readonly array $directHosts, private readonly ?Limit $limit = null)
    {
    }

    /**
     * Returns the listener and the value of Hearth-Control; null: make the call directly.
     *
     * @param array<string, mixed> $options prepared
     * @return ?array{Listener, string}
     */
    public function plan(Target $target, array $options, ?string $proxy): ?array
    {
        $headers = [];
        foreach ($options['headers'] as $line) {
            [$name, $value] = explode(':', $line, 2);
            $headers[strtolower($name)] = trim($value);
        }
        $body = $options['body'] ?? '';
        $again = is_string($body) || (is_resource($body) && stream_get_meta_data($body)['seekable']);
        $version = (string) ($options['http_version'] ?? '');
        if (
            !$again || $target->isOneOf($this->directHosts) || $target->user !== null
            || !in_array($version, ['', '1.1', '2', '2.0'], true)
            || strcasecmp($headers['host'] ?? $target->authority(), $target->authority()) !== 0
            || isset($headers['proxy-authorization']) || isset($headers['upgrade'])
        ) {
            return null;
        }
        foreach (self::DIRECT as $name) {
            if (!empty($options[$name])) {
                return null;
            }
        }
        $listener = $this->broker->listener();
        $except = $options['no_proxy'] ?? $_SERVER['no_proxy'] ?? $_SERVER['NO_PROXY'] ?? '';
        $proxy = Proxies::for($target->scheme, $target->host, $proxy, $except);
        if ($listener === null || $proxy === Proxies::UNCERTAIN) {
            return null;
        }
        $address = $options['resolve'][strtolower($target->host)] ?? null;
        $connectTo = $address === null ? null : (str_contains($address, ':') ? "[{$address}]" : $address) . ":{$target->port}";
        $limit = (float) ($options['max_connect_duration'] ?? 0);
        $limit = $limit > 0 ? (int) ceil(1000 * $limit) : self::CONNECT_TIMEOUT;
        $control = new Control(proxy: $proxy, connectTo: $connectTo, connectTimeout: $limit, timing: true);
        $control = $this->limit?->on($control) ?? $control;
        if ($target->scheme === 'https') {
            $control = self::tls($options, $control);
        }
        $extra = $options['extra']['curl'] ?? [];
        $control = $control === null || !is_array($extra) ? null : CurlOptions::read($extra, $control, $target->place());
        $field = $control === null ? null : $listener->control($control);
        return $field === null ? null : [$listener, $field];
    }

    /** @param array<string, mixed> $options */
    private static function tls(array $options, Control $control): ?Control
    {
        $curl = [
            CURLOPT_SSL_VERIFYPEER => (bool) ($options['verify_peer'] ?? true),
            CURLOPT_SSL_VERIFYHOST => ($options['verify_host'] ?? true) ? 2 : 0,
        ];
        $authorities = $options['cafile'] ?? CurlOptions::authoritiesOfPhp();
        if ($authorities !== null && $curl[CURLOPT_SSL_VERIFYPEER]) {
            $curl[CURLOPT_CAINFO] = $authorities;
        }
        foreach (['local_cert' => CURLOPT_SSLCERT, 'local_pk' => CURLOPT_SSLKEY] as $name => $option) {
            if (isset($options[$name])) {
                $curl[$option] = $options[$name];
            }
        }
        $fingerprints = $options['peer_fingerprint'] ?? null;
        if ($fingerprints !== null && $fingerprints !== []) {
            if (array_keys($fingerprints) !== ['pin-sha256']) {
                return null;
            }
            $curl[CURLOPT_PINNEDPUBLICKEY] = 'sha256//' . implode(';sha256//', $fingerprints['pin-sha256']);
        }
        // In Symfony 0 means no limit.
        $control = $control->withCryptoMethods($options['crypto_method'] ?? 0 ?: null);
        return $control === null ? null : CurlOptions::read($curl, $control, '');
    }
}
