<?php

/** The exceptions that Guzzle's own handlers would have thrown, created from the broker's report:
 * see CurlFactory::createRejection() of Guzzle 7 and 8. */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\ClientInterface;
use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\Exception\ConnectTimeoutException;
use GuzzleHttp\Exception\NetworkException;
use GuzzleHttp\Exception\RequestException;
use GuzzleHttp\Exception\TransferException;
use GuzzleHttp\Handler\CurlFactory;
use Hearth\Egress\Verdict;
use Psr\Http\Message\RequestInterface;

/** @internal */
final class Rejection
{
    /** Guzzle 7: ConnectException for these. */
    private const CONNECT_7 = [28, 6, 7, 35, 52];

    /** Guzzle 8: ConnectException and NetworkException. */
    private const CONNECT_8 = [5, 6, 7, 35, 51, 60, 83, 90, 91, 96, 97, 98, 101];
    private const NETWORK_8 = [16, 52, 55, 56, 92, 95];

    /** CURLE_OPERATION_TIMEDOUT */
    private const TIMED_OUT = 28;

    /** @param array<string, mixed> $info of curl_getinfo() */
    public static function of(Verdict $verdict, RequestInterface $request, array $info): TransferException
    {
        $page = ClientInterface::MAJOR_VERSION >= 8 ? 'curl.se' : 'curl.haxx.se';
        $uri = (string) $request->getUri()->withUserInfo('');
        $message = "cURL error {$verdict->errno}: {$verdict->message} (see https://{$page}/libcurl/c/libcurl-errors.html) for {$uri}";
        if (ClientInterface::MAJOR_VERSION >= 8) {
            return match (true) {
                // Timeouts that are not about connecting are curl's own: the broker sets none.
                $verdict->errno === self::TIMED_OUT => new ConnectTimeoutException($message, $request),
                in_array($verdict->errno, self::CONNECT_8, true) => new ConnectException($message, $request),
                in_array($verdict->errno, self::NETWORK_8, true) => new NetworkException($message, $request),
                default => new RequestException($message, $request),
            };
        }
        $context = ['errno' => $verdict->errno, 'error' => $verdict->message] + $info;
        $context[CurlFactory::CURL_VERSION_STR] = curl_version()['version'];
        return in_array($verdict->errno, self::CONNECT_7, true)
            ? new ConnectException($message, $request, null, $context)
            : new RequestException($message, $request, null, null, $context);
    }
}
