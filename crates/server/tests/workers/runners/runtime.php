<?php

// A runtime whose runner makes the same calls as that of runtime/frankenphp-symfony, in the same
// order.

declare(strict_types=1);

namespace App;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

final class LoopForFrankenPhp implements RunnerInterface
{
    public function __construct(private readonly HttpKernelInterface $kernel)
    {
    }

    public function run(): int
    {
        $atBoot = array_filter($_SERVER, static fn ($name): bool => !str_starts_with((string) $name, 'HTTP_'), ARRAY_FILTER_USE_KEY);
        $atBoot['APP_RUNTIME_MODE'] = 'web=1&worker=1';
        $request = $response = null;
        $handle = function () use ($atBoot, &$request, &$response): void {
            $_SERVER += $atBoot;
            $request = Request::createFromGlobals();
            $response = $this->kernel->handle($request);
            $response->send();
        };
        do {
            $more = \frankenphp_handle_request($handle);
            if ($this->kernel instanceof TerminableInterface && $request && $response) {
                $this->kernel->terminate($request, $response);
            }
            gc_collect_cycles();
        } while ($more);
        return 0;
    }
}

final class RuntimeForFrankenPhp extends SymfonyRuntime
{
    public function getRunner(?object $application): RunnerInterface
    {
        if ($application instanceof HttpKernelInterface && ($_SERVER['FRANKENPHP_WORKER'] ?? false)) {
            return new LoopForFrankenPhp($application);
        }
        return parent::getRunner($application);
    }
}
