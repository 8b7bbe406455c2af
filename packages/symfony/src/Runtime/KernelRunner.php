<?php

/** Boots a kernel once, then lets it answer requests: the answer first, then `kernel.terminate`, then the reset of its services. */

declare(strict_types=1);

namespace Hearth\Symfony\Runtime;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;

final class KernelRunner implements RunnerInterface
{
    public function __construct(private readonly HttpKernelInterface $entrance)
    {
    }

    public function run(): int
    {
        $entrance = $kernel = $this->entrance;
        // A reverse proxy such as HttpCache around the kernel.
        while ($kernel instanceof HttpKernelInterface && !$kernel instanceof KernelInterface && method_exists($kernel, 'getKernel')) {
            $kernel = $kernel->getKernel();
        }
        // Up to Symfony 6.1 a kernel that is booted before its first request forgets its cache.
        if ($kernel instanceof KernelInterface && ($kernel !== $entrance || property_exists(Kernel::class, 'handlingHttpCache'))) {
            $kernel->boot();
        }
        return Loop::run(
            static function () use ($entrance): void {
                $request = Request::createFromGlobals();
                $response = $entrance->handle($request);
                $response->send();
                if ($entrance instanceof TerminableInterface) {
                    $entrance->terminate($request, $response);
                }
            },
            static function (bool $isWhole) use ($kernel): void {
                if (!$kernel instanceof KernelInterface) {
                    return;
                }
                $isWhole || self::forget($kernel);
                // Kernel::boot() resets services when a request has gone before: now, while the client has its answer already.
                $kernel->boot();
            },
        );
    }

    /** After exit() in a request the kernel and the request stack believe that they still serve it. */
    private static function forget(KernelInterface $kernel): void
    {
        if ($kernel instanceof Kernel) {
            (function (): void {
                $this->requestStackSize = 0;
                $this->resetServices = true;
            })->bindTo($kernel, Kernel::class)();
        }
        $container = $kernel->getContainer();
        if ($container->has('request_stack')) {
            while ($container->get('request_stack')->pop() !== null) {
            }
        }
    }
}
