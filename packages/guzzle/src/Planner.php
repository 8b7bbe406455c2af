<?php

/**
 * Decides whether a call may go through the broker, and what it wants there. Anything that is not known for certain to mean the same on
 * that way is a reason to go directly.
 */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\ClientInterface;
use Hearth\Egress\Broker;
use Hearth\Egress\Control;
use Hearth\Egress\CurlOptions;
use Hearth\Egress\Proxies;
use Hearth\Egress\Target;
use Psr\Http\Message\RequestInterface;

/** @internal */
final class Planner
{
    /** Seconds that Guzzle gives a connection by default: CurlFactory, CURLOPT_CONNECTTIMEOUT(_MS). */
    private const CONNECT_TIMEOUT = [7 => 150, 8 => 60];

    /** Seconds that libcurl gives it when it is told 0. */
    private const NO_CONNECT_TIMEOUT = 300;

    /** @param list<string> $directHosts names that are never called through the broker; `*.example.com` for all below one */
    public function __construct(private readonly Broker $broker, private readonly array $directHosts = [])
    {
    }

    /**
     * Null: go directly.
     *
     * @param array<string, mixed> $options
     */
    public function plan(RequestInterface $request, array $options): ?Passage
    {
        // What `debug` prints is the connection that curl makes, and every field of the request.
        if (($options['hearth'] ?? true) === false || !empty($options['debug'])) {
            return null;
        }
        $target = Target::of((string) $request->getUri()->withFragment(''));
        $version = in_array($request->getProtocolVersion(), ['1.1', '2', '2.0'], true);
        if ($target === null || !$version || $target->isOneOf($this->directHosts)) {
            return null;
        }
        $host = $request->getHeaderLine('Host');
        $other = $host !== '' && strcasecmp($host, $target->authority()) !== 0;
        if ($other || $request->hasHeader('Proxy-Authorization') || $request->hasHeader('Upgrade')) {
            return null;
        }
        // What can be read once only could not be sent after a decline. `Expect` is no help: libcurl waits a second for the 100, no more.
        if (!$request->getBody()->isSeekable() && $request->getBody()->getSize() !== 0) {
            return null;
        }
        $door = $this->broker->door();
        $control = $door === null ? null : $this->control($target, $options);
        if ($control === null) {
            return null;
        }
        $http2 = $request->getProtocolVersion() !== '1.1';
        $field = $door->control($control->with(['timing' => isset($options['on_stats']) || $http2]));
        return $field === null ? null : new Passage($door, $target, $field, $http2);
    }

    /** @param array<string, mixed> $options */
    private function control(Target $target, array $options): ?Control
    {
        $proxy = self::proxy($target, $options);
        $ip = ['v4' => 4, 'v6' => 6, '' => null][$options['force_ip_resolve'] ?? ''] ?? null;
        // Required multiplexing (Guzzle 8) is a promise about a connection that Guzzle does not make here.
        if ($proxy === Proxies::UNCERTAIN || str_contains((string) ($options['multiplex'] ?? ''), 'require')) {
            return null;
        }
        $control = new Control(ip: $ip, proxy: $proxy, connectTimeout: (int) ceil(1000 * self::connectTimeout($options)));
        if ($target->scheme === 'https') {
            $control = self::tls($options, $control);
        }
        $curl = $options['curl'] ?? [];
        if (!is_array($curl) || $control === null) {
            return null;
        }
        unset($curl['body_as_string']);
        return CurlOptions::read($curl, $control, $target->place());
    }

    /**
     * As CurlFactory::applyHandlerOptions() does it.
     *
     * @param array<string, mixed> $options
     */
    private static function proxy(Target $target, array $options): ?string
    {
        $named = $options['proxy'] ?? null;
        if (is_array($named)) {
            $exceptions = $named['no'] ?? '';
            $excepted = Proxies::excepts($target->host, is_array($exceptions) ? implode(',', $exceptions) : (string) $exceptions);
            if ($excepted === null) {
                return Proxies::UNCERTAIN;
            }
            $named = $excepted ? (ClientInterface::MAJOR_VERSION >= 8 ? '' : null) : ($named[$target->scheme] ?? null);
        }
        return is_string($named) || $named === null ? Proxies::for($target->scheme, $target->host, $named) : Proxies::UNCERTAIN;
    }

    /**
     * A file that is missing, and a value that makes no sense, are left to Guzzle: it says so.
     *
     * @param array<string, mixed> $options
     */
    private static function tls(array $options, Control $control): ?Control
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

    /**
     * Seconds.
     *
     * @param array<string, mixed> $options
     */
    private static function connectTimeout(array $options): float
    {
        $seconds = $options['connect_timeout'] ?? null;
        if ($seconds === null) {
            return self::CONNECT_TIMEOUT[min(8, ClientInterface::MAJOR_VERSION)];
        }
        return is_numeric($seconds) && $seconds > 0 ? (float) $seconds : self::NO_CONNECT_TIMEOUT;
    }
}
