<?php

/**
 * Laravel's request with Hearth's handler: innermost, below fakes, recorded requests, middleware and events. A handler or client that
 * the application has set is not changed.
 */

declare(strict_types=1);

namespace Hearth\Laravel;

use GuzzleHttp\Handler\Proxy;
use GuzzleHttp\Utils;
use Hearth\Guzzle\Handler;
use Illuminate\Http\Client\PendingRequest as LaravelsPendingRequest;

class PendingRequest extends LaravelsPendingRequest
{
    private Handler $hearth;
    private bool $handled = false;

    public static function inPlaceOf(LaravelsPendingRequest $other, Handler $handler): self
    {
        $request = new self();
        foreach (get_object_vars($other) as $name => $value) {
            $request->{$name} = $value;
        }
        $request->hearth = $handler;
        return $request;
    }

    /** Http::pool() sets Guzzle's own handler here, one for all its requests: ours is one for all anyway. */
    public function setHandler($handler)
    {
        $scope = !$handler instanceof \Closure ? null : (new \ReflectionFunction($handler))->getClosureScopeClass()?->getName();
        $guzzles = in_array($scope, [Proxy::class, Utils::class], true);
        $this->handled = !$guzzles && $handler !== null;
        return parent::setHandler($handler);
    }

    public function pushHandlers($handlerStack)
    {
        $stack = parent::pushHandlers($handlerStack);
        if (!$this->handled) {
            $stack->push(fn (callable $next): callable => $this->hearth, 'hearth');
        }
        return $stack;
    }
}
