<?php

/**
 * Guzzle's curl handles, led through the broker's listener where the handler has found that they may go there: options set on the finished
 * handle, for Guzzle 8 refuses them in the option `curl`. Promises: a released handle keeps connections and nothing else of its call.
 */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\Exception\GuzzleException;
use GuzzleHttp\Handler\CurlFactoryInterface;
use GuzzleHttp\Handler\EasyHandle;
use Hearth\Egress\Listener;
use Psr\Http\Message\RequestInterface;

/** @internal */
final class Factory implements CurlFactoryInterface
{
    /** @param ?\CurlShareHandle|\CurlSharePersistentHandle $share connections of this process, for calls that go directly */
    public function __construct(private readonly CurlFactoryInterface $inner, private readonly ?object $share = null)
    {
    }

    public function create(RequestInterface $request, array $options): EasyHandle
    {
        $route = $options[Route::OPTION] ?? null;
        if (!$route instanceof Route) {
            $easy = $this->inner->create($request, $options);
            // Behind a proxy, Guzzle 8 itself decides which calls may share a connection.
            $proxied = !empty($options['proxy']) || (property_exists($easy, 'effectiveProxy') && $easy->effectiveProxy !== null);
            if ($this->share !== null && !$proxied && !isset($options['curl'][CURLOPT_SHARE])) {
                curl_setopt($easy->handle, CURLOPT_SHARE, $this->share);
            }
            return $easy;
        }
        try {
            $told = $request->withHeader(Listener::CONTROL, $route->control);
            foreach (Listener::trace() as $name => $value) {
                $told = $told->withHeader($name, $value);
            }
            $easy = $this->inner->create($told, $options);
        } catch (GuzzleException) {
            // The exception shows the request: once more, for one without the token.
            return $this->inner->create($request, $options);
        }
        // Exceptions and statistics show the request: not with the token in it.
        foreach ([Listener::CONTROL, Listener::PARENT, Listener::STATE] as $name) {
            $easy->request = $easy->request->withoutHeader($name);
        }
        $route->enter($easy);
        return $easy;
    }

    public function release(EasyHandle $easy): void
    {
        $route = $easy->options[Route::OPTION] ?? null;
        if ($route instanceof Route) {
            $route->leave($easy);
        }
        // curl_reset() leaves cookies where they are, and the next call may be another user's.
        curl_setopt($easy->handle, CURLOPT_COOKIELIST, 'ALL');
        $this->inner->release($easy);
    }
}
