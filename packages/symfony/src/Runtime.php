<?php

/** Symfony's Runtime for Hearth: `APP_RUNTIME=Hearth\Symfony\Runtime`, or `extra.runtime.class` in composer.json. In the models that boot ahead
 * `public/index.php` runs once and its application answers each request. Everywhere else, consoles included, this is Symfony's own runtime. */

declare(strict_types=1);

namespace Hearth\Symfony;

use Closure;
use Hearth\Symfony\Runtime\KernelRunner;
use Hearth\Symfony\Runtime\RequestRunner;
use ReflectionFunction;
use ReflectionNamedType;
use ReflectionParameter;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\Resolver\ClosureResolver;
use Symfony\Component\Runtime\ResolverInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

class Runtime extends SymfonyRuntime
{
    /** Calls the application's closure with the arguments of the current request. */
    private ?Closure $create = null;

    private ?Request $current = null;

    public function getResolver(callable $callable, ?ReflectionFunction $reflector = null): ResolverInterface
    {
        $resolver = parent::getResolver($callable, $reflector);
        if (!self::loops()) {
            return $resolver;
        }
        $this->create = function () use ($resolver): mixed {
            $this->current = null;
            [$create, $arguments] = $resolver->resolve();
            return $create(...$arguments);
        };
        // While it boots there is no request: a closure that asks for one is first called with the first.
        $later = $this->create;
        return self::asksForRequest($callable) ? new ClosureResolver(static fn (): Closure => $later, static fn (): array => []) : $resolver;
    }

    public function getRunner(?object $application): RunnerInterface
    {
        if ($this->create !== null && $application instanceof HttpKernelInterface) {
            return new KernelRunner($application);
        }
        if ($this->create !== null && ($application === $this->create || $application instanceof Response)) {
            return new RequestRunner($this->create, fn (): Request => $this->request(), parent::getRunner(...));
        }
        return parent::getRunner($application);
    }

    protected function getArgument(ReflectionParameter $parameter, ?string $type): mixed
    {
        // Symfony's keeps the first.
        return $type === Request::class && $this->create !== null ? $this->request() : parent::getArgument($parameter, $type);
    }

    private function request(): Request
    {
        return $this->current ??= Request::createFromGlobals();
    }

    /** Whether this is a worker script: not a request by itself, and no command. */
    private static function loops(): bool
    {
        return isset($_SERVER['HEARTH_WORKER']) && function_exists('hearth_handle_request');
    }

    private static function asksForRequest(callable $callable): bool
    {
        foreach ((new ReflectionFunction($callable(...)))->getParameters() as $parameter) {
            $type = $parameter->getType();
            $name = $type instanceof ReflectionNamedType ? $type->getName() : '';
            if (is_a($name, Request::class, true) || ($name === 'array' && $parameter->getName() === 'request')) {
                return true;
            }
        }
        return false;
    }
}
