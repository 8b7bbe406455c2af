<?php

/** Follows redirects as CurlHttpClient::createRedirectResolver() and CurlResponse::parseHeaderLine() do. */

declare(strict_types=1);

namespace Hearth\Symfony;

use Symfony\Component\HttpClient\Exception\InvalidArgumentException;
use Symfony\Component\HttpClient\HttpClientTrait;

/** @internal */
final class Redirects
{
    use HttpClientTrait;

    /** Header fields that the next request never has; fields about a body are removed with it. */
    private const DROPPED = ['host'];
    private const DROPPED_WITH_BODY = ['host', 'content-length', 'content-type', 'transfer-encoding'];

    private function __construct()
    {
    }

    /**
     * Returns the proxy that the options or the environment name for this URL.
     *
     * @param array<string, mixed> $options
     */
    public static function proxy(string $url, array $options): ?string
    {
        return self::getProxyUrl($options['proxy'] ?? null, self::parseUrl($url));
    }

    /**
     * Moves the call to where the response redirects it, and returns the options for that request; null: there is nothing to follow.
     *
     * @param array<string, list<string>> $headers
     * @return ?array<string, mixed>
     */
    public static function follow(int $status, array $headers, EgressCall $call): ?array
    {
        $location = $headers['location'][0] ?? null;
        if ($status < 300 || $status >= 400 || $location === null) {
            return null;
        }
        try {
            $next = implode('', self::resolveUrl(self::parseUrl($location), self::parseUrl($call->url)));
        } catch (InvalidArgumentException) {
            return null;
        }
        if ($call->redirects >= ($call->options['max_redirects'] ?? 0)) {
            $call->redirectUrl = $next;
            return null;
        }
        $call->cookies->receive($call->url, $headers['set-cookie'] ?? []);
        $dropped = self::DROPPED;
        if ($status === 303 || ($call->method === 'POST' && in_array($status, [301, 302], true))) {
            $call->method = $call->method === 'HEAD' ? 'HEAD' : 'GET';
            $call->options['body'] = '';
            $dropped = self::DROPPED_WITH_BODY;
        }
        $stays = static fn (string $line): bool => !in_array(strtolower(explode(':', $line, 2)[0]), $dropped, true);
        $call->options['headers'] = array_values(array_filter($call->options['headers'], $stays));
        $call->url = $next;
        ++$call->redirects;
        return self::options($call);
    }

    /**
     * Options for the call's current URL: secrets go to scheme, host and port of the first URL only, as in Symfony 6.4 and later;
     * cookies of redirects go to the hosts that they are for.
     *
     * @return array<string, mixed>
     */
    private static function options(EgressCall $call): array
    {
        $options = $call->options;
        if (!$call->isAtFirstOrigin()) {
            $options['headers'] = array_values(preg_grep('/^(authorization|cookie):/i', $options['headers'], PREG_GREP_INVERT));
        }
        if (null !== $cookies = $call->cookies->for($call->url)) {
            $options['headers'][] = "Cookie: {$cookies}";
        }
        return $options;
    }
}
