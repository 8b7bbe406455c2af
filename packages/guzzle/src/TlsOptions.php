<?php

/** Translates Guzzle's options for TLS (`verify`, `cert`, `ssl_key`, `crypto_method`) into those of the broker. */

declare(strict_types=1);

namespace Hearth\Guzzle;

use Hearth\Egress\Control;
use Hearth\Egress\CurlOptions;

/** @internal */
final class TlsOptions
{
    private function __construct()
    {
    }

    /**
     * Adds the TLS options to the control field; null: make the call directly. A missing file or an invalid value is left for Guzzle to report.
     *
     * @param array<string, mixed> $options
     */
    public static function apply(array $options, Control $control): ?Control
    {
        $curl = [];
        $verify = $options['verify'] ?? true;
        if ($verify === false) {
            $control = $control->with(['verify' => false]);
        } else {
            $authorities = is_string($verify) ? $verify : CurlOptions::authoritiesOfPhp();
            if ($authorities !== null) {
                $curl[CURLOPT_CAINFO] = $authorities;
            }
        }
        $files = [
            'cert' => CURLOPT_SSLCERT, 'ssl_key' => CURLOPT_SSLKEY,
            'cert_type' => CURLOPT_SSLCERTTYPE, 'ssl_key_type' => CURLOPT_SSLKEYTYPE,
        ];
        foreach ($files as $name => $option) {
            $value = $options[$name] ?? null;
            // With a passphrase.
            if (is_array($value) && isset($value[1])) {
                return null;
            }
            if ($value !== null) {
                $curl[$option] = is_array($value) ? $value[0] ?? null : $value;
            }
        }
        $control = $control->withCryptoMethods($options['crypto_method'] ?? null, $options['crypto_method_max'] ?? null);
        return $control === null ? null : CurlOptions::read($curl, $control, '');
    }
}
