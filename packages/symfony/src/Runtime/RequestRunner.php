<?php

/** For applications that are created for each request: a closure that asks for the Request, or returns a Response. The code stays loaded. */

declare(strict_types=1);

namespace Hearth\Symfony\Runtime;

use Closure;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;

final class RequestRunner implements RunnerInterface
{
    /**
     * @param Closure(): mixed $create
     * @param Closure(): Request $request the current one, which the closure may have got too
     * @param Closure(?object): RunnerInterface $runner Symfony's, for everything but kernels
     */
    public function __construct(private readonly Closure $create, private readonly Closure $request, private readonly Closure $runner)
    {
    }

    public function run(): int
    {
        return Loop::run(function (): void {
            $application = ($this->create)();
            if (!$application instanceof HttpKernelInterface) {
                ($this->runner)($application)->run();
                return;
            }
            $request = ($this->request)();
            $response = $application->handle($request);
            $response->send();
            if ($application instanceof TerminableInterface) {
                $application->terminate($request, $response);
            }
        }, static function (): void {
        });
    }
}
