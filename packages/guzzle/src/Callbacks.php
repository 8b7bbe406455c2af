<?php

/** Wraps the caller's callbacks for a call through the broker: they receive the origin's response and statistics, never the broker's. */

declare(strict_types=1);

namespace Hearth\Guzzle;

use GuzzleHttp\TransferStats;
use Psr\Http\Message\ResponseInterface;

/** @internal */
final class Callbacks
{
    private function __construct()
    {
    }

    /**
     * Returns the options with wrapped callbacks and the route.
     *
     * @param array<string, mixed> $options
     * @return array<string, mixed>
     */
    public static function wrap(array $options, Route $route): array
    {
        $options[Route::OPTION] = $route;
        $onHeaders = $options['on_headers'] ?? null;
        // Needed without a callback too: it reads the broker's fields. An invalid one is left for Guzzle's error.
        if ($onHeaders === null || is_callable($onHeaders)) {
            $options['on_headers'] = self::onHeaders($onHeaders, $route);
        }
        $onStats = $options['on_stats'] ?? null;
        if (is_callable($onStats)) {
            $options['on_stats'] = static function (TransferStats $stats) use ($onStats, $route): void {
                $route->stats = $stats;
                if (!$route->void() && !$route->refused($stats)) {
                    $onStats($route->amend($stats, $stats->getResponse(), $stats->getHandlerErrorData()));
                }
            };
        }
        $onTrailers = $options['on_trailers'] ?? null;
        if (is_callable($onTrailers)) {
            $options['on_trailers'] = static function (mixed ...$arguments) use ($onTrailers, $route): mixed {
                return $route->void() ? null : $onTrailers(...$arguments);
            };
        }
        return $options;
    }

    private static function onHeaders(?callable $callback, Route $route): \Closure
    {
        return static function (ResponseInterface $response, mixed ...$more) use ($callback, $route): void {
            $response = $route->receive($response);
            if ($response === null) {
                return;
            }
            if ($route->easy !== null) {
                $route->easy->response = $response;
            }
            if ($callback !== null) {
                $callback($response, ...$more);
            }
        };
    }
}
