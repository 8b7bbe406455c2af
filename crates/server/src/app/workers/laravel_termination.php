<?php

/*
 * What Laravel does behind an answer, known before it is done.
 *
 * Promises
 * - isEmpty() is true only if Kernel::terminate() would call nothing of the application: no terminate() of a middleware, no callback, no
 *   listener, no deferred function.
 * - Kernel::terminate() makes every middleware again to look for that method. Here it is looked for once for each list of middleware.
 */

declare(strict_types=1);

namespace Hearth\Worker;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Application as FrameworkApplication;
use Illuminate\Foundation\Events\Terminating;
use Illuminate\Foundation\Http\Kernel as FrameworkKernel;
use Illuminate\Foundation\Http\Middleware\InvokeDeferredCallbacks;
use Illuminate\Http\Request;

/** @internal */
final class LaravelTermination
{
    /** Releases whose Kernel::terminate() was read. */
    private const KNOWN_BELOW = '13';

    /** An application may make routes without end. */
    private const MAX_KNOWN = 1000;

    private const DEFERRED = 'Illuminate\\Support\\Defer\\DeferredCallbackCollection';

    /** Whether an empty termination may be left out: in a release that is not known it may do more. */
    public readonly bool $mayBeLeftOut;

    private bool $isFrameworks;

    /** @var array{array<mixed>, array<mixed>} aliases and groups of middleware at boot */
    private array $named;

    /** @var array<string, array{array<mixed>, array<string, array{mixed, string}>|false}> by the URI of a route, '' for none: the lists of middleware, and
     *     what these are: binding and class of each; false: one terminates */
    private array $known = [];

    private \Closure $ofApplication;

    private \Closure $ofKernel;

    public function __construct(private Application $app, private Kernel $kernel)
    {
        $this->mayBeLeftOut = version_compare($app->version(), self::KNOWN_BELOW, '<');
        $this->isFrameworks = $this->owns($kernel, FrameworkKernel::class, ['terminate', 'terminateMiddleware', 'gatherRouteMiddleware'])
            && $this->owns($app, FrameworkApplication::class, ['terminate']);
        if (!$this->isFrameworks) {
            return;
        }
        $router = $app->make('router');
        $this->named = [$router->getMiddleware(), $router->getMiddlewareGroups()];
        $this->ofApplication = (fn (): array => [$this->terminatingCallbacks, $this->bindings, $this->instances, $this->extenders])
            ->bindTo($app, FrameworkApplication::class);
        $this->ofKernel = (fn (): array => [$this->middleware, $this->requestLifecycleDurationHandlers ?? []])
            ->bindTo($kernel, FrameworkKernel::class);
    }

    public function isEmpty(Request $request): bool
    {
        if (!$this->isFrameworks) {
            return false;
        }
        [$callbacks, $bindings, $instances, $extenders] = ($this->ofApplication)();
        [$middleware, $handlers] = ($this->ofKernel)();
        $router = $this->app->make('router');
        if (
            $callbacks !== [] || $handlers !== [] || $this->app->resolved(self::DEFERRED)
            || $this->app->make('events')->hasListeners(Terminating::class)
            || $this->named !== [$router->getMiddleware(), $router->getMiddlewareGroups()]
        ) {
            return false;
        }
        $route = $request->route();
        $route = is_object($route) ? $route : null;
        $lists = [$middleware, $route?->gatherMiddleware(), $route?->getAction('excluded_middleware')];
        // A cached route is another object in each request.
        $name = $route?->uri() ?? '';
        [$of, $made] = $this->known[$name] ?? [null, false];
        if ($of !== $lists) {
            if (count($this->known) >= self::MAX_KNOWN) {
                $this->known = [];
            }
            $made = $this->make([...($route !== null ? $router->gatherRouteMiddleware($route) : []), ...$middleware]);
            $this->known[$name] = [$lists, $made];
        }
        if ($made === false) {
            return false;
        }
        foreach ($made as $name => [$binding, $class]) {
            $instance = $instances[$name] ?? null;
            if (
                ($bindings[$name]['concrete'] ?? null) !== $binding || isset($extenders[$name])
                || ($instance !== null && (!is_object($instance) || $instance::class !== $class))
            ) {
                return false;
            }
        }
        return true;
    }

    /**
     * @param array<mixed> $middleware
     * @return array<string, array{mixed, string}>|false
     */
    private function make(array $middleware): array|false
    {
        $made = [];
        foreach (array_filter($middleware, is_string(...)) as $one) {
            $name = explode(':', $one, 2)[0];
            $instance = $this->app->make($name);
            // The framework's own has nothing to do unless something was deferred.
            if (method_exists($instance, 'terminate') && $instance::class !== InvokeDeferredCallbacks::class) {
                return false;
            }
            $made[$name] = [$this->app->getBindings()[$name]['concrete'] ?? null, $instance::class];
        }
        return $made;
    }

    /** @param list<string> $methods */
    private function owns(object $object, string $class, array $methods): bool
    {
        foreach ($methods as $method) {
            if (!method_exists($object, $method) || (new \ReflectionMethod($object, $method))->class !== $class) {
                return false;
            }
        }
        return true;
    }
}
