<?php

/**
 * Decides whether a call may go through the broker, and with which options. An option whose meaning there is not certain means that the
 * call is made directly.
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
    /** Guzzle's default connect time-out in seconds, by major version: CurlFactory, CURLOPT_CONNECTTIMEOUT(_MS). */
    private const CONNECT_TIMEOUT = [7 => 150, 8 => 60];

    /** libcurl's connect time-out in seconds for the value 0. */
    private const NO_CONNECT_TIMEOUT = 300;

    /** @param list<string> $directHosts names that are never called through the broker; `*.example.com` for all below one */
    public function __construct(private readonly Broker $broker, private readonly array $directHosts = [])
    {
    }

    /**
     * Returns the route through the broker; null: make the call directly.
     *
     * @param array<string, mixed> $options
     */
    public function plan(RequestInterface $request, array $options): ?Route
    {
        // `debug` prints the connection that curl makes, and every field of the request.
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
        // A body that can be read only once could not be sent after a decline. `Expect` does not help: libcurl waits a second for the 100, no more.
        if (!$request->getBody()->isSeekable() && $request->getBody()->getSize() !== 0) {
            return null;
        }
        $listener = $this->broker->listener();
        $control = $listener === null ? null : $this->control($target, $options);
        if ($control === null) {
            return null;
        }
        $http2 = $request->getProtocolVersion() !== '1.1';
        $field = $listener->control($control->with(['timing' => isset($options['on_stats']) || $http2]));
        return $field === null ? null : new Route($listener, $target, $field, $http2);
    }

    /** @param array<string, mixed> $options */
    private function control(Target $target, array $options): ?Control
    {
        $proxy = self::proxy($target, $options);
        $ip = ['v4' => 4, 'v6' => 6, '' => null][$options['force_ip_resolve'] ?? ''] ?? null;
        // Required multiplexing (Guzzle 8) concerns a connection that Guzzle does not make here.
        if ($proxy === Proxies::UNCERTAIN || str_contains((string) ($options['multiplex'] ?? ''), 'require')) {
            return null;
        }
        $control = new Control(ip: $ip, proxy: $proxy, connectTimeout: (int) ceil(1000 * self::connectTimeout($options)));
        if ($target->scheme === 'https') {
            $control = TlsOptions::apply($options, $control);
        }
        $curl = $options['curl'] ?? [];
        $curl = is_array($curl) ? array_diff_key($curl, ['body_as_string' => true]) : null;
        return $curl === null || $control === null ? null : CurlOptions::read($curl, $control, $target->place());
    }

    /**
     * Returns the proxy as CurlFactory::applyHandlerOptions() chooses it.
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
     * The connect time-out in seconds.
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
